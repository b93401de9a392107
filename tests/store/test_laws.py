"""The store is the core: whatever is done to both, states, histories and replays are equal."""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from latchguard import ConversationState, Kind, Message, Replay, Role, SessionStore, replay, restamp
from latchguard.core.errors import LatchguardError, UnknownMessageError
from latchguard.core.refs import RefMap

SESSIONS = count()
IDS = [f"id{number}" for number in range(6)]
TEXTS = ["x", "y", "a long text", "nul \0 half \ud800", ""]
CONTENT = st.tuples(
    st.sampled_from([Role.USER, Role.TOOL]),
    st.sampled_from([Kind.TEXT, Kind.TOOL_RESULT, Kind.TOOL_CALL]),
    st.sampled_from(TEXTS),
)
APPEND = st.tuples(st.just("append"), st.lists(st.sampled_from(IDS), unique=True, max_size=4), st.sampled_from(IDS))
LATCH = st.tuples(st.just("latch"), st.sampled_from(IDS), st.sampled_from(TEXTS), st.sampled_from([None, "v", "w"]))
RESTAMP = st.tuples(
    st.just("restamp"),
    st.none() | st.permutations(IDS),
    st.integers(0, 6),
    st.none() | st.sampled_from(["", *IDS]),
    st.none() | st.tuples(st.sampled_from(IDS), CONTENT),
    st.booleans(),
)
OPERATIONS = st.one_of(
    APPEND,
    LATCH,
    LATCH,
    st.tuples(st.just("unlatch"), st.sampled_from(IDS)),
    st.tuples(st.just("edit"), st.sampled_from(IDS), CONTENT),
    st.tuples(st.just("resend")),
    RESTAMP,
)


def outcome(write: Callable[[], object]) -> type | None:
    """Give the class of the error that a write ends in, None where it does not."""
    try:
        write()
    except LatchguardError as error:
        return type(error)
    return None


class Both:
    """A session of the store, and what the core says it must be."""

    def __init__(self, store: SessionStore, contents: dict[str, Message]) -> None:
        self.store, self.session, self.contents = store, f"session {next(SESSIONS)}", contents
        self.state = ConversationState()
        self.stored: set[str] = set()
        self.present: set[str] = set()
        store.append(self.session, [])

    @property
    def history(self) -> list[Message]:
        """The messages in the history, in order."""
        return [self.contents[key] for key in self.state.refs if key in self.present]

    def append(self, message_ids: list[str], protected: str) -> None:
        """Append to both."""
        blocked = [protected] if protected in {*message_ids, *self.state.refs} else []
        if protected in message_ids:
            self.contents[protected] = self.shown(protected)
        given_messages = [self.contents[key] for key in message_ids]
        refs = self.store.append(self.session, given_messages, protected=blocked)
        state = self.state.assign(given_messages, protected=blocked)
        self.state = state if state is not self.state else self.counted(message_ids, epochs=0)
        # The core has a protected message at its old place all the while; what comes stands at the end of a history.
        comes = [key for key in message_ids if key not in self.present]
        order = [*(key for key in self.state.refs if key not in comes), *dict.fromkeys(comes)]
        by_id = {key: self.state.refs[key] for key in order}
        self.state = evolve(self.state, refs=RefMap.of(by_id, self.state.refs.cursor))
        assert refs == [self.state.refs[key] for key in message_ids]
        self.stored |= set(message_ids)
        self.present |= set(message_ids)

    def shown(self, message_id: str) -> Message:
        """Give a message as the host holds it who keeps what it was shown: of one that gets protected, all there is."""
        return replay([self.contents[message_id]], self.state).messages[0]

    def is_output(self, message: Message) -> bool:
        """Say whether a latch takes both *message* and the stored one: it is that one, as it was shown."""
        both = [replay([one], self.state).refused for one in (message, self.contents[message.id])]
        refused = {outcome.latch for outcomes in both for outcome in outcomes}
        held = [latch for latch in self.state.latches if latch.ref == self.state.refs.get(message.id)]
        return any(latch not in refused for latch in held)

    def counted(self, comes: Iterable[str], leaves: Iterable[str] = (), *, epochs: int) -> ConversationState:
        """Count a write of which the core knows nothing: protected messages leave the history or are back."""
        if self.present.issuperset(comes) and self.present.isdisjoint(leaves):
            return self.state
        return evolve(self.state, version=self.state.version + 1, epoch=self.state.epoch + epochs)

    def latch(self, message_id: str, text: str, view: str | None) -> None:
        """Latch on both."""
        message = self.contents[message_id]
        found = outcome(lambda: self.store.latch(self.session, message, text, view=view))
        self.compare(message_id, found, lambda: self.state.latch(message, text, view=view))

    def unlatch(self, message_id: str) -> None:
        """Clear on both."""
        message = self.contents[message_id]
        found = outcome(lambda: self.store.unlatch(self.session, message))
        self.compare(message_id, found, lambda: self.state.unlatch(message))

    def compare(self, message_id: str, found: type | None, change: Callable[[], ConversationState]) -> None:
        """Do *change* on the core, whose outcome must be what was *found*."""
        if message_id not in self.stored:
            assert found is UnknownMessageError
            return
        assert found is outcome(lambda: self.take(change()))

    def take(self, state: ConversationState) -> None:
        """Keep what the core made."""
        self.state = state

    def edit(self, message_id: str, content: tuple[Role, Kind, str]) -> None:
        """Edit in both."""
        if message_id in self.present:
            self.contents[message_id] = Message(message_id, *content)
            self.store.edit(self.session, self.contents[message_id])
            self.state = self.state.assign([self.contents[message_id]])

    def resend(self) -> None:
        """What the model saw comes back: our own output is no change."""
        self.store.append(self.session, self.replayed().messages)

    def replayed(self) -> Replay:
        """Replay the stored history, or the host's where no texts are stored."""
        return self.store.replay(self.session, None if self.store.keep_texts else self.history)

    def restamp(self, order: list[str] | None, size: int, ledger: str | None, change: Any, as_shown: bool) -> None:
        """Restamp both, perhaps by a *ledger* that protects a message, perhaps with one message changed meanwhile.

        The store has the messages in their own form, so the core is given those where the host holds our output.
        """
        given = None if order is None else {key: self.contents[key] for key in order[:size]}
        if given is not None and change is not None and change[0] in given:
            given[change[0]] = Message(change[0], *change[1])
        if given is not None and as_shown:
            given = {message.id: message for message in replay(list(given.values()), self.state).messages}
        numbering = None if ledger is None else {key: f"m{10 - place:05d}" for place, key in enumerate(IDS[:size])}
        if numbering is not None and ledger:
            numbering[ledger] = "BLOCKED"
        self.contents |= {key: one for key, one in (given or {}).items() if key == ledger or not self.is_output(one)}
        handed = None if given is None else list(given.values())
        mine = self.store.restamp(self.session, handed, numbering=numbering)
        whole = self.history if given is None else [self.contents[key] for key in given]
        theirs = restamp(self.state, whole, numbering=numbering)
        if theirs.state is self.state and order is not None:
            theirs = evolve(theirs, state=self.counted(order[:size], order[size:], epochs=1))
        assert mine == theirs
        self.state = theirs.state
        if order is not None:
            self.stored |= set(order[:size])
            self.present = set(order[:size])

    def check(self) -> None:
        """Compare all that can be read."""
        assert self.store.state(self.session) == self.state
        if self.store.keep_texts:
            assert self.store.messages(self.session) == self.history
        mine, theirs = self.replayed(), replay(self.history, self.state)
        assert list(mine.messages) == list(theirs.messages)
        assert (mine.applied, mine.refused) == (theirs.applied, theirs.refused)
        assert self.store.replay(self.session, self.history[1:]) == replay(self.history[1:], self.state)
        event(f"latches in force: {len(self.state.latches)}")


