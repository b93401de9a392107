"""Rules of the area `naming`: ids and names that the wire takes, each of them one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from latchguard.core.findings import Repair, Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.draft import BodyEdit, Drop, Set
from latchguard.egress.layout import at, declared_names, declared_tools
from latchguard.egress.plain import NAME, RESPONSES_ID_LIMIT, plainly_named
from latchguard.egress.profiles import Demands
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule
from latchguard.egress.turns import Block, Pairing, pair_turns, text_or_none

__all__ = ["RULES", "naming_hits"]

_NAME_LENGTH: Final = 64
_HASH_DIGITS: Final = 32
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NAMED: Final = (Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES, Wire.ANTHROPIC)
_ID_KEYS: Final = {  # of a call, of a result
    Wire.OPENAI_CHAT: ("id", "tool_call_id"),
    Wire.OPENAI_RESPONSES: ("call_id", "call_id"),
    Wire.ANTHROPIC: ("id", "tool_use_id"),
}


def naming_hits(body: Any, wire: Wire, demands: Demands) -> dict[Trigger, list[Hit]]:
    """Look at the ids and names of calls, tools and items."""
    hits: dict[Trigger, list[Hit]] = {}
    if plainly_named(body, wire, demands):
        return hits
    pairings = list(pair_turns(body, wire, join="turns-apart" not in demands))
    found = [*_tool_hits(body, wire)]
    if wire in _ID_KEYS:
        found += _id_hits(pairings, wire)
    for pairing in pairings:
        found += _name_hits(pairing, body, wire)
        if wire is Wire.OPENAI_RESPONSES:
            found += _item_hits(pairing, body)
    for trigger, hit in found:
        hits.setdefault(trigger, []).append(hit)
    return hits


def _id_hits(pairings: Sequence[Pairing], wire: Wire) -> Iterator[tuple[Trigger, Hit]]:
    places: dict[str, list[Path]] = {}
    for pairing in pairings:
        for turn in pairing.turns:
            for blocks, key in zip((turn.calls, turn.results), _ID_KEYS[wire], strict=True):
                for block in blocks:
                    places.setdefault(str(block.call_id), []).append((*block.path, key))
    for call_id, paths in places.items():
        yield Trigger.CALL_ID, Hit(paths[0], (call_id, paths, places))


def _name_hits(pairing: Pairing, body: Any, wire: Wire) -> Iterator[tuple[Trigger, Hit]]:
    bad: dict[str, list[Path]] = {}
    for call, holder in _callers(pairing, body, wire):
        name = at(body, holder).get("name")
        if not text_or_none(name):
            yield Trigger.EMPTY_NAME, Hit(call.path, (call, holder, pairing))
        elif wire in _NAMED and not NAME.fullmatch(name):
            answer = pairing.answers.get(call.path)
            named = answer is not None and wire is Wire.OPENAI_CHAT and answer.value.get("name") == name
            bad.setdefault(name, []).extend(
                [(*holder, "name"), *([(*answer.path, "name")] if answer is not None and named else [])]
            )
    for name, paths in bad.items():
        yield Trigger.INVALID_NAME, Hit(paths[0], (name, paths), name)


def _callers(pairing: Pairing, body: Any, wire: Wire) -> Iterator[tuple[Block, Path]]:
    """Each call with the path of the object that bears its name."""
    for turn in pairing.turns:
        for call in turn.calls:
            if wire is Wire.OPENAI_CHAT:
                key = next((key for key in ("function", "custom") if isinstance(call.value.get(key), dict)), None)
            elif wire is Wire.GEMINI:
                key = next(key for key in ("functionCall", "function_call") if isinstance(call.value.get(key), dict))
            elif wire is Wire.OPENAI_RESPONSES and call.kind not in ("function_call", "custom_tool_call"):
                continue
            else:
                key = ""
            if key is not None:
                yield call, (*call.path, key) if key else call.path


def _tool_hits(body: Any, wire: Wire) -> Iterator[tuple[Trigger, Hit]]:
    first: dict[str, Any] = {}
    for path, tool in declared_tools(body, wire):
        name = text_or_none(tool.get("name"))
        if name is None:
            continue
        if wire in _NAMED and not NAME.fullmatch(name):
            yield Trigger.INVALID_NAME, Hit((*path, "name"), (name, ()), name)
        if name in first:
            yield Trigger.REPEATED_TOOL, Hit(path, (tool, first[name]), name)
        first.setdefault(name, tool)


def _item_hits(pairing: Pairing, body: Any) -> Iterator[tuple[Trigger, Hit]]:
    items = at(body, pairing.base)
    seen: set[str] = set()
    unstored = isinstance(body, dict) and body.get("store") is False
    for place, item in enumerate(items):
        item_id = item.get("id") if isinstance(item, dict) else None
        if not isinstance(item_id, str) or item.get("type") == "item_reference":
            continue
        path = (*pairing.base, place)
        if unstored:
            yield Trigger.UNSTORED_ITEM, Hit(path, item)
        if item_id in seen:
            yield Trigger.REPEATED_ITEM, Hit(path, item_id)
        seen.add(item_id)


def check_id_length(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A call id that is longer than the server takes.

    Fires on Responses beyond 64 characters ("Expected a string with maximum length 64"), on chat under
    `openai-chat-id40` beyond 40. Seen: NousResearch/hermes-agent#73492.
    Repair: one rename per id, at both ends, from the original id alone: its head and its hash, lossless. Where the
    new id is another's already it is named only.
    """
    call_id, _, _ = hit.value
    limit = int(scene.demands.get("call-id-length", RESPONSES_ID_LIMIT))
    if scene.wire is Wire.OPENAI_CHAT and "call-id-length" not in scene.demands:
        return
    if len(call_id) > limit:
        yield _renamed_id(hit, f"{call_id[: max(0, min(24, limit - _HASH_DIGITS - 1))]}_{_digest(call_id)}"[:limit])


