"""Plans of one session's latches, as values."""

from hypothesis import given
from hypothesis import strategies as st

from latchguard import Identity, Kind, Message, Reason, Role
from latchguard.core.findings import Repair
from latchguard.core.refs import BLOCKED, format_ref
from latchguard.repair.database_tables import RowLatch, RowRefs, SessionKey, StoredSession
from latchguard.repair.latch_plans import LatchPlan, plan_latches
from latchguard.repair.plans import PlanOptions
from tests.migrate.talks import short_clip
from tests.repair.sessions import long_text

TEXTS = [long_text(seed, 900) for seed in range(4)]
KINDS = [(Role.USER, Kind.TEXT), (Role.TOOL, Kind.TOOL_RESULT), (Role.ASSISTANT, Kind.TOOL_CALL)]


def session(texts: list[str], latches: list[tuple[str, bool, str]], **more: object) -> StoredSession:
    messages = [Message(f"m{number}", Role.USER, Kind.TEXT, text) for number, text in enumerate(texts, 1)]
    return of_messages(messages, latches, **more)


def of_messages(messages: list[Message], latches: list[tuple[str, bool, str]], **more: object) -> StoredSession:
    refs = RowRefs.of({message.id: format_ref(number) for number, message in enumerate(messages, 1)})
    rows = [RowLatch((key,), ref, ref, text, is_view) for key, (ref, is_view, text) in enumerate(latches, 1)]
    rows.sort(key=lambda row: not row.is_view)
    return StoredSession(SessionKey(1, "s"), tuple(rows), messages, refs, **more)  # type: ignore[arg-type]


def plan(stored: StoredSession, allow: Repair = Repair.PLACEHOLDER) -> LatchPlan:
    return plan_latches(stored, PlanOptions(allow=allow))


def outcomes(stored: StoredSession) -> list[str]:
    return [step.outcome for step in plan(stored).steps]


def test_a_clip_goes_where_its_text_proves() -> None:
    """Bound to its holder, or moved to the message it is proven to be of."""
    clips = [("m00001", False, short_clip(TEXTS[0])), ("m00003", False, short_clip(TEXTS[1]))]
    found = plan(session(TEXTS[:3], clips))
    assert [(step.outcome, step.message, step.new_ref) for step in found.steps] == [
        ("bound", "m1", "m00001"),
        ("rebound", "m2", "m00002"),
    ]
    assert [finding.rule for finding in found.findings] == ["latch-without-identity", "stale-latch"]


def test_what_nothing_proves_is_dropped() -> None:
    """A database has the whole session: nothing is left in place for want of its message."""
    lost = short_clip(TEXTS[3])
    latches = [("m00001", False, lost), ("m00009", False, lost), ("m00002", True, "a view"), ("m00008", True, "a view")]
    found = {step.key: step.outcome for step in plan(session(TEXTS[:2], latches)).steps}
    assert found == {(1,): "unproven", (2,): "unassigned-ref", (3,): "unproven", (4,): "unassigned-ref"}


def test_one_of_each_class_stays() -> None:
    """The last of a message's clips; an equal one is the later one's double."""
    first, other = short_clip(TEXTS[0]), short_clip(TEXTS[0]).replace("1000 tokens", "1001 tokens")
    assert outcomes(session(TEXTS[:2], [("m00001", False, first), ("m00002", False, other)])) == [
        "superseded",
        "rebound",
    ]
    assert outcomes(session(TEXTS[:2], [("m00001", False, first), ("m00002", False, first)])) == [
        "bound",
        "superseded",
    ]


def test_a_place_of_a_latch_with_an_identity_is_not_to_be_had() -> None:
    """The open one is the older one; the other class has a place of its own."""
    clip = short_clip(TEXTS[0])
    stored = session(TEXTS[:2], [("m00002", False, clip), ("m00002", True, clip)], taken={(False, "m00001")})
    assert {step.key: step.outcome for step in plan(stored).steps} == {(1,): "superseded", (2,): "rebound"}


def test_a_latch_whose_place_is_not_left_waits() -> None:
    """Where dropping is not allowed, what stays holds its place."""
    stored = session(TEXTS[:2], [("m00001", False, short_clip(TEXTS[3])), ("m00002", False, short_clip(TEXTS[0]))])
    assert outcomes(stored) == ["unproven", "rebound"]
    assert plan(stored, Repair.LOSSLESS).steps == ()
    assert [finding.applied for finding in plan(stored, Repair.LOSSLESS).findings] == [False, False]


def test_a_protected_message_takes_no_latch() -> None:
    """`blocked-ref`, whatever ref the latch stands under."""
    message = Message("p", Role.USER, Kind.TEXT, TEXTS[0])
    latch = RowLatch((1,), BLOCKED, None, short_clip(TEXTS[0]), is_view=False)
    stored = StoredSession(SessionKey(1, "s"), (latch,), [message], RowRefs.of({"p": BLOCKED}))
    assert outcomes(stored) == ["blocked-ref"]


@given(
    kinds=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2)), min_size=1, max_size=5),
    marks=st.lists(
        st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 3)), max_size=5, unique_by=lambda m: m[:2]
    ),
)
def test_every_latch_has_one_fate_and_never_a_wrong_message(
    kinds: list[tuple[tuple[Role, Kind], int]], marks: list[tuple[int, bool, int]]
) -> None:
    """I1, I2, I3: one step per latch; what stays has its holder's identity, a place of its own, and no tool call."""
    messages = [Message(f"m{number}", *kind, TEXTS[seed]) for number, (kind, seed) in enumerate(kinds, 1)]
    latches = [(format_ref(number), is_view, short_clip(TEXTS[seed])) for number, is_view, seed in marks]
    found = plan(of_messages(messages, latches))
    assert sorted(step.key for step in found.steps) == [(key,) for key in range(1, len(latches) + 1)]
    places = []
    for step in found.steps:
        assert (step.reason is None) == (step.identity is not None)
        if step.reason is None and step.new_ref is not None:
            holder = messages[int(step.new_ref[1:]) - 1]
            assert step.identity == Identity.of(holder)
            assert holder.kind is not Kind.TOOL_CALL
            assert holder.text == TEXTS[marks[step.key[0] - 1][2]]
            places.append((marks[step.key[0] - 1][1], step.new_ref))
    assert len(set(places)) == len(places)
    assert {step.reason for step in found.steps} <= {None, *Reason}
