"""What the four wires share: where a message sits in a body, and how its text is read and written.

1. A body has sections: the main one (`messages`, `input`, `contents`) and, on some wires, a head (`system`). A section
   is a list of entries, or one text.
2. An entry holds units. A unit is one message: its span, and the places of its text, tool name and call id.
3. What is no unit (unknown shapes, wrong types, marks, signatures) is never looked into and stays where it is.
4. The text of kind `other` is the compact JSON of its wire value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import Any, TypeAlias

import orjson
from attrs import frozen

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.errors import InvalidValueError
from latchguard.core.jsonspans import Path
from latchguard.core.jsontext import MAX_DEPTH, dump_json, load_json
from latchguard.core.message import Kind, Message, Role

__all__ = [
    "Draft",
    "Format",
    "Section",
    "Span",
    "Unit",
    "Write",
    "block_of",
    "dump_text",
    "get_in",
    "load_object",
    "placeholder",
    "read_result",
    "remove_in",
    "role_of",
    "set_in",
    "split_turns",
    "string_of",
    "text_of",
    "text_of_arguments",
    "write_object",
    "write_or",
    "write_plain",
    "write_value",
]

Write: TypeAlias = Callable[[str, Any], Any]


@frozen
class Span:
    """Where one message sits, and how to write it.

    Args:
        path: its own part of the entry; `()` is the entire entry.
        text: the place of its text in the entry.
        write: makes the value at *text* of a new text and the old value.
        name: the place of the tool name.
        call_id: the place of the call id.
    """

    path: Path
    text: Path
    write: Write
    name: Path | None = None
    call_id: Path | None = None


@frozen
class Unit:
    """One message of a section, before it has an id.

    Args:
        entry: the position of its entry in the section.
        span: where it sits in the entry.
        host_id: the id that the wire gives the occurrence, where it gives one.
        custom: a call whose text is free-form.
    """

    entry: int
    span: Span
    role: Role
    kind: Kind
    text: str
    tool_name: str | None = None
    tool_call_id: str | None = None
    host_id: str | None = None
    custom: bool = False


@frozen
class Section:
    """A part of a body that holds messages.

    Args:
        at: its place in the body.
        entries: its list; None where it is one text, or something that holds no messages.
        units: its messages, in order.
        exists: whether the body has it.
        wrap: the key of an object that holds the list, where one has to be made.
    """

    at: Path
    entries: Sequence[Any] | None
    units: tuple[Unit, ...]
    exists: bool = True
    wrap: str | None = None


@frozen
class Draft:
    """A message to be built anew.

    Args:
        message: the message.
        path: its path in the body that is made from, for reports.
        group: drafts of one group stood in one entry.
        is_result: it is what a client's tool gave, whatever its kind.
        texts: the parts of a result of several texts.
        answers: the name of the tool that a result answers.
        failed: the result tells of a failure.
        custom: a free-form call, or the result of one.
        media: media type and base64 data, or None and a URL.
    """

    message: Message
    path: Path = ()
    group: object = None
    is_result: bool = False
    texts: tuple[str, ...] = ()
    answers: str | None = None
    failed: bool = False
    custom: bool = False
    media: tuple[str | None, str] | None = None


@frozen
class Format:
    """One wire as data: how its bodies are read, and entries built.

    Args:
        read: gives the sections of a body, the head first; the main section is the last.
        build: makes main entries of messages.
        build_head: makes entries of the head of system texts; None where the wire has no head.
        objects: tool-call arguments are objects here, not text.
        taken: keys of entries and blocks whose content is in the messages.
    """

    read: Callable[[Any], tuple[Section, ...]]
    build: Callable[[Sequence[Draft]], list[Any]]
    build_head: Callable[[Sequence[Draft]], list[Any]] | None
    objects: bool
    taken: Collection[str]


def role_of(roles: Mapping[str, Role], value: object) -> Role | None:
    """Look *value* up in *roles*; None where it is no string or no role."""
    return roles.get(value) if isinstance(value, str) else None


def dump_text(value: Any) -> str | None:
    """Give the compact JSON of *value*, keys in their order; None where it is no JSON value or nested too deep."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return "".join(_dump_pieces(value))
    except (TypeError, ValueError, InvalidValueError):
        return None


def _dump_pieces(value: Any) -> Iterator[str]:
    """Serialise without recursion: how deep a value may nest must not depend on how deep the caller is."""
    stack: list[Iterator[tuple[str, Any]]] = [iter((("", value),))]
    closing: list[str] = [""]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            yield closing.pop()
            continue
        before, item = step
        yield before
        if not isinstance(item, dict | list | tuple):
            yield dump_json(item).decode()
            continue
        if len(stack) > MAX_DEPTH:
            raise ValueError(MAX_DEPTH)
        yield "{" if isinstance(item, dict) else "["
        closing.append("}" if isinstance(item, dict) else "]")
        stack.append(_members(item))