def check_id_form(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A call id with other characters than the server takes.

    Fires under `mistral` (nine letters and digits: "must be a-z, A-Z, 0-9, with a length of 9") and under `anthropic`
    and `bedrock` (letters, digits, `_`, `-`).
    Repair: one rename per id, at both ends, from the original id alone, lossless. Where the new id is another's
    already it is named only.
    """
    call_id, _, _ = hit.value
    form = str(scene.demands["call-id-form"])
    if re.fullmatch(form, call_id, re.ASCII):
        return
    if form == _NINE:
        number = int(sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest(), 16)
        yield _renamed_id(hit, "".join(_BASE62[number // 62**place % 62] for place in range(9)))
    else:
        yield _renamed_id(hit, f"{re.sub('[^a-zA-Z0-9_-]', '_', call_id)[:24]}_{_digest(call_id)}")


_NINE: Final = "[a-zA-Z0-9]{9}"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def _renamed_id(hit: Hit, new: str) -> Fix:
    call_id, paths, known = hit.value
    if new in known:
        return Fix(hit.path, Repair.DETECT, before=call_id, note="the id it would get is another's")
    return Fix(hit.path, Repair.LOSSLESS, tuple(Set(path, new) for path in paths), call_id, new)


def check_name(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A tool name that the wire does not take: `^[a-zA-Z0-9_-]{1,64}$`.

    Fires on both OpenAI wires and Anthropic. Documented in all three references. Seen: mcp-use/mcp-use#90.
    Repair: a name in history that no declared tool bears is rewritten one-way, at every call that bears it, a
    placeholder for what the model said. The name of a declared tool is only named: its alias must be turned back in
    the response, which `latchguard.tools` does.
    """
    name, paths = hit.value
    declared = declared_names(scene.body, scene.wire)
    if name in declared:
        if not paths:
            yield Fix(hit.path, Repair.DETECT, before=name, note="a declared tool: use ToolNames", tool_name=name)
        return
    new = re.sub("[^a-zA-Z0-9_-]", "_", name)[:_NAME_LENGTH]
    if new in declared:
        new = f"{new[: _NAME_LENGTH - 9]}_{_digest(name)[:8]}"
    yield Fix(hit.path, Repair.PLACEHOLDER, tuple(Set(path, new) for path in paths), name, new, tool_name=name)


def check_empty_name(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A call without a name.

    Fires on every wire. Seen: esengine/DeepSeek-Reasonix#4738; "missing field `name`".
    Repair: the name that its result bears, lossless; else the call and its result go as one, lossy.
    """
    call, holder, pairing = hit.value
    answer = pairing.answers.get(call.path)
    name = _result_name(answer)
    if name is not None:
        yield Fix(hit.path, Repair.LOSSLESS, (Set((*holder, "name"), name),), call.name, name)
        return
    edits: list[BodyEdit] = [_drop_call(call, scene)]
    if answer is not None:
        edits.append(Drop(answer.path, answer.path[:-2] if scene.wire in (Wire.ANTHROPIC, Wire.GEMINI) else None))
    yield Fix(hit.path, Repair.LOSSY, tuple(edits), call.value)


def _result_name(answer: Block | None) -> str | None:
    if answer is None:
        return None
    for key in ("functionResponse", "function_response"):
        if isinstance(answer.value.get(key), dict):
            return text_or_none(answer.value[key].get("name"))
    return text_or_none(answer.value.get("name"))


def _drop_call(call: Block, scene: Scene) -> Drop:
    if scene.wire is Wire.OPENAI_RESPONSES:
        return Drop(call.path)
    if scene.wire is Wire.OPENAI_CHAT:
        message = at(scene.body, call.path[:-2])
        return Drop(call.path, call.path[:-1] if message.get("content") else call.path[:-2])
    return Drop(call.path, call.path[:-2])


def check_repeated_tool(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Two declared tools of one name.

    Fires on every wire. Documented: Anthropic "Tool names must be unique."; Gemini "Duplicate function declaration
    found".
    Repair: an equal definition goes, lossless; of two that differ nobody can say which is meant: detect.
    """
    tool, first = hit.value
    if tool == first:
        owner = hit.path[:-2] if scene.wire is Wire.GEMINI else None
        path = hit.path[:-1] if hit.path[-1] == "function" else hit.path
        yield Fix(hit.path, Repair.LOSSLESS, (Drop(path, owner),), tool, tool_name=hit.tool_name)
    else:
        yield Fix(hit.path, Repair.DETECT, before=tool, note="the definitions differ", tool_name=hit.tool_name)


def check_repeated_item(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Two items with one id.

    Fires on Responses. Documented: "Duplicate item found with id".
    Repair: the later one loses its id and stays as it is, lossless.
    """
    yield Fix(hit.path, Repair.LOSSLESS, (Drop((*hit.path, "id")),), hit.value)


def check_unstored_item(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An item id that no server can resolve, since the body says `store: false`.

    Fires on Responses. Seen: langchain-ai/langchain#38372; "Item with id not found. Items are not persisted when
    `store` is set to false."
    Repair: a reasoning item without `encrypted_content` is a bare reference and goes, lossy; one with it stays; any
    other item loses its id and keeps its text, lossless.
    """
    item = hit.value
    if item.get("type") != "reasoning":
        yield Fix(hit.path, Repair.LOSSLESS, (Drop((*hit.path, "id")),), item["id"])
    elif not item.get("encrypted_content"):
        yield Fix(hit.path, Repair.LOSSY, (Drop(hit.path),), item)


_RESPONSES: Final = (Wire.OPENAI_RESPONSES,)

# In the order in which they run: names before ids, since a dropped call takes its id along.
RULES: Final[tuple[EgressRule, ...]] = (
    make_rule(
        "tool-name-empty",
        Trigger.EMPTY_NAME,
        Repair.LOSSY,
        check_empty_name,
        errors=("missing field name", "function.name: string too short"),
    ),
    make_rule(
        "tool-name-invalid",
        Trigger.INVALID_NAME,
        Repair.PLACEHOLDER,
        check_name,
        wires=_NAMED,
        errors=(
            "Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+",
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'",
        ),
    ),
    make_rule(
        "duplicate-tool-name",
        Trigger.REPEATED_TOOL,
        Repair.LOSSLESS,
        check_repeated_tool,
        errors=("Tool names must be unique", "Duplicate function declaration found"),
    ),
    make_rule(
        "call-id-too-long",
        Trigger.CALL_ID,
        Repair.LOSSLESS,
        check_id_length,
        wires=(Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES),
        errors=(
            "Expected a string with maximum length 64, but got a string",
            "string too long. Expected a string with maximum length 40",
        ),
    ),
    make_rule(
        "call-id-bad-charset",
        Trigger.CALL_ID,
        Repair.LOSSLESS,
        check_id_form,
        wires=(Wire.OPENAI_CHAT, Wire.ANTHROPIC),
        demand="call-id-form",
        errors=("must be a-z, A-Z, 0-9, with a length of 9", "tool_use.id: String should match pattern"),
    ),
    make_rule(
        "item-id-unresolvable",
        Trigger.UNSTORED_ITEM,
        Repair.LOSSY,
        check_unstored_item,
        wires=_RESPONSES,
        errors=("Items are not persisted when store is set to false",),
    ),
    make_rule(
        "item-id-duplicate",
        Trigger.REPEATED_ITEM,
        Repair.LOSSLESS,
        check_repeated_item,
        wires=_RESPONSES,
        errors=("Duplicate item found with id",),
    ),
)
