"""A body of one wire as a body of another; what cannot be carried over is listed, never dropped in silence.

1. Calls, then their results, then the text that stood beside the results, as a message of its own.
2. Where arguments are objects, text that holds none becomes the placeholder; `""` (no arguments) becomes `{}`; the
   free-form text of a custom call goes under `input`.
3. A call without an id gets one made of its message's id; a result without one answers the first open call of its name.
4. Reasoning is bound to its provider (signatures, encryption) and is never carried over, nor are server tools.
5. Images are carried as data or URL; of a tool's other results, the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.findings import Wire
from latchguard.core.jsonspans import format_path
from latchguard.core.jsontext import dump_json, load_json
from latchguard.core.message import Kind, Message, Role
from latchguard.wire.base import Draft, dump_text, get_in, load_object, text_of
from latchguard.wire.carrying import Lost, carry_fields, find_leftovers
from latchguard.wire.detect import require_wire
from latchguard.wire.media import read_media
from latchguard.wire.parsing import FORMATS, Frame, Parsed
from latchguard.wire.rendering import render

__all__ = ["Converted", "convert"]


@frozen
class Converted:
    """A body on another wire, and what could not be carried over to it."""

    body: Any
    lost: tuple[Lost, ...]


def convert(parsed: Parsed, wire: Wire | str) -> Converted:
    """Give the body that says on *wire* what *parsed* says on its own.

    Args:
        parsed: from `parse`; its messages may have been changed, left out or added to.
        wire: the wire to convert to.

    Returns:
        The body, and what is lost. Settings without a counterpart are lost; what the target demands and the source does
        not say (Anthropic's `max_tokens`, a model of the new provider) is for the caller to set.

    Raises:
        WireUndecidedError: *wire* is no wire.

    Guarantees:
        Pure, stable; nothing of *parsed* is mutated. To its own wire it is `render`. Texts, calls and results keep
        their identity there and back, unless `lost` names them; but ids that had to be made stay, and arguments that
        were an object on the way come back as compact JSON.
    """
    frame, target = parsed.frame, require_wire(parsed.frame.body, wire)
    if target is frame.wire:
        return Converted(render(parsed.messages, frame), ())
    drafts, lost = _translate(list(_draft(parsed.messages, frame)), frame.wire, target)
    body, lost_fields = carry_fields(frame, target)
    kept = {draft.message.id for draft in drafts}
    leftovers = find_leftovers(frame, kept)
    return Converted(_assemble(_join(drafts), body, target), (*lost, *leftovers, *lost_fields))


def _draft(messages: Sequence[Message], frame: Frame) -> Iterator[Draft]:
    for message in messages:
        place = frame.places.get(message.id)
        if place is None:
            yield Draft(message)
            continue
        span, path = place.unit.span, frame.entry_path(place)
        entry = get_in(frame.body, path)
        holder = get_in(entry, span.call_id[:-1]) if span.call_id else {}
        yield Draft(
            message,
            path=(*path, *span.path),
            group=(place.section, place.unit.entry),
            is_result=message.role is Role.TOOL and span.call_id is not None,
            answers=holder.get("name") if isinstance(holder.get("name"), str) else None,
            failed=holder.get("is_error") is True or span.text[-2:] == ("response", "error"),
            custom=place.unit.custom,
            media=read_media(get_in(entry, span.path)) if message.kind is Kind.OTHER else None,
        )


def _translate(drafts: Sequence[Draft], source: Wire, target: Wire) -> tuple[list[Draft], list[Lost]]:
    carried: list[Draft] = []
    lost: list[Lost] = []
    has_begun = False
    for draft in drafts:
        found, why = _carry(draft, source, target)
        if found:
            carried.append(found)
            has_begun = has_begun or not _is_head(found)
            if has_begun and _is_head(found) and FORMATS[target].build_head:
                why = why or "stands at the head now"
        if why:
            lost.append(Lost(format_path(draft.path), why))
    return carried, lost


def _is_head(draft: Draft) -> bool:
    return draft.message.role is Role.SYSTEM and draft.message.kind is Kind.TEXT


_Carried: TypeAlias = tuple[Draft | None, str | None]


def _carry(draft: Draft, source: Wire, target: Wire) -> _Carried:
    """Give the draft as *target* takes it, and what is lost by that; None where it takes nothing of it."""
    match draft.message.kind:
        case Kind.TEXT:
            return _carry_text(draft, target)
        case Kind.TOOL_CALL:
            return _carry_call(draft, source, target)
        case Kind.TOOL_RESULT:
            is_told = draft.failed and not FORMATS[target].objects
            return draft, "that the call failed is told by its text only" if is_told else None
        case Kind.REASONING:
            return None, "reasoning is bound to its provider"
        case Kind.OTHER:
            return _carry_other(draft, target)


def _carry_text(draft: Draft, target: Wire) -> _Carried:
    message = draft.message
    said = message.text.strip() if target is Wire.ANTHROPIC else message.text
    if not said and (FORMATS[target].objects or (target is Wire.OPENAI_CHAT and message.role is Role.ASSISTANT)):
        return None, "an empty text, which the target refuses"
    if message.role is Role.DEVELOPER and FORMATS[target].build_head:
        return evolve(draft, message=evolve(message, role=Role.SYSTEM)), "the developer speaks as system"
    return draft, None


def _carry_call(draft: Draft, source: Wire, target: Wire) -> _Carried:
    text = draft.message.text
    if not (FORMATS[source].objects or FORMATS[target].objects):
        return draft, None
    if draft.custom:
        return _with_arguments(draft, dump_json({"input": text}).decode()), "free-form input became an object"
    if text == "":
        return _with_arguments(draft, "{}"), "no arguments became {}"
    if load_object(text) is None:
        return _with_arguments(draft, PLACEHOLDER_ARGUMENTS), "the arguments were no JSON object"
    return draft, None if _survives(text) else "duplicate keys or spellings of numbers"


def _survives(text: str) -> bool:
    """Say whether keys and numbers of a JSON object stay as they are spelt when it is read and written."""
    return _spell(text) == _spell(dump_text(load_object(text)) or "")


def _spell(text: str) -> list[str]:
    """Give the spelling of each number, and a mark for each string: a key that is there twice is one mark more."""
    return [token[0] if token["number"] else "" for token in _SPELT.finditer(text)]


_SPELT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|(?P<number>-?[0-9][0-9.eE+-]*+)', re.DOTALL)


def _with_arguments(draft: Draft, text: str) -> Draft:
    return evolve(draft, message=evolve(draft.message, text=text), custom=False)


def _carry_other(draft: Draft, target: Wire) -> _Carried:
    if draft.is_result:
        return _carry_parts(draft, target)
    if draft.media and draft.message.role is not Role.ASSISTANT:
        return draft, None
    return None, "no counterpart"


def _carry_parts(draft: Draft, target: Wire) -> _Carried:
    message = draft.message
    try:
        parts = load_json(message.text)
    except ValueError:
        parts = None
    if not isinstance(parts, list):
        return evolve(draft, message=evolve(message, kind=Kind.TOOL_RESULT)), "a result that was no text"
    texts = tuple(text for part in parts if (text := text_of(part, _TEXT_TYPES)) is not None)
    why = None if len(texts) == len(parts) else "parts that are no text"
    if len(texts) > 1 and target is not Wire.GEMINI:
        return evolve(draft, texts=texts), why
    joined = evolve(message, kind=Kind.TOOL_RESULT, text="\n".join(texts))
    return evolve(draft, message=joined), why or "its texts became one"


_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})


def _join(drafts: Sequence[Draft]) -> Iterator[Draft]:
    """Give each call and result an id, and each result the name and form of the call that it answers."""
    waiting: dict[str | None, list[str]] = {}
    calls: dict[str, Draft] = {}
    for draft in drafts:
        message = draft.message
        if message.kind is Kind.TOOL_CALL:
            call_id = message.tool_call_id or _make_call_id(message)
            if not message.tool_call_id:
                waiting.setdefault(message.tool_name, []).append(call_id)
            calls[call_id] = draft
            yield evolve(draft, message=evolve(message, tool_call_id=call_id))
        elif message.role is Role.TOOL:
            queue = waiting.get(draft.answers) or [_make_call_id(message)]
            call_id = message.tool_call_id or queue.pop(0)
            call = calls.get(call_id)
            name = call.message.tool_name if call else draft.answers
            answer = evolve(message, tool_call_id=call_id)
            yield evolve(draft, message=answer, answers=name, custom=bool(call and call.custom))
        else:
            yield draft


def _make_call_id(message: Message) -> str:
    return f"call_{sha256(message.id.encode(errors='surrogatepass')).hexdigest()[:24]}"


def _assemble(drafts: Iterable[Draft], fields: dict[str, Any], wire: Wire) -> dict[str, Any]:
    form = FORMATS[wire]
    *heads, main = form.read({})
    said = list(drafts)
    body = {"model": fields["model"]} if "model" in fields else {}
    if form.build_head and heads:
        first = [draft for draft in said if _is_head(draft)]
        said = [draft for draft in said if not _is_head(draft)]
        made = form.build_head(first)
        if made:
            body[str(heads[0].at[0])] = {heads[0].wrap: made} if heads[0].wrap else made
    body[str(main.at[0])] = form.build(said)
    return {**body, **fields}
