import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from latchguard.testing import (
    CAPABILITIES,
    CoreKernel,
    NonConformanceError,
    ProtocolError,
    check_kernel,
    checking,
    planted,
)
from latchguard.testing.machine import EVENTS
from latchguard.testing.plain import PlainKernel
from latchguard.testing.protocol import Json
from latchguard.testing.traces import load_trace
from tests.testing import broken_cores


@pytest.fixture
def no_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the old failures out: it is the machine that has to find."""
    monkeypatch.setattr(checking, "corpus_paths", list)


QUICK = (
    "identity-less", "latches-not-moved", "hash-without-role", "hash-without-kind", "replay-that-drops",
    "wrong-refusal",
)  # fmt: skip


def test_the_core_conforms() -> None:
    """The real core keeps every law, and the runs get to where it hurts."""
    result = check_kernel(CoreKernel(), runs=40, steps=25, seed=1)
    assert result.runs >= 40
    assert result.steps >= 40 * 20
    assert min(result.events[name] for name in EVENTS) > 0


def test_a_kernel_that_shares_nothing_with_the_core_conforms() -> None:
    """The laws ask for the contract, not for one implementation of it."""
    assert check_kernel(PlainKernel(), runs=20, steps=25, seed=2).seed == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_runs_get_there(seed: int) -> None:
    """Of 300 x 40: 60 % latch, restamp that ref away and replay; 30 % hold twins; 20 % put it on a tool call."""
    result = check_kernel(CoreKernel(), runs=300, steps=40, seed=seed)
    share = {name: result.events[name] / result.runs for name in EVENTS}
    assert share["latch, restamp that moves its ref, replay"] >= 0.6
    assert share["holds twins"] >= 0.3
    assert share["the old ref on a tool call"] >= 0.2


@pytest.mark.long
def test_the_core_conforms_for_long() -> None:
    """3,000 runs of 40 steps keep every law."""
    assert check_kernel(CoreKernel(), runs=3000, steps=40, seed=4).runs >= 3000


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.usefixtures("no_corpus")
def test_a_planted_kernel_is_found(name: str) -> None:
    """A kernel with one bug is found, and the run that shows it is short."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(planted.ALL[name](), seed=0)
    assert len(caught.value.steps) <= 10


@pytest.mark.usefixtures("no_corpus")
@pytest.mark.parametrize("core", broken_cores.ALL)
def test_a_broken_core_is_found(core: type[CoreKernel]) -> None:
    """The real core with one thing broken fails, every time."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(core(), seed=0)
    assert len(caught.value.steps) <= 10


@pytest.mark.long
@pytest.mark.parametrize("name", planted.ALL)
@pytest.mark.usefixtures("no_corpus")
def test_a_planted_kernel_is_found_for_nine_seeds_of_ten(name: str) -> None:
    """Each planted kernel is found within 300 runs for 9 of 10 seeds, and shrinks to at most 10 steps."""
    lengths = []
    for seed in range(10):
        try:
            check_kernel(planted.ALL[name](), seed=seed)
        except NonConformanceError as error:
            lengths.append(len(error.steps))
    assert len(lengths) >= 9
    assert max(lengths) <= 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("no_corpus")
def test_the_reports_own_bug_shrinks_to_the_reports_own_sequence(seed: int) -> None:
    """Without identities: append, latch, restamp, and the clip is in the arguments of a tool call."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(planted.ALL["identity-less"](), seed=seed)
    error = caught.value
    assert error.violation.law.name == "not-into-arguments"
    assert [step.op["op"] for step in error.steps] == ["append", "latch", "restamp"]
    holder = next(message for message in error.steps[-1].history if message["id"] == error.violation.where)
    assert holder["kind"] == "tool-call"


