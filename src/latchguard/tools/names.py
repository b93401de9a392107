"""Names of tools that a provider refuses, as names that it takes, and back.

1. OpenAI takes `^[a-zA-Z0-9_-]{1,64}$`. A name that fits is its own alias.
2. The alias of any other is a readable part and a digest of the name: the same on every turn and in every order of the
   tools, whatever else is declared.
3. No alias is a name that a tool bears: where it would be, the digest is taken anew.
4. The places of names in requests, answers and stream events are a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

from attrs import evolve

from latchguard.core.errors import InvalidValueError, cut
from latchguard.core.identity import to_wtf8
from latchguard.core.message import Message

__all__ = ["NameStream", "ToolNames"]

_VALID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_LENGTH: Final = 64
_DIGEST_DIGITS: Final = 10

_Pattern: TypeAlias = tuple[str, ...]

# `*` is each item of a list. Arguments, schemas and results are on no path, so data is never taken for a name.
_REQUEST: Final[tuple[_Pattern, ...]] = (
    ("tools", "*", "name"),
    ("tools", "*", "function", "name"),
    ("tools", "*", "custom", "name"),
    ("tools", "*", "functionDeclarations", "*", "name"),
    ("tools", "*", "function_declarations", "*", "name"),
    ("functions", "*", "name"),
    ("tool_choice", "name"),
    ("tool_choice", "function", "name"),
    ("function_call", "name"),
    ("toolConfig", "functionCallingConfig", "allowedFunctionNames", "*"),
    ("tool_config", "function_calling_config", "allowed_function_names", "*"),
    ("messages", "*", "tool_calls", "*", "function", "name"),
    ("messages", "*", "tool_calls", "*", "custom", "name"),
    ("messages", "*", "function_call", "name"),
    ("messages", "*", "content", "*", "name"),
    ("messages", "*", "name"),
    ("input", "*", "name"),
    ("contents", "*", "parts", "*", "functionCall", "name"),
    ("contents", "*", "parts", "*", "function_call", "name"),
    ("contents", "*", "parts", "*", "functionResponse", "name"),
    ("contents", "*", "parts", "*", "function_response", "name"),
)
_ANSWER: Final[tuple[_Pattern, ...]] = (
    ("choices", "*", "message", "tool_calls", "*", "function", "name"),
    ("choices", "*", "message", "tool_calls", "*", "custom", "name"),
    ("choices", "*", "message", "function_call", "name"),
    ("choices", "*", "delta", "tool_calls", "*", "function", "name"),
    ("choices", "*", "delta", "tool_calls", "*", "custom", "name"),
    ("choices", "*", "delta", "function_call", "name"),
    ("output", "*", "name"),
    ("response", "output", "*", "name"),
    ("item", "name"),
    ("name",),
    ("content", "*", "name"),
    ("message", "content", "*", "name"),
    ("content_block", "name"),
    ("candidates", "*", "content", "parts", "*", "functionCall", "name"),
    ("candidates", "*", "content", "parts", "*", "function_call", "name"),
)
_DECLARED: Final = tuple(pattern for pattern in _REQUEST if pattern[0] in ("tools", "functions"))


class ToolNames:
    """The names of some tools and their aliases.

    Args:
        declared: the names that the tools bear, in any order.

    Raises:
        InvalidValueError: something is no string.

    Guarantees:
        `restore(alias(name)) == name`. An alias is a function of its name, but where a declared tool bears it.
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self._declared = frozenset(_check_name(name) for name in declared)
        self._names: dict[str, str] = {}
        for name in sorted(self._declared):
            self.alias(name)

    @classmethod
    def of_request(cls, body: Any) -> ToolNames:
        """Give the names of the tools that a request body of any wire declares."""
        return cls(name for pattern in _DECLARED for name in _find(body, pattern))

    def alias(self, name: str) -> str:
        """Give the name to send for *name*, a declared tool or one that the history calls; itself where it fits.

        Raises:
            InvalidValueError: *name* is no string.
        """
        if _VALID.fullmatch(_check_name(name)):
            return name
        attempt = 0
        while (alias := _make_alias(name, attempt)) in self._declared or self._names.get(alias, name) != name:
            attempt += 1
        self._names[alias] = name
        return alias

    def restore(self, alias: str) -> str:
        """Give the name that *alias* stands for; itself where it is none that was given out."""
        return self._names.get(alias, alias)

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases that were given out."""
        return frozenset(self._names)

    def alias_body(self, body: Any) -> Any:
        """Give a request body of any wire with aliases for its tools, its choice of one, and the calls of its history.

        Pure; the very object that was given where no name changes.
        """
        for pattern in _REQUEST:
            body = _change(body, pattern, self.alias)
        return body

    def alias_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Give *messages* with aliases for the names of calls; the very sequence where no name changes."""
        return _change_messages(messages, self.alias)

    def restore_answer(self, answer: Any) -> Any:
        """Give an answer, or a stream event that holds whole names, with the names that the aliases stand for.

        Pure; the very object that was given where no name changes. Where a server may send a name in pieces, use
        `stream`.
        """
        for pattern in _ANSWER:
            answer = _change(answer, pattern, self.restore)
        return answer

    def restore_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Give *messages* with the names that the aliases stand for; the very sequence where no name changes."""
        return _change_messages(messages, self.restore)

    def stream(self) -> NameStream:
        """Give a restorer for the events of one streamed answer."""
        return NameStream(self)


class NameStream:
    """Restores names in the events of one streamed answer, in order, also where a chat server sends them in pieces.

    A piece that may grow into an alias is held back (`""` goes out) until the name is whole, the arguments begin or
    the choice ends: who joins the pieces gets the restored name.
    """

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._held: dict[tuple[Any, Any], str] = {}
        self._told: set[tuple[Any, Any]] = set()

    def restore(self, event: Any) -> Any:
        """Give *event* with restored names; the very object where none changes."""
        choices = event.get("choices") if isinstance(event, dict) else None
        if isinstance(choices, list):
            restored = [self._restore_choice(choice) for choice in choices]
            if any(new is not old for new, old in zip(restored, choices, strict=True)):
                event = {**event, "choices": restored}
        return self._names.restore_answer(event)

    def _restore_choice(self, choice: Any) -> Any:
        if not isinstance(choice, dict) or not isinstance(delta := choice.get("delta"), dict):
            return choice
        number = choice.get("index")
        calls = delta.get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        restored = [self._restore_call(number, call) for call in calls]
        if choice.get("finish_reason"):
            late = [key for key in self._held if key[0] == number]
            restored += [{"index": key[1], "function": {"name": self._tell(key)}} for key in late]
        if len(restored) == len(calls) and all(new is old for new, old in zip(restored, calls, strict=True)):
            return choice
        return {**choice, "delta": {**delta, "tool_calls": restored}}

    def _restore_call(self, number: Any, call: Any) -> Any:
        called = call.get("function") if isinstance(call, dict) else None
        key = (number, call.get("index")) if isinstance(call, dict) else (None, None)
        if not isinstance(called, dict) or not all(isinstance(part, int | None) for part in key):
            return call
        piece = called.get("name")
        if isinstance(piece, str) and piece and key not in self._told:
            self._held[key] = held = self._held.get(key, "") + piece
            may_grow = any(alias != held and alias.startswith(held) for alias in self._names.aliases)
            name = "" if may_grow and not called.get("arguments") else self._tell(key)
        elif key in self._held and called.get("arguments"):
            name = self._tell(key)
        else:
            return call
        return call if name == piece else {**call, "function": {**called, "name": name}}

    def _tell(self, key: tuple[Any, Any]) -> str:
        self._told.add(key)
        return self._names.restore(self._held.pop(key))


def _check_name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidValueError("name", "a string", cut(name))
    return name


def _make_alias(name: str, attempt: int) -> str:
    digest = sha256(b"%d\0" % attempt + to_wtf8(name)).hexdigest()[:_DIGEST_DIGITS]
    return f"{_REFUSED.sub('_', name)[: _MAX_LENGTH - _DIGEST_DIGITS - 1]}_{digest}"


def _change_messages(messages: Sequence[Message], change: Callable[[str], str]) -> Sequence[Message]:
    changed = [
        message
        if message.tool_name is None or (name := change(message.tool_name)) == message.tool_name
        else evolve(message, tool_name=name)
        for message in messages
    ]
    return changed if any(new is not old for new, old in zip(changed, messages, strict=True)) else messages


def _is_tool(holder: dict[str, Any]) -> bool:
    """Say whether a `name` in *holder* is a tool's: an entry of another role is named after who speaks."""
    return holder.get("role") in (None, "tool", "function")


def _change(value: Any, pattern: _Pattern, change: Callable[[str], str]) -> Any:
    if not pattern:
        return change(value) if isinstance(value, str) else value
    key, rest = pattern[0], pattern[1:]
    if key == "*" and isinstance(value, list):
        items = [_change(item, rest, change) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict) or key not in value or not (rest or _is_tool(value)):
        return value
    new = _change(value[key], rest, change)
    return value if new is value[key] else {**value, key: new}


def _find(value: Any, pattern: _Pattern) -> Iterator[str]:
    if not pattern:
        yield from (value,) if isinstance(value, str) else ()
    elif pattern[0] == "*":
        for item in value if isinstance(value, list) else ():
            yield from _find(item, pattern[1:])
    elif isinstance(value, dict):
        yield from _find(value.get(pattern[0]), pattern[1:])
