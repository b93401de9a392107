import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from latchguard.testing import (
    NonConformanceError,
    ProtocolError,
    StdioKernel,
    Violation,
    check_kernel,
    checking,
    planted,
)
from latchguard.testing.protocol import CAPABILITIES, OPS, Json, check_reply
from latchguard.testing.run import Run
from latchguard.testing.stdio import load_schema

KERNEL = Path(__file__).parent.parent / "kernels" / "kernel.js"
HELLO = '{"id": 1, "hello": {"protocol": 1, "capabilities": []}}'


def fake(*lines: str, then: str = "") -> list[str]:
    """Give the command of a kernel that answers each request with the next of *lines*, and then runs *then*."""
    code = f"import sys, time\nfor line in {lines!r}:\n    sys.stdin.readline()\n    print(line, flush=True)\n{then}"
    return [sys.executable, "-c", code]


def test_the_javascript_kernel_conforms() -> None:
    """A kernel in another language is held against the same laws."""
    with StdioKernel(["node", str(KERNEL)]) as kernel:
        assert check_kernel(kernel, runs=10, steps=20, seed=1).runs >= 10


@pytest.mark.long
def test_the_javascript_kernel_conforms_for_long() -> None:
    """300 runs of 40 steps over stdio keep every law."""
    with StdioKernel(["node", str(KERNEL)]) as kernel:
        assert check_kernel(kernel, runs=300, steps=40, seed=2).runs >= 300


def test_the_javascript_kernel_with_the_bug_is_found() -> None:
    """The report's own bug, in JavaScript, shrinks to the report's own sequence."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(StdioKernel(["node", str(KERNEL), "--identity-less"]), seed=1)
    assert caught.value.violation.law.name == "not-into-arguments"
    assert [step.op["op"] for step in caught.value.steps] == ["append", "latch", "restamp"]


def served(name: str) -> StdioKernel:
    """Give a planted kernel in a process of its own."""
    factory = f"python:latchguard.testing.planted:{planted.ALL[name].__name__}"
    return StdioKernel([sys.executable, "-m", "latchguard.testing.serving", factory], timeout_s=30)


def test_a_python_kernel_can_be_served() -> None:
    """A kernel in another environment is found out over stdio as it is in process."""
    with pytest.raises(NonConformanceError) as caught:
        check_kernel(served("identity-less"), seed=3)
    assert caught.value.violation.law.name == "not-into-arguments"


@pytest.mark.long
@pytest.mark.parametrize("name", planted.ALL)
def test_a_planted_kernel_is_found_over_stdio(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each planted kernel is found over stdio too, for 9 of 10 seeds, by the machine alone."""
    monkeypatch.setattr(checking, "corpus_paths", list)
    lengths = []
    for seed in range(10):
        try:
            check_kernel(served(name), seed=seed)
        except NonConformanceError as error:
            lengths.append(len(error.steps))
    assert len(lengths) >= 9 or name == "changes-its-input"  # what a process does to its own copy nobody sees
    assert max(lengths, default=0) <= 10


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["/nowhere/kernel"], "not-started"),
        (fake(then="time.sleep(60)"), "timeout"),
        (fake(then="sys.exit(3)"), "crashed"),
        (fake("hello, world"), "garbage"),
        (fake("[]"), "bad-reply"),
        (fake(HELLO.replace("1", "7", 1)), "wrong-id"),
        (fake(HELLO.replace("[]", '["teleport"]')), "bad-reply"),
        (fake(HELLO.replace('"protocol": 1', '"protocol": 2')), "bad-reply"),
    ],
)
def test_what_goes_wrong_at_hello_is_told_apart(argv: list[str], problem: str) -> None:
    """Each way not to speak the protocol has its name."""
    with pytest.raises(ProtocolError) as caught:
        StdioKernel(argv, timeout_s=1)
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("line", "then", "problem"),
    [
        ('{"id": 2, "state": null, "view": {}, "events": []}', "", "bad-reply"),
        ("Traceback", "", "garbage"),
    ],
)
def test_what_goes_wrong_at_a_step_is_told_apart(line: str, then: str, problem: str) -> None:
    """A reply of another shape and a stray print are two things."""
    with StdioKernel(fake(HELLO, line, then=then), timeout_s=1) as kernel:
        with pytest.raises(ProtocolError) as caught:
            kernel.step(None, [], {"op": "reload"})
        assert caught.value.problem == problem


def test_a_step_that_fails_breaks_a_law() -> None:
    """A kernel that answers with an error speaks the protocol, and does not do what it declares."""
    with (
        StdioKernel(fake(HELLO, '{"id": 2, "error": "no"}')) as kernel,
        pytest.raises(Violation) as caught,
    ):
        Run(kernel).step([], {"op": "reload"})
    assert caught.value.law.name == "answers"
    assert caught.value.found == "RuntimeError: no"