RUNS = {
    "contents": st.lists(CONTENT, min_size=len(IDS), max_size=len(IDS)),
    "operations": st.lists(OPERATIONS, min_size=1, max_size=12),
}
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def run(store: SessionStore, contents: list[tuple[Role, Kind, str]], operations: list[Any]) -> None:
    both = Both(store, {key: Message(key, *content) for key, content in zip(IDS, contents, strict=True)})
    for name, *arguments in [("append", IDS[:4], ""), *operations]:
        getattr(both, name)(*arguments)
        both.check()


# A protected message that a restamp left out comes back after another one.
COMES_BACK: list[Any] = [
    *[("append", [], "id3"), ("restamp", IDS, 0, None, None, False)],
    ("append", ["id0", "id3"], "id0"),
]
# Held as they were shown: one that an append protects, one that a restamp protects, one that stays as it is.
AS_SHOWN: list[Any] = [
    *[("latch", "id0", "y", None), ("append", ["id0"], "id0")],
    *[
        ("latch", "id1", "y", None),
        ("latch", "id2", "a long text", None),
        ("restamp", [*IDS[1:], "id0"], 6, "id1", None, True),
    ],
    ("restamp", [*IDS[1:], "id0"], 5, None, None, False),
]


@example(contents=[(Role.USER, Kind.TEXT, "x")] * 6, operations=COMES_BACK)
@example(contents=[(Role.USER, Kind.TEXT, "x")] * 6, operations=AS_SHOWN)
@given(**RUNS)
@settings(QUIET, max_examples=25)
def test_the_store_does_what_the_core_does(shared_store: SessionStore, contents: Any, operations: Any) -> None:
    """After every operation state, history and replay are those that the core gives."""
    run(shared_store, contents, operations)


@given(**RUNS)
@settings(QUIET, max_examples=15)
def test_a_store_without_texts_does_the_same(shared_store: SessionStore, contents: Any, operations: Any) -> None:
    """The host's history goes in where the stored one would."""
    run(SessionStore(shared_store.engine, keep_texts=False), contents, operations)


@pytest.mark.long
@given(**RUNS)
@settings(QUIET, max_examples=600)
def test_the_store_does_what_the_core_does_for_long(shared_store: SessionStore, contents: Any, operations: Any) -> None:
    """The same, many times."""
    run(shared_store, contents, operations)


@pytest.mark.long
@given(**RUNS)
@settings(QUIET, max_examples=600)
def test_a_store_without_texts_does_the_same_for_long(
    shared_store: SessionStore, contents: Any, operations: Any
) -> None:
    """The same, many times."""
    run(SessionStore(shared_store.engine, keep_texts=False), contents, operations)
