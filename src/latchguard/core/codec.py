"""The stored form of a state: strict on the way in, stable bytes on the way out.

1. One JSON object: `{"format": "latchguard-state", "schema": 1, "version", "epoch", "cursor", "messages": [{"id",
   "ref", "identity"?}], "latches": [...], "quarantine": [{"latch", "reason"}]}`; a latch is `{"class":
   "emergency-truncate" | "view", "ref", "identity": {"hash", "role", "kind"}, "shown", "text", "view"?}`;
   a latch from before identities were kept has an empty hash and an empty `shown`.
2. Nothing is coerced: a number is no string, a string is no list, null is no text. Every error carries its path.
3. Fields this release does not know are carried through, in the state, its messages, latches and drops; not in an
   identity, which is these three fields and no other. A higher `schema` is refused, since what it means cannot be
   known.
4. `load_state(dump_state(x)) == x`, and a state gives the same bytes in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from attrs import evolve, field, fields, frozen, has
from cattrs import BaseValidationError, Converter, transform_error
from cattrs.cols import is_sequence, list_structure_factory
from cattrs.gen import make_dict_structure_fn, override

from latchguard.core.errors import InvalidValueError, StateVersionError, check_type, cut
from latchguard.core.identity import Identity, join_halves
from latchguard.core.jsontext import dump_json, load_json
from latchguard.core.latches import Drop, EmergencyTruncateLatch, Latch, ViewLatch, check_hash, latch_order
from latchguard.core.message import Kind, Role
from latchguard.core.reasons import Reason
from latchguard.core.refs import BLOCKED, RefMap, ref_number
from latchguard.core.state import ConversationState, check_id

__all__ = ["SCHEMA", "dump_state", "load_state", "strict_converter", "structure"]

SCHEMA: Final = 1
_FORMAT: Final = "latchguard-state"
_T = TypeVar("_T")
_Hook: TypeAlias = Callable[[Any, Any], Any]


@frozen
class _Entry:
    id: str
    ref: str
    identity: Identity | None = None
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True)


@frozen
class _Document:
    format: str
    schema: int
    version: int
    epoch: int
    cursor: int
    messages: list[_Entry]
    latches: list[Latch]
    quarantine: list[Drop]
    extra: Mapping[str, Any] = field(factory=dict, kw_only=True)


def dump_state(state: ConversationState) -> bytes:
    """Serialise *state* to compact UTF-8 JSON.

    Raises:
        InvalidValueError: *state* is no state, or holds in `extra` what JSON cannot.

    Guarantees:
        Pure; the same bytes in every process.
    """
    check_type(state, ConversationState, "state", "a ConversationState")
    document = {
        "format": _FORMAT,
        "schema": SCHEMA,
        "version": state.version,
        "epoch": state.epoch,
        "cursor": state.refs.cursor,
        "messages": [_dump_entry(state, message_id) for message_id in state.refs],
        "latches": [dump_latch(latch) for latch in state.latches],
        "quarantine": [
            {"latch": dump_latch(drop.latch), "reason": drop.reason, **drop.extra} for drop in state.quarantine
        ],
        **state.extra,
    }
    return dump_json(document)


def load_state(raw: bytes | str) -> ConversationState:
    """Read what `dump_state` wrote.

    Raises:
        InvalidValueError: *raw* is no JSON, or a field has the wrong type or form; the path says which.
        StateVersionError: the state is of a newer schema.

    Guarantees:
        Pure; nothing but these errors, whatever *raw* holds.
    """
    check_type(raw, bytes | str, "$", "JSON as bytes or a string")
    text = decode_utf8(raw) if isinstance(raw, bytes) else join_halves(raw)
    try:
        document = load_json(text)
    except ValueError as error:
        raise InvalidValueError("$", "a JSON object, as dump_state writes it", cut(raw)) from error
    if isinstance(document, dict) and document.get("format") == _FORMAT:
        schema = document.get("schema")
        if type(schema) is int and schema > SCHEMA:
            raise StateVersionError("$.schema", SCHEMA, schema)
    return _to_state(structure(document, _Document))


def decode_utf8(raw: bytes) -> str:
    """Decode UTF-8 bytes.

    Raises:
        InvalidValueError: the bytes are no UTF-8; the path holds the offset.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"byte {error.start}", "UTF-8", cut(raw[error.start : error.start + 4])) from error