def test_a_failure_is_written_as_a_trace(tmp_path: Path) -> None:
    """The error names the seed and a JSONL file that tells each step and the law."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(planted.ALL["identity-less"](), seed=0, trace_dir=tmp_path / "new")
    path = caught.value.trace_path
    assert path == tmp_path / "new" / "not-into-arguments-0.jsonl"
    header, steps = load_trace(path)
    assert header["trace"] == 1
    assert len(steps) == len(caught.value.steps)
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["violation"]["law"] == "not-into-arguments"


@pytest.mark.usefixtures("no_corpus")
def test_the_same_seed_finds_the_same_run() -> None:
    """A seed is enough to have a failure again."""
    found = []
    for _ in range(2):
        with pytest.raises(NonConformanceError) as caught:
            check_kernel(planted.ALL["twins-merged"](), seed=7)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_old_faults_of_the_core_stay_fixed() -> None:
    """What the core or a store once got wrong passes on it, each step pure; `check_kernel` runs the rest."""
    old = [path for path in checking.corpus_paths() if path.stem.startswith("5")]
    assert [path.stem for path in old] == [
        "50-clip-of-a-clip",
        "51-a-waiting-latch-comes-home",
        "52-growth-past-m99999",
        "53-protected-as-it-was-shown",
        "54-a-protected-message-is-back",
        "55-a-twin-held-as-it-was-shown",
        "56-what-it-is-before-what-was-shown",
        "57-a-fork-knows-an-earlier-output",
    ]
    assert all(checking.check_trace(CoreKernel(), path) for path in old)


def test_the_corpus_comes_first() -> None:
    """What failed before fails at once: the run is the one of the corpus."""
    path = next(path for path in checking.corpus_paths() if path.stem == "01-identity-less")
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(planted.ALL["identity-less"](), seed=99)
    assert [step.op for step in caught.value.steps] == [step.op for step in load_trace(path)[1]]


def test_what_was_not_checked_is_said() -> None:
    """The result lists the capabilities that a kernel does not declare."""
    result = check_kernel(PlainKernel(), runs=1, steps=5, seed=0)
    assert result.unchecked == (f"own-output: {CAPABILITIES['own-output']}",)


class RefusesRetries(PlainKernel):
    """Takes an append once only."""

    def append(self, state: Json, history: Sequence[Json], op: Json, events: list[Json]) -> str | None:
        """Refuse what is known already."""
        if op["ids"] and state["refs"].keys() >= set(op["ids"]):
            return "message-conflict"
        return super().append(state, history, op, events)


def test_a_write_that_is_refused_the_second_time_breaks_a_law() -> None:
    """A retry after a lost answer must be taken, though the first has changed the state."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(RefusesRetries(), seed=0)
    assert caught.value.violation.law.name == "idempotent"
    assert len(caught.value.steps) == 1


class Raises(PlainKernel):
    """Raises where it should answer."""

    def reload(self, state: Json, history: object, op: Json, events: object) -> str | None:
        """Fail."""
        raise RuntimeError("disk")


def test_a_kernel_that_raises_breaks_a_law() -> None:
    """An exception is no answer."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(Raises(), seed=0)
    assert caught.value.violation.law.name == "answers"


class NoReply(PlainKernel):
    """Gives something that is no reply."""

    def step(self, state: object, history: object, op: Json) -> Json:
        """Forget the view."""
        return {"state": None, "events": []}


def test_a_reply_of_another_shape_is_no_violation() -> None:
    """Where the protocol is not spoken nothing is said about the laws."""
    with pytest.raises(ProtocolError) as caught:
        check_kernel(NoReply(), seed=0)
    assert caught.value.problem == "bad-reply"


class Boasts(PlainKernel):
    """Declares what does not exist."""

    capabilities = ("teleport",)


def test_an_unknown_capability_is_refused() -> None:
    """What a kernel declares has to be in the closed list."""
    with pytest.raises(ProtocolError) as caught:
        check_kernel(Boasts(), seed=0)
    assert caught.value.found == "teleport"


class Claims(PlainKernel):
    """Declares a fork and refuses it."""

    def fork(self, state: Json, history: object, op: Json, events: object) -> str:
        """Refuse."""
        return "unsupported"


def test_what_is_declared_has_to_be_done() -> None:
    """Capabilities are checked: a declared op may not be refused."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(Claims(), seed=0)
    assert caught.value.violation.law.name == "capabilities"


class Hides(PlainKernel):
    """Does a fork and does not declare it."""

    capabilities = tuple(name for name in PlainKernel.capabilities if name != "fork")

    def refuse(self, history: object, op: Json) -> str | None:
        """Refuse what makes no sense, and nothing else."""
        done = op.get("op") == "fork" and not self.malformed(history, op)  # type: ignore[arg-type]
        return None if done else super().refuse(history, op)  # type: ignore[arg-type]


def test_what_is_not_declared_has_to_be_refused() -> None:
    """Capabilities are checked the other way too: what is not declared must not happen by chance."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(Hides(), seed=0)
    assert caught.value.violation.law.name == "capabilities"