def test_the_error_names_what_was_asked() -> None:
    """Where a kernel dies, the op that killed it is in the error."""
    with StdioKernel(fake(HELLO)) as kernel, pytest.raises(ProtocolError) as caught:
        Run(kernel).step([], {"op": "reload"})
    assert caught.value.problem == "crashed"
    assert caught.value.asked == '{"op":"reload"}'


def test_the_end_of_stderr_is_in_the_error() -> None:
    """What a dying kernel says is not lost."""
    with (
        StdioKernel(fake(HELLO, then="sys.stdin.readline(); print('out of memory', file=sys.stderr)")) as kernel,
        pytest.raises(ProtocolError) as caught,
    ):
        kernel.step(None, [], {"op": "reload"})
    assert caught.value.problem == "crashed"
    assert caught.value.stderr == "out of memory"


def test_a_kernel_that_died_is_started_again() -> None:
    """After an error the next step has a new process."""
    kernel = StdioKernel(["node", str(KERNEL)])
    kernel.close()
    with kernel:
        reply = kernel.step(None, [], {"op": "reload"})
    assert reply["view"] == []


REPORT: Json = {"event": "report", "refs": {}, "latches": [], "quarantine": []}
REPLY: Json = {"state": None, "view": [], "events": [REPORT]}
LATCH: Json = {"ref": "m00001", "text": "x"}
REPLAYED: Json = {
    "event": "replayed",
    "applied": [{**LATCH, "holder": "h1"}],
    "refused": [{**LATCH, "reason": "holder-absent", "holder": None}],
}
DROP: Json = {"drop": "d1", "text": "x", "view": None, "reason": "gone"}


@pytest.mark.parametrize(
    ("reply", "good"),
    [
        (REPLY, True),
        ({**REPLY, "view": [{"id": "h1", "text": "x", "more": 1}]}, True),
        ({**REPLY, "events": [{**REPORT, "latches": [LATCH], "quarantine": [DROP]}]}, True),
        ({**REPLY, "events": [{"event": "refused", "reason": "x"}, REPORT, {"event": "noise"}]}, True),
        ({**REPLY, "events": [{"event": "moved", "refs": {"m00001": None}}, REPORT]}, True),
        ({**REPLY, "events": [REPLAYED, REPORT]}, True),
        ({"state": None, "view": []}, False),
        ({**REPLY, "view": [{"id": "h1"}]}, False),
        ({**REPLY, "view": [{"id": 1, "text": ""}]}, False),
        ({**REPLY, "events": []}, False),
        ({**REPLY, "events": [REPORT, REPORT]}, False),
        ({**REPLY, "events": [{"event": "refused"}, REPORT]}, False),
        ({**REPLY, "events": [{"event": "moved"}, REPORT]}, False),
        ({**REPLY, "events": [{"event": "moved", "refs": {"m00001": 1}}, REPORT]}, False),
        ({**REPLY, "events": [{**REPORT, "refs": {"h1": 1}}]}, False),
        ({**REPLY, "events": [{**REPORT, "latches": [{"ref": "m00001"}]}]}, False),
        ({**REPLY, "events": [{**REPORT, "latches": [{**LATCH, "view": 1}]}]}, False),
        ({**REPLY, "events": [{**REPORT, "quarantine": [{**DROP, "reason": None}]}]}, False),
        ({**REPLY, "events": [{"no": "event"}, REPORT]}, False),
        ({**REPLY, "events": [{**REPLAYED, "applied": [LATCH]}, REPORT]}, False),
        ({**REPLY, "events": [{**REPLAYED, "refused": [{**LATCH, "reason": "gone", "holder": 1}]}, REPORT]}, False),
        ({**REPLY, "events": [{"event": "replayed", "applied": []}, REPORT]}, False),
    ],
)
def test_the_quick_check_and_the_schema_agree(reply: Json, *, good: bool) -> None:
    """What the harness takes is what the published schema says."""
    schema = load_schema()
    validator = Draft202012Validator({"$defs": schema["$defs"], "$ref": "#/$defs/step_reply"})
    assert (check_reply(reply) is None) is good
    assert validator.is_valid({"id": 1, **reply}) is good


def test_the_schema_is_one_and_names_what_there_is() -> None:
    """The schema is valid, and lists the very ops and capabilities of the code."""
    schema = load_schema()
    Draft202012Validator.check_schema(schema)
    names = schema["$defs"]["hello_reply"]["properties"]["hello"]["properties"]["capabilities"]["items"]["enum"]
    assert names == list(CAPABILITIES)
    ops = {entry["properties"]["op"]["const"]: set(entry["properties"]) for entry in schema["$defs"]["op"]["oneOf"]}
    assert ops == {name: {"op", *fields} for name, fields in OPS.items()}
    assert json.dumps(schema).isascii()