def dump_latch(latch: Latch) -> dict[str, Any]:
    """Give the stored form of one latch."""
    name = "view" if isinstance(latch, ViewLatch) else "emergency-truncate"
    body: dict[str, Any] = {"class": name, "ref": latch.ref, "identity": _dump_identity(latch.identity)}
    body |= {"shown": latch.shown, "text": latch.text}
    if isinstance(latch, ViewLatch):
        body["view"] = latch.view
    return {**body, **latch.extra}


def _dump_identity(identity: Identity) -> dict[str, Any]:
    return {"hash": identity.hash, "role": identity.role, "kind": identity.kind}


def _dump_entry(state: ConversationState, message_id: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": message_id, "ref": state.refs[message_id]}
    if (identity := state.identities.get(message_id)) is not None:
        entry["identity"] = _dump_identity(identity)
    return {**entry, **state.entry_extra.get(message_id, {})}


def structure(value: Any, wanted: type[_T]) -> _T:
    """Build *wanted* from plain JSON values, strictly.

    Raises:
        InvalidValueError: something does not fit; the path says what.
    """
    try:
        return strict_converter().structure(value, wanted)
    except BaseValidationError as error:
        text = transform_error(error, "$", _format_error)[0]
        problem, _, path = text.rpartition(" @ ")
        below, expected, found = problem.split("\n")
        raise InvalidValueError(path + below, expected, found) from error
    except _MismatchError as error:
        raise InvalidValueError(f"${error.below}", error.expected, cut(error.found)) from error


class _MismatchError(ValueError):
    def __init__(self, expected: str, found: object, below: str = "") -> None:
        super().__init__(expected)
        self.expected, self.found, self.below = expected, found, below


def _format_error(error: BaseException, _: type | None) -> str:
    """Give three lines: the path below the one that cattrs knows, the expected, the found."""
    if isinstance(error, _MismatchError):
        return f"{error.below}\n{error.expected}\n{cut(error.found)}"
    if isinstance(error, InvalidValueError):  # a latch checked itself
        return f".{error.path}\n{error.expected}\n{error.found}"
    if isinstance(error, KeyError):
        return f"\nthe field {error.args[0]!r}\nnone"
    extra = sorted(getattr(error, "extra_fields", ()))
    return f"\nknown fields\n{cut(', '.join(extra) or str(error), 200)}"


@cache
def strict_converter() -> Converter:
    """Give a cattrs converter that coerces nothing: exact JSON types, objects for classes, lists for lists.

    A class with a field `extra` takes unknown fields into it; any other class refuses them.
    """
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    for exact, name in ((str, "a string"), (int, "an integer"), (float, "a number"), (bool, "true or false")):
        converter.register_structure_hook(exact, _exact(exact, name))
    for enum in (Role, Kind, Reason):
        converter.register_structure_hook(enum, _member(enum))
    converter.register_structure_hook_factory(
        is_sequence, lambda cls, conv: _typed(list, "a list", list_structure_factory(cls, conv))
    )
    converter.register_structure_hook_factory(has, _class_hook)
    converter.register_structure_hook(Latch, _structure_latch)
    return converter


def _exact(wanted: type, name: str) -> _Hook:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is wanted or (wanted is float and type(value) is int):
            return value
        raise _MismatchError(name, value)

    return hook


def _member(enum: type[StrEnum]) -> _Hook:
    members = {str(member): member for member in enum}

    def hook(value: Any, _: Any) -> Any:
        if type(value) is str and value in members:
            return members[value]
        raise _MismatchError(f"one of {', '.join(members)}", value)

    return hook


def _typed(wanted: type, name: str, inner: _Hook) -> _Hook:
    def hook(value: Any, cls: Any) -> Any:
        if type(value) is not wanted:
            raise _MismatchError(name, value)
        return inner(value, cls)

    return hook


def _class_hook(cls: type[Any], converter: Converter) -> _Hook:
    names = {attribute.name for attribute in fields(cls)}
    if "extra" not in names:
        return _typed(dict, "an object", make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True))
    inner = make_dict_structure_fn(cls, converter, extra=override(omit=True), _cattrs_forbid_extra_keys=False)

    def hook(value: Any, wanted: Any) -> Any:
        unknown = {key: found for key, found in value.items() if key not in names or key == "extra"}
        made = inner(value, wanted)
        return evolve(made, extra=_storable(unknown)) if unknown else made

    return _typed(dict, "an object", hook)


