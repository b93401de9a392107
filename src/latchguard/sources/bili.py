"""Session files of a context-compression proxy, as a typed view of their JSON (docs/bili.md).

1. An envelope `{version, savedAt, id, payload}`, or the flat record that came before it.
2. `state.messageRefs` joins message ids and refs: `byRaw` id -> ref, `byRef` ref -> id. By design `byRaw` also holds
   `BLOCKED` for protected messages, the id `bili:ref-floor`, and ids of messages that were edited away.
3. Latches stand in `state.emergencyTruncateLatch` and `state.viewLatch`: a list of `{ref, text}`, or a map ref -> text
   (after a repair: ref -> `{text, identity}`).
4. `messages` is often the tail only. `pluginSnapshot` holds further messages, some of them copies under other ids.
5. What has the wrong type is left out of the view and listed as a fault; nothing here raises but `load_bili`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from attrs import field, frozen

from latchguard.core.errors import cut
from latchguard.core.identity import Identity, hash_fields
from latchguard.core.jsonspans import Path, format_path
from latchguard.core.latches import NO_IDENTITY, EmergencyTruncateLatch, Latch, ViewLatch, latch_order
from latchguard.core.message import Kind, Message, Role
from latchguard.core.refs import BLOCKED, RefMap, ref_number
from latchguard.core.state import ConversationState
from latchguard.sources.errors import NoSessionError
from latchguard.sources.framing import unframe
from latchguard.sources.limits import Limits
from latchguard.sources.reading import read_json

__all__ = [
    "LATCH_FIELDS",
    "QUARANTINE",
    "BiliLatch",
    "BiliMessage",
    "BiliRefs",
    "BiliSession",
    "BiliView",
    "Fault",
    "hashes_to_id",
    "is_kernel_id",
    "is_session",
    "load_bili",
    "view_session",
]

CLIPS: Final = "emergencyTruncateLatch"
VIEWS: Final = "viewLatch"
LATCH_FIELDS: Final = (VIEWS, CLIPS)  # a clip may be proven by a view, so views come first
QUARANTINE: Final = "latchguardQuarantine"
_FLOOR: Final = "bili:ref-floor"
_KERNEL_ID: Final = re.compile(r"(h_[0-9a-f]{16})(?:_[0-9]+)?", re.ASCII)
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KINDS: Final = {str(kind): kind for kind in Kind}
_ROLES: Final = {str(role): role for role in Role}
_TEXT: Final = (str, type(None))
_TOOL_CALL: Final = str(Kind.TOOL_CALL)


@frozen
class BiliMessage:
    """A stored message and where it stands; `stored` is the JSON object itself."""

    message: Message
    path: Path
    stored: Mapping[str, Any] = field(eq=False, repr=False)


@frozen
class BiliLatch:
    """A stored latch.

    Args:
        container: name of the list or map it stands in.
        path: of its entry.
        ref: the ref it names.
        text: what it shows.
        value: the entry's JSON value: an object, or the text itself in a map.
        keyed: whether it stands in a map, under its ref.
        identity: what it says it was made for, where it says so in the right form.
    """

    container: str
    path: Path
    ref: str
    text: str = field(repr=False)
    value: Any = field(eq=False, repr=False)
    keyed: bool
    identity: Identity | None

    @property
    def is_view(self) -> bool:
        """Whether it is a view; else it is a clip."""
        return self.container == VIEWS

    @property
    def has_identity(self) -> bool:
        """Whether there is a member `identity`, of whatever form."""
        return isinstance(self.value, dict) and "identity" in self.value


@frozen
class Fault:
    """Something of the wrong type, left out of the view."""

    path: Path
    expected: str
    found: str


@frozen
class BiliRefs:
    """The ref map as it is stored; `readable` is False where it is missing or of the wrong type."""

    by_id: Mapping[str, str]
    by_ref: Mapping[str, str]
    readable: bool

    @cached_property
    def known(self) -> frozenset[str]:
        """Every ref that the map knows, the floor's aside: that is a count, no message's ref."""
        return frozenset(self.by_ref) | {ref for key, ref in self.by_id.items() if key != _FLOOR}

    def own_ref(self, message_id: str) -> str | None:
        """Give the ref that *message_id* holds alone, both directions agreeing; None where there is none."""
        ref = self.by_id.get(message_id, BLOCKED)
        return ref if ref_number(ref) and self.by_ref.get(ref) == message_id else None

    def held_ref(self, message_id: str) -> str | None:
        """Give the ref that *message_id* holds alone, or `BLOCKED` where it is protected."""
        return BLOCKED if self.by_id.get(message_id) == BLOCKED else self.own_ref(message_id)


@frozen
class BiliView:
    """A typed view of one session document. Messages are read when they are asked for: most files have no latch.

    Args:
        session: the session's id, None where the document does not say.
        root: path of *record*.
        record: the object that holds `state` and `messages`.
        refs: the ref map.
        latches: views before clips, each in stored order.
        faults: what could not be read of refs and latches.
    """

    session: str | None
    root: Path
    record: Mapping[str, Any] = field(eq=False, repr=False)
    refs: BiliRefs = field(repr=False)
    latches: tuple[BiliLatch, ...]
    faults: tuple[Fault, ...]

    @property
    def state(self) -> Mapping[str, Any]:
        """The state object."""
        state: Mapping[str, Any] = self.record["state"]
        return state

    @cached_property
    def messages(self) -> tuple[BiliMessage, ...]:
        """The messages that may hold a latch: those of `messages`, then what the ref map knows of `pluginSnapshot`.

        Each stands there once. Two that differ under one id are both there, so that neither passes for the holder.
        """
        stored = _distinct(_read_all(self._stored("messages")))
        known = self.refs.by_id.keys() - {entry.message.id for entry in stored}
        extra = _read_all(self._stored("pluginSnapshot")) if known else ()
        return (*stored, *_distinct(entry for entry in extra if entry.message.id in known))

    @cached_property
    def calls(self) -> tuple[BiliMessage, ...]:
        """All tool calls of both lists, copies among them."""
        stored = (*self._stored("messages"), *self._stored("pluginSnapshot"))
        return tuple(_read_all(entry for entry in stored if entry[1].get("contentType") == _TOOL_CALL))

    @property
    def call_texts(self) -> list[str]:
        """What stands as text in tool calls of both lists, read without their messages."""
        return [
            text
            for name in ("messages", "pluginSnapshot")
            for value in _items(self.record.get(name))
            if isinstance(value, dict)
            and value.get("contentType") == _TOOL_CALL
            and isinstance(text := value.get("text"), str)
        ]

    @cached_property
    def unreadable(self) -> frozenset[str]:
        """The ids of messages that have an id and could not be read."""
        stored = (value for _, value in self._stored("messages"))
        return frozenset(
            value["id"] for value in stored if isinstance(value.get("id"), str) and _read_message(value) is None
        )

    @property
    def folded(self) -> Iterator[str]:
        """The texts of `blockContents`."""
        blocks = self.record.get("blockContents")
        for block in blocks.values() if isinstance(blocks, dict) else ():
            for part in block.values() if isinstance(block, dict) else ():
                if isinstance(text := _member(part, "text"), str):
                    yield text

    def holder(self, ref: str) -> Message | None:
        """Give the one message that holds *ref*: both directions of the map say so, and nothing else has its id."""
        message_id = self.refs.by_ref.get(ref, "")
        stored = (self._unique or {}).get(message_id)
        return _read_message(stored) if stored and self.refs.own_ref(message_id) == ref else None

    def messages_near(self, refs: Collection[str], is_near: Callable[[str], bool]) -> list[Message] | None:
        """Give those of `messages` that hold one of *refs*, or whose text *is_near*, read without the others.

        Returns:
            None where ids repeat, or one of them cannot be read: then all of `messages` must be looked at.
        """
        if self._unique is None:
            return None
        by_id, named = self.refs.by_id, {self.refs.by_ref.get(ref) for ref in refs}
        wanted = [
            value
            for message_id, value in self._unique.items()
            if by_id.get(message_id) in refs
            or message_id in named
            or (isinstance(text := value.get("text") or "", str) and is_near(text))
        ]
        near = [message for value in wanted if (message := _read_message(value))]
        return near if len(near) == len(wanted) else None

    @cached_property
    def _unique(self) -> Mapping[str, dict[str, Any]] | None:
        """What `messages` would read, by id; None where ids repeat or what is unreadable has a copy."""
        stored = _with_id(self.record.get("messages"))
        found = {value["id"]: value for value in stored}
        if len(found) < len(stored):
            return None
        copies = [value for value in _with_id(self.record.get("pluginSnapshot")) if value["id"] in self.refs.by_id]
        extra = {value["id"]: value for value in copies}
        if len(extra) < len(copies) or any(_read_message(found[key]) is None for key in extra.keys() & found.keys()):
            return None
        return extra | found

    def _stored(self, name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        for position, value in enumerate(_items(self.record.get(name))):
            if isinstance(value, dict):
                yield (*self.root, name, position), value


@frozen
class BiliSession:
    """A stored session in the core's words.

    Args:
        session: its id, None where the document does not say.
        messages: the stored messages in stored order.
        state: refs and latches; one without an identity is refused in every replay, `no-identity`, and one whose ref
            is no ref is left out: nobody can hold it.
    """

    session: str | None
    messages: tuple[Message, ...]
    state: ConversationState


def is_session(document: Any) -> bool:
    """Say whether a JSON document has the shape of a session of this format."""
    state = _record(document)[1].get("state")
    return isinstance(state, dict) and ("messageRefs" in state or "blocks" in state)


def view_session(document: Any) -> BiliView:
    """Give the typed view of a session document.

    Raises:
        NoSessionError: there is no object `state` with refs or blocks where one belongs, or `messages` is no list.
    """
    root, record = _record(document)
    if not is_session(document):
        path = format_path((*root, "state"))
        raise NoSessionError(path, "a session's state with messageRefs or blocks", cut(record.get("state", document)))
    if not isinstance(record.get("messages"), list | None):
        raise NoSessionError(format_path((*root, "messages")), "a list of messages", cut(record["messages"]))
    faults: list[Fault] = []
    place: Path = (*root, "state")
    return BiliView(
        session=next((key for key in (record.get("id"), document.get("id")) if isinstance(key, str)), None),
        root=root,
        record=record,
        refs=_view_refs(record["state"], place, faults),
        latches=tuple(_view_latches(record["state"], place, faults)),
        faults=tuple(faults),
    )


def load_bili(raw: bytes, limits: Limits | None = None) -> BiliSession:
    """Read a session file into messages and state, to replay and check it with the public functions.

    Args:
        raw: the bytes of the file, framed or not.
        limits: what it may cost.

    Returns:
        The session; `replay(session.messages, session.state)` gives what a reader that checks identities shows.

    Raises:
        SourceError: the bytes hold no session that can be read; the leaf says why.
        DuplicateMessageError: never here, but from `replay` where two messages share an id.
    """
    limits = limits or Limits()
    view = view_session(read_json(unframe(raw, limits).body, limits))
    stored = (entry.message.id for entry in view.messages)
    by_id = {key: ref for key in (*stored, *view.refs.by_id) if (ref := view.refs.held_ref(key))}
    cursor = 1 + max((ref_number(ref) or 0 for ref in view.refs.by_id.values()), default=0)
    messages = {entry.message.id: entry.message for entry in view.messages}
    owners = {ref: messages.get(key) for key, ref in by_id.items() if ref != BLOCKED}
    named = (latch for latch in view.latches if latch.ref == BLOCKED or ref_number(latch.ref))
    latches = [_to_latch(latch, owners.get(latch.ref)) for latch in named]
    return BiliSession(
        session=view.session,
        messages=tuple(entry.message for entry in view.messages),
        state=ConversationState(refs=RefMap.of(by_id, cursor), latches=tuple(sorted(latches, key=latch_order))),
    )


def _to_latch(latch: BiliLatch, holder: Message | None) -> Latch:
    identity = latch.identity or NO_IDENTITY
    name, call = (holder.tool_name, holder.tool_call_id) if holder else (None, None)
    shown = hash_fields(name, call, latch.text)
    if latch.container == CLIPS:
        return EmergencyTruncateLatch(latch.ref, identity, shown, latch.text)
    view = _member(latch.value, "view")
    return ViewLatch(latch.ref, identity, shown, latch.text, view if isinstance(view, str) else "view")


def _record(document: Any) -> tuple[Path, dict[str, Any]]:
    """Give the record inside an envelope, or the flat one; empty where there is neither."""
    if not isinstance(document, dict):
        return (), {}
    payload = document.get("payload")
    return (("payload",), payload) if isinstance(payload, dict) and "state" not in document else ((), document)


def _view_refs(state: Mapping[str, Any], path: Path, faults: list[Fault]) -> BiliRefs:
    stored = state.get("messageRefs")
    maps = [found for name in ("byRaw", "byRef") if isinstance(found := _member(stored, name), dict)]
    if len(maps) < 2:  # noqa: PLR2004  # both directions
        faults.append(Fault((*path, "messageRefs"), "{byRaw: {id: ref}, byRef: {ref: id}}", cut(stored)))
        return BiliRefs({}, {}, readable=False)
    views: list[dict[str, str]] = []
    for name, found in zip(("byRaw", "byRef"), maps, strict=True):
        if set(map(type, found.values())) <= {str}:
            views.append(found)
            continue
        views.append({key: value for key, value in found.items() if isinstance(value, str)})
        for key, value in found.items():
            if not isinstance(value, str):
                faults.append(Fault((*path, "messageRefs", name, key), "a string", cut(value)))
    return BiliRefs(views[0], views[1], readable=True)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _with_id(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in _items(value) if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _read_all(stored: Iterable[tuple[Path, dict[str, Any]]]) -> Iterator[BiliMessage]:
    for path, value in stored:
        if message := _read_message(value):
            yield BiliMessage(message, path, value)


def _read_message(value: dict[str, Any]) -> Message | None:
    get = value.get
    message_id, role, content = get("id"), get("role"), get("contentType")
    text, name, call = get("text"), get("toolName"), get("toolCallId")
    if not (isinstance(message_id, str) and isinstance(content, str) and isinstance(role, str) and role in _ROLES):
        return None
    if not (isinstance(text, _TEXT) and isinstance(name, _TEXT) and isinstance(call, _TEXT)):
        return None
    kind = _KINDS.get(content, Kind.OTHER)
    return Message(message_id, _ROLES[role], kind, text or "", name if kind is Kind.TOOL_CALL else None, call)


def _distinct(entries: Iterable[BiliMessage]) -> list[BiliMessage]:
    """Give each message once, at its first place."""
    listed = list(entries)
    if len({entry.message.id for entry in listed}) == len(listed):
        return listed
    return list({entry.message: entry for entry in reversed(listed)}.values())[::-1]


def _view_latches(state: Mapping[str, Any], path: Path, faults: list[Fault]) -> Iterator[BiliLatch]:
    for name in LATCH_FIELDS:
        stored = state.get(name)
        if isinstance(stored, dict):
            entries = [((*path, name, ref), ref, value) for ref, value in stored.items()]
        elif isinstance(stored, list):
            entries = [((*path, name, position), _member(value, "ref"), value) for position, value in enumerate(stored)]
        else:
            entries = []
            if stored is not None:
                faults.append(Fault((*path, name), "a list of {ref, text} or a map ref -> text", cut(stored)))
        for place, ref, value in entries:
            keyed = isinstance(stored, dict)
            text = value.get("text") if isinstance(value, dict) else value if keyed else None
            if isinstance(ref, str) and isinstance(text, str):
                yield BiliLatch(name, place, ref, text, value, keyed, _read_identity(value))
            else:
                faults.append(Fault(place, "a latch: its ref and its text", cut(value)))


def _read_identity(value: Any) -> Identity | None:
    stored = _member(value, "identity")
    if not isinstance(stored, dict):
        return None
    found, role, kind = stored.get("hash"), stored.get("role"), stored.get("kind")
    if not (isinstance(found, str) and _HASH.fullmatch(found) and isinstance(role, str) and isinstance(kind, str)):
        return None
    return Identity(found, _ROLES[role], _KINDS[kind]) if role in _ROLES and kind in _KINDS else None


def is_kernel_id(message_id: str) -> bool:
    """Say whether an id is one that the kernel derives from content."""
    return _KERNEL_ID.fullmatch(message_id) is not None


def hashes_to_id(stored: Mapping[str, Any], text: str) -> bool:
    """Say whether a stored message with *text* as its text hashes to its own id, twins' suffix aside."""
    match = _KERNEL_ID.fullmatch(stored["id"])
    parts = (*(stored.get(key) or "" for key in ("role", "contentType", "toolCallId", "toolName")), text)
    return match is not None and match[1] == "h_" + sha256(_to_node_utf8("|".join(parts))).hexdigest()[:16]


def _to_node_utf8(text: str) -> bytes:
    """Encode as Node does when it hashes a string: each lone half becomes U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
