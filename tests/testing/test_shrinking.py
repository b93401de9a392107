from collections.abc import Sequence

from latchguard.testing import planted
from latchguard.testing.laws import Violation
from latchguard.testing.messages import make_message
from latchguard.testing.protocol import Json
from latchguard.testing.run import Run, Step
from latchguard.testing.shrinking import shrink_steps
from latchguard.testing.traces import replay_trace


def follow(steps: Sequence[Step]) -> tuple[Sequence[Step], Violation] | None:
    """Make *steps* on a kernel that loses clips on a reload."""
    run = Run(planted.ALL["clip-lost-on-reload"]())
    try:
        replay_trace(run, steps)
    except Violation as error:
        return run.steps, error
    return None


def message(key: str, text: str) -> Json:
    return make_message(key, "user", "text", text, "call")


def test_what_plays_no_part_is_taken_out() -> None:
    """Messages, appends and restamps that the loss of a clip does not need are gone; the run is still a host's."""
    a, b, c = message("a", "one"), message("b", "two"), message("c", "three")
    steps = [
        Step([a], {"op": "append", "ids": ["a"]}),
        Step([a, b], {"op": "append", "ids": ["b"]}),
        Step([a, b], {"op": "latch", "id": "a", "text": "of a", "view": None}),
        Step([b, a], {"op": "restamp"}),
        Step([b, a], {"op": "latch", "id": "b", "text": "of b", "view": None}),
        Step([c, b], {"op": "restamp", "numbering": {"b": "m00007"}}),
        Step([c, b], {"op": "resend"}),
        Step([c, b], {"op": "reload"}),
    ]
    found = follow(steps)
    assert found is not None
    smallest, _ = shrink_steps(*found, follow)
    assert [(step.op, [entry["id"] for entry in step.history]) for step in smallest] == [
        ({"op": "append", "ids": ["b"]}, ["b"]),
        ({"op": "latch", "id": "b", "text": "of b", "view": None}, ["b"]),
        ({"op": "reload"}, ["b"]),
    ]