def _members(container: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(container, dict):
        for number, (key, value) in enumerate(container.items()):
            if not isinstance(key, str):
                raise TypeError(key)
            yield ("," if number else "") + dump_json(key).decode() + ":", value
    else:
        for number, value in enumerate(container):
            yield "," if number else "", value


def load_object(text: str) -> dict[str, Any] | None:
    """Give the JSON object that *text* holds; None where it holds none, or one that Python cannot hold (`1e400`)."""
    try:
        value = load_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and _is_finite(value) else None


def _is_finite(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not isfinite(item):
            return False
        if isinstance(item, dict | list):
            stack += item.values() if isinstance(item, dict) else item
    return True


def placeholder() -> dict[str, Any]:
    """Give a new object that stands for arguments that were no JSON object."""
    return dict(load_json(PLACEHOLDER_ARGUMENTS))


def write_plain(text: str, _old: Any = None) -> str:
    """Write *text* as it is."""
    return text


def write_object(text: str, _old: Any = None) -> dict[str, Any]:
    """Write the arguments *text* as an object: the placeholder where it holds none, never `{}`."""
    found = load_object(text)
    return placeholder() if found is None else found


def write_value(text: str, old: Any) -> Any:
    """Write a text that is JSON of the old value's type as that value, any other as it is."""
    try:
        value = load_json(text)
    except ValueError:
        return text
    return value if isinstance(value, list | dict) and type(value) is type(old) and _is_finite(value) else text


def write_or(make: Callable[[str], Any]) -> Write:
    """Give the write of an `other` block: JSON of the block's type is the new block, any other text *make* wraps."""

    def write(text: str, old: Any) -> Any:
        value = write_value(text, old)
        return make(value) if isinstance(value, str) else value

    return write


def read_result(content: Any, at: Path, types: Collection[str]) -> tuple[Kind, str, Path, Write] | None:
    """Read what a tool gave: kind, text, the place of the text, and how it is written; None where it is no JSON.

    Args:
        content: a text, or a list of parts.
        at: its place in the entry.
        types: the types of the wire's text parts.
    """
    if content is None or content == []:
        return Kind.TOOL_RESULT, "", at, write_plain
    if isinstance(content, str):
        return Kind.TOOL_RESULT, content, at, write_plain
    if isinstance(content, list) and len(content) == 1 and (text := text_of(content[0], types)) is not None:
        return Kind.TOOL_RESULT, text, (*at, 0, "text"), write_plain
    dumped = dump_text(content)
    return None if dumped is None else (Kind.OTHER, dumped, at, write_value)


def text_of(block: Any, types: Collection[str]) -> str | None:
    """Give the text of a text block; None where *block* is none."""
    if isinstance(block, dict) and isinstance(kind := block.get("type"), str) and kind in types:
        text = block.get("text")
        return text if isinstance(text, str) else None
    return None


def text_of_arguments(value: Any) -> str | None:
    """Give arguments as text: a string as it is, nothing as `""`, else compact JSON; None where it is no JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump_text(value)


def string_of(value: Any) -> str | None:
    """Give *value* where it is a string, else None."""
    return value if isinstance(value, str) else None


def block_of(message: Message) -> dict[str, Any] | None:
    """Give the wire object that the text of a message of kind `other` holds; None where there is none."""
    return load_object(message.text) if message.kind is Kind.OTHER else None


def get_in(value: Any, path: Path) -> Any:
    """Give what stands at *path*; None where a dict has no such key."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else value[key]
    return value


def set_in(value: Any, path: Path, new: Any) -> Any:
    """Give a copy of *value* with *new* at *path*; what the path does not go through is shared."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    copy = dict(value) if isinstance(value, dict) else list(value)
    old = copy.get(key) if isinstance(copy, dict) else copy[key]  # type: ignore[index]  # the key fits its container
    copy[key] = set_in(old, rest, new)  # type: ignore[index]
    return copy


def remove_in(value: dict[str, Any], path: Path) -> Any:
    """Give a copy of *value* without the key at *path*, which ends in a dict."""
    holder = get_in(value, path[:-1])
    return set_in(value, path[:-1], {key: item for key, item in holder.items() if key != path[-1]})


def split_turns(drafts: Iterable[Draft]) -> Iterator[tuple[bool, list[Draft]]]:
    """Give the runs of assistant drafts and of others, each with whether it is the assistant's.

    Results come first in their run: every wire wants them next to the calls, and text beside them after.
    """
    for is_assistant, run in groupby(drafts, lambda draft: draft.message.role is Role.ASSISTANT):
        yield is_assistant, sorted(run, key=lambda draft: not is_assistant and draft.message.role is not Role.TOOL)
