"""A store as a kernel: the same laws against whatever has the methods of `SessionStore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from latchguard.core.codec import dump_state
from latchguard.core.errors import LatchError, LatchguardError
from latchguard.core.jsontext import load_json
from latchguard.core.message import Message
from latchguard.core.replaying import Replay
from latchguard.core.restamping import Restamp
from latchguard.core.state import ConversationState
from latchguard.testing.checking import Conformance, check_kernel
from latchguard.testing.core_kernel import report_replay, report_state, to_message
from latchguard.testing.faults import InjectedFault, fail_at_statement
from latchguard.testing.protocol import Json, check_op, needed_capabilities

__all__ = ["FailAt", "Store", "StoreKernel", "check_store"]

# From a store and a count to a block in which its count-th write fails with an `InjectedFault`.
FailAt: TypeAlias = Callable[[Any, int], AbstractContextManager[None]]


class Store(Protocol):
    """The methods of `SessionStore` that the laws are about."""

    def append(self, session: str, messages: Sequence[Message], *, protected: Collection[str] = ()) -> Sequence[str]:
        """Append what is new; give the refs."""

    def latch(self, session: str, message: Message, text: str, *, view: str | None = None) -> None:
        """Show *text* in place of the message's own."""

    def unlatch(self, session: str, message: Message) -> None:
        """Clear the latch that shows."""

    def edit(self, session: str, message: Message) -> None:
        """Put *message* in place of the stored one."""

    def restamp(
        self, session: str, messages: Sequence[Message], *, numbering: Mapping[str, str] | None = None
    ) -> Restamp:
        """Number the refs anew and move every latch."""

    def release(self, drop_id: int) -> None:
        """Put a drop back."""

    def fork(self, session: str, new: str, upto: str | None = None) -> None:
        """Copy a session up to a message."""

    def replay(self, session: str, messages: Sequence[Message] | None = None) -> Replay:
        """Give what the model sees."""

    def messages(self, session: str) -> Sequence[Message]:
        """Give the stored history in its original form."""

    def state(self, session: str) -> ConversationState:
        """Give refs, latches and quarantine."""

    def quarantine(self, session: str) -> Sequence[Any]:
        """Give the drops, each with its `id` and `drop`."""


