"""Messages to bodies: changes go to the place where the message sat, all else is the very object that came.

1. An equal message keeps its object; a changed text, tool name or call id is written in its place.
2. A message whose role or kind changed, or whose id the frame does not know, is built anew.
3. Messages that are gone leave; an entry leaves with its last message; what is no message stays where it was.
4. New messages stand where they are given. One given inside an entry splits it; one that was moved takes its own
   part of its old entry along.
5. Text that is no JSON object, where a call's arguments are an object, becomes the placeholder and a finding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from attrs import frozen

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.errors import InvalidValueError, cut
from latchguard.core.findings import Finding, Repair
from latchguard.core.history import index_messages
from latchguard.core.jsonspans import Path, format_path
from latchguard.core.message import Kind, Message, Role
from latchguard.wire.base import Draft, Format, Section, Unit, get_in, load_object, placeholder, remove_in, set_in
from latchguard.wire.parsing import FORMATS, Frame, Place

__all__ = ["Rendered", "render", "render_checked"]

_log: Final = logging.getLogger("latchguard.wire")


@frozen
class Rendered:
    """A body, and the findings: the calls whose arguments became the placeholder."""

    body: Any
    findings: tuple[Finding, ...]


@frozen
class _Item:
    """A message on its way out: with the place where it sat, or without."""

    message: Message
    place: Place | None

    @property
    def is_changed(self) -> bool:
        return self.place is None or self.place.message != self.message


_Run: TypeAlias = list[_Item]
_Build: TypeAlias = Callable[[Sequence[_Item]], list[Any]]


def render(messages: Sequence[Message], frame: Frame) -> Any:
    """Give the body that says *messages* in *frame*; as `render_checked`, each finding logged as a WARNING."""
    rendered = render_checked(messages, frame)
    for finding in rendered.findings:
        _log.warning("%s at %s of tool %s: %s", finding.rule, finding.path, cut(finding.tool_name), cut(finding.before))
    return rendered.body


def render_checked(messages: Sequence[Message], frame: Frame) -> Rendered:
    """Give the body that says *messages* in *frame*.

    Args:
        messages: those of the frame's body, changed, left out, added to or reordered.
        frame: from `parse`.

    Returns:
        The body; and one finding `input-not-object` per changed or new call whose text is no JSON object, on wires
        where arguments are objects.

    Raises:
        DuplicateMessageError: two messages share an id.
        InvalidValueError: something is no message; or messages are added where the body holds something else.

    Guarantees:
        Pure. The frame's messages give the frame's body itself; a changed message changes bytes inside its own span
        only. No part of the body is mutated; unchanged parts are shared with it.
    """
    items = tuple(_match(messages, frame))
    index_messages(item.message for item in items)
    body = frame.body
    for number, section in enumerate(frame.sections):
        chosen = [item for item in items if _section_of(item, frame) == number]
        is_head = number < len(frame.sections) - 1
        build = partial(_build, FORMATS[frame.wire], items, is_head=is_head)
        body = _render_section(body, section, chosen, build, is_head=is_head)
    return Rendered(body, tuple(_find_placeholders(body, items, frame)))


def _build(form: Format, items: Sequence[_Item], run: Sequence[_Item], *, is_head: bool) -> list[Any]:
    calls = {item.message.tool_call_id: item for item in items if item.message.kind is Kind.TOOL_CALL}
    drafts = []
    for item in run:
        call = calls.get(item.message.tool_call_id) if item.message.role is Role.TOOL else None
        name = call.message.tool_name if call else None
        drafts.append(Draft(item.message, answers=name, custom=bool(call and call.place and call.place.unit.custom)))
    return form.build_head(drafts) if is_head and form.build_head else form.build(drafts)


def _match(messages: Sequence[Message], frame: Frame) -> Iterator[_Item]:
    for position, message in enumerate(messages):
        if not isinstance(message, Message):
            raise InvalidValueError(f"messages[{position}]", "a Message", cut(message))
        place = frame.places.get(message.id)
        if place and (place.message.role, place.message.kind) != (message.role, message.kind):
            place = None
        yield _Item(message, place)


def _section_of(item: _Item, frame: Frame) -> int:
    if item.place:
        return item.place.section
    is_system = item.message.role in (Role.SYSTEM, Role.DEVELOPER) and item.message.kind is Kind.TEXT
    main = len(frame.sections) - 1
    return 0 if is_system and FORMATS[frame.wire].build_head else main


def _render_section(body: Any, section: Section, items: Sequence[_Item], build: _Build, *, is_head: bool) -> Any:
    is_whole = [item.place.index if item.place else -1 for item in items] == [*range(len(section.units))]
    if is_whole and not any(item.is_changed for item in items):
        return body
    if not items and is_head:
        return remove_in(body, section.at[:1])
    if section.entries is not None:
        return set_in(body, section.at, _weave(section.entries, section.units, items, build))
    if is_whole:
        return set_in(body, section.at, items[0].message.text)
    if section.exists and not section.units:
        raise InvalidValueError(format_path(section.at), "a list to add messages to", cut(get_in(body, section.at)))
    made = build(items)
    return set_in(body, section.at, {section.wrap: made} if section.wrap else made)


def _weave(entries: Sequence[Any], units: Sequence[Unit], items: Sequence[_Item], build: _Build) -> list[Any]:
    """Put the runs of *items* where they are given, and each entry without messages after the entry it followed."""
    bearing: dict[int, list[Unit]] = {}
    for unit in units:
        bearing.setdefault(unit.entry, []).append(unit)
    out: list[Any] = []
    passed = 0
    seen: set[int] = set()
    for number, run in _split_runs(items):
        while passed < len(entries) and (passed not in bearing if number is None else passed < number):
            out += [] if passed in bearing else [entries[passed]]
            passed += 1
        if number is None:
            out += build(run)
        else:
            out.append(_rewrite(entries[number], run, bearing[number], is_first=number not in seen))
            seen.add(number)
            passed = max(passed, number + 1)
    return out + [entry for position, entry in enumerate(entries) if position >= passed and position not in bearing]


def _split_runs(items: Sequence[_Item]) -> Iterator[tuple[int | None, _Run]]:
    """Give the runs of new messages (None) and of messages that sat in one entry in this order (its number)."""
    run: _Run = []
    for item in items:
        if run and not _continues(run[-1].place, item.place):
            yield _entry_of(run), run
            run = []
        run.append(item)
    if run:
        yield _entry_of(run), run


def _entry_of(run: _Run) -> int | None:
    place = run[0].place
    return place.unit.entry if place else None


def _continues(before: Place | None, after: Place | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.unit.entry == after.unit.entry and before.index < after.index


def _rewrite(entry: Any, run: _Run, units: Sequence[Unit], *, is_first: bool) -> Any:
    """Give *entry* with the messages of *run* only; all that is no message stays in the first part of an entry."""
    kept = [item.place.unit for item in run if item.place]
    for item in run:
        if item.place:
            entry = _write(entry, item.message, item.place)
    if len(kept) == len(units):
        return entry
    paths = {unit.span.path for unit in kept}
    gone = [unit.span.path for unit in units if unit.span.path not in paths]
    for holder in {path[:-1] for path in (*paths, *gone) if isinstance(path[-1], int)}:
        stay = [
            item
            for position, item in enumerate(get_in(entry, holder))
            if (*holder, position) in paths or (is_first and (*holder, position) not in gone)
        ]
        entry = set_in(entry, holder, stay) if stay else _empty(entry, holder)
    for path in gone:
        entry = entry if isinstance(path[-1], int) else _empty(entry, path)
    return entry


def _empty(entry: Any, path: Path) -> Any:
    """Take out what held the messages that left. Null content is legal beside calls; a missing key not everywhere."""
    return set_in(entry, path, None) if path == ("content",) else remove_in(entry, path)


def _write(entry: Any, message: Message, place: Place) -> Any:
    span, before = place.unit.span, place.message
    if message.text != before.text:
        entry = set_in(entry, span.text, span.write(message.text, get_in(entry, span.text)))
    for path, new, old in (
        (span.name, message.tool_name, before.tool_name),
        (span.call_id, message.tool_call_id, before.tool_call_id),
    ):
        if path and new != old:
            entry = remove_in(entry, path) if new is None else set_in(entry, path, new)
    return entry


def _find_placeholders(body: Any, items: Sequence[_Item], frame: Frame) -> Iterator[Finding]:
    calls = [item for item in items if item.message.kind is Kind.TOOL_CALL]
    poisoned = {item.message.id for item in calls if item.is_changed and load_object(item.message.text) is None}
    if not poisoned or not FORMATS[frame.wire].objects:
        return
    sections = FORMATS[frame.wire].read(body)
    units = [(section, unit) for section in sections for unit in section.units if unit.kind is Kind.TOOL_CALL]
    for item, (section, unit) in zip(calls, units, strict=False):
        if item.message.id in poisoned and unit.text == PLACEHOLDER_ARGUMENTS:
            yield Finding(
                rule="input-not-object",
                path=format_path((*section.at, unit.entry, *unit.span.path)),
                repair=Repair.PLACEHOLDER,
                applied=True,
                before=item.message.text,
                after=placeholder(),
                tool_name=item.message.tool_name,
            )