def _storable(unknown: dict[str, Any]) -> dict[str, Any]:
    """Refuse unknown fields that could not be written back: a number beyond a double, nesting without end."""
    try:
        json.dumps(unknown, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise _MismatchError("unknown fields that JSON can carry on", unknown) from error
    return unknown


def _structure_latch(value: Any, _: Any) -> Latch:
    if type(value) is not dict:
        raise _MismatchError("an object", value)
    rest = {key: found for key, found in value.items() if key != "class"}
    cls = _LATCH_CLASSES.get(name) if isinstance(name := value.get("class"), str) else None
    if cls is None:
        raise _MismatchError(f"one of {', '.join(_LATCH_CLASSES)}", name, ".class")
    latch: Latch = strict_converter().structure(rest, cls)
    return latch


_LATCH_CLASSES: Final[Mapping[str, type[Latch]]] = {"emergency-truncate": EmergencyTruncateLatch, "view": ViewLatch}


def _to_state(document: _Document) -> ConversationState:
    """Check what types cannot say: the format, the ref map, the hashes, one latch of a class per ref."""
    if document.format != _FORMAT:
        raise InvalidValueError("$.format", _FORMAT, cut(document.format))
    for name, least in (("schema", SCHEMA), ("version", 0), ("epoch", 0), ("cursor", 1)):
        if (count := getattr(document, name)) < least:
            raise InvalidValueError(f"$.{name}", f"a number from {least} on", str(count))
    refs = _to_refs(document)
    for position, entry in enumerate(document.messages):
        if entry.identity is not None:
            check_hash(entry.identity.hash, f"$.messages[{position}].identity.hash")
    seen: dict[tuple[str, str], int] = {}
    for position, latch in enumerate(document.latches):
        if seen.setdefault((latch.ref, type(latch).__name__), position) != position and latch.ref != BLOCKED:
            raise InvalidValueError(f"$.latches[{position}].ref", "one latch of each class per ref", latch.ref)
    return ConversationState(
        refs=refs,
        identities={entry.id: entry.identity for entry in document.messages if entry.identity is not None},
        latches=tuple(sorted(document.latches, key=latch_order)),
        quarantine=tuple(document.quarantine),
        version=document.version,
        epoch=document.epoch,
        entry_extra={entry.id: entry.extra for entry in document.messages if entry.extra},
        extra=document.extra,
    )


def _to_refs(document: _Document) -> RefMap:
    owners: dict[str, int] = {}
    by_id: dict[str, str] = {}
    for position, entry in enumerate(document.messages):
        path = f"$.messages[{position}]"
        number = ref_number(entry.ref)
        if number is None and entry.ref != BLOCKED:
            raise InvalidValueError(f"{path}.ref", "a ref (m00001, ...) or BLOCKED", cut(entry.ref))
        if number is not None and number >= document.cursor:
            raise InvalidValueError("$.cursor", f"more than the number of {path}.ref ({number})", str(document.cursor))
        if number is not None and (owner := owners.setdefault(entry.ref, position)) != position:
            raise InvalidValueError(f"{path}.ref", f"a ref of its own, not that of $.messages[{owner}]", entry.ref)
        if entry.id in by_id:
            raise InvalidValueError(f"{path}.id", "a message id of its own", cut(entry.id))
        check_id(entry.id, f"{path}.id")
        by_id[entry.id] = entry.ref
    return RefMap.of(by_id, document.cursor)