class StoreKernel:
    """A store as a kernel. A run is a session of its own.

    Args:
        store: the store, its tables ready.
        fail_at: makes the n-th write of a block fail; without it crashes are not tried.
    """

    def __init__(self, store: Store, fail_at: FailAt | None = None) -> None:
        self.store, self.fail_at = store, fail_at
        names = ["unlatch", "view-latch", "protect", "numbering", "fork", "release", "own-output", "replay-report"]
        names += ["versions", "lone-surrogates", "impure"]
        self.capabilities: Sequence[str] = [*names, *(["crash"] if fail_at else [])]
        self._count = 0
        self._session = ""
        self._exists = False
        self._given: set[Message] = set()

    def restart(self) -> None:
        """Go on with a session that is not there yet."""
        self._count += 1
        self._session, self._exists = f"run-{self._count}", False

    def step(self, state: Any, history: Sequence[Json], op: Json) -> Json:
        """Do one op on the store; *state* is not looked at, the store has its own."""
        events: list[Json] = []
        if needed_capabilities(op) - set(self.capabilities):
            events.append({"event": "refused", "reason": "unsupported"})
        elif check_op(history, op) and not _may_be_tried(op):
            events.append({"event": "refused", "reason": "malformed"})
        else:
            try:
                self._change([to_message(entry) for entry in history], op, events)
            except LatchError as error:
                events.append({"event": "refused", "reason": str(error.reason)})
            except LatchguardError as error:
                if not _is_injected(error):
                    events.append({"event": "refused", "reason": error.code})
                else:
                    events.append({"event": "crashed"})
            except InjectedFault:
                events.append({"event": "crashed"})
        view = self._view(history, op, events)  # first: what a replay writes has to be seen
        stored = self.store.state(self._session) if self._exists else ConversationState()
        return {
            "state": {"session": self._session, "state": load_json(dump_state(stored).decode())},
            "view": view,
            "events": [*events, self._report(stored)],
        }

    def _change(self, messages: Sequence[Message], op: Json, events: list[Json]) -> None:
        by_id = {message.id: message for message in messages}
        store, session = self.store, self._session
        match op["op"]:
            case "append":
                new = [by_id[key] for key in op["ids"]]
                store.append(session, new, protected=op.get("protected") or ())
                self._exists = True
            case "latch":
                store.latch(session, by_id[op["id"]], op["text"], view=op.get("view"))
            case "unlatch":
                store.unlatch(session, by_id[op["id"]])
            case "edit":
                store.edit(session, by_id[op["id"]])
            case "release":
                store.release(int(op["drop"]) if op["drop"].isdecimal() else -1)
            case "fork":
                self._count += 1
                store.fork(session, f"run-{self._count}", messages[-1].id if messages else None)
                self._session = f"run-{self._count}"
            case "restamp":
                restamp = partial(store.restamp, session, messages, numbering=op.get("numbering"))
                events.append({"event": "moved", "refs": dict(self._restamp(restamp, op.get("crash")).moved)})
                self._exists = True

    def _restamp(self, restamp: Callable[[], Restamp], crash: int | None) -> Restamp:
        if crash is None or self.fail_at is None:
            return restamp()
        with self.fail_at(self.store, crash):
            return restamp()

    def _view(self, history: Sequence[Json], op: Json, events: list[Json]) -> list[Json]:
        if not self._exists or len({entry["id"] for entry in history}) < len(history):
            events.append({"event": "replayed", "applied": [], "refused": []})
            return list(history)
        replayed = self._replay([to_message(entry) for entry in history], op)
        events.append(report_replay(replayed))
        return [{"id": message.id, "text": message.text} for message in replayed.messages]

    def _replay(self, held: Sequence[Message], op: Json) -> Replay:
        if op.get("op") != "reload":
            self._given.update(held)
            return self.store.replay(self._session, held)
        stored = {message.id: message for message in self.store.messages(self._session)}
        if list(stored.values()) == held:
            return self.store.replay(self._session)
        # A host may hold another form than the stored one: what it was shown. One that it never gave is the store's.
        mixed = [message if stored.get(message.id) in self._given else stored[message.id] for message in held]
        return self.store.replay(self._session, mixed)

    def _report(self, stored: ConversationState) -> Json:
        drops = self.store.quarantine(self._session) if self._exists else ()
        quarantine = [
            {
                "drop": str(entry.id),
                "text": entry.drop.latch.text,
                "view": getattr(entry.drop.latch, "view", None),
                "reason": str(entry.drop.reason),
            }
            for entry in drops
        ]
        return {**report_state(stored), "quarantine": quarantine}


def _may_be_tried(op: Json) -> bool:
    """Whether a malformed op is one that a store can be given: then it is the store that has to refuse it."""
    return op.get("op") == "restamp" and isinstance(op.get("numbering"), dict | None) and op.keys() <= _RESTAMP_FIELDS


_RESTAMP_FIELDS = {"op", "numbering", "crash"}


def _is_injected(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, InjectedFault):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_store(
    factory: Callable[[], Store],
    runs: int = 100,
    steps: int = 30,
    seed: int | None = None,
    trace_dir: str | Path | None = None,
    *,
    fail_at: FailAt | None = None,
) -> Conformance:
    """Hold a store against every law, each run in a session of its own.

    Args:
        factory: gives a store whose tables are ready; called once.
        runs: how many random runs.
        steps: how many turns a run has.
        seed: what to start from; a new one if None.
        trace_dir: where a trace of the failure is written.
        fail_at: makes the n-th write of a block fail. A store that has an `engine` of SQLAlchemy needs none: its
            statements and commits are made to fail.

    Returns:
        What was checked.

    Raises:
        NonConformanceError: a law is broken.
    """
    store = factory()
    engine = getattr(store, "engine", None)
    if fail_at is None and engine is not None:
        fail_at = _fail_statements
    return check_kernel(StoreKernel(store, fail_at), runs, steps, seed, trace_dir)


def _fail_statements(store: Any, count: int) -> AbstractContextManager[None]:
    return fail_at_statement(store.engine, count)
