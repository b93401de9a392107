"""Request bodies at rest: found and repaired by the rules of the exit, byte for byte but for what they change."""

import json
from pathlib import Path
from typing import Any

import pytest

from latchguard import PLACEHOLDER_ARGUMENTS, LatchguardError
from latchguard.core.findings import Repair
from latchguard.repair.planning import apply_plan, plan_bytes
from latchguard.repair.plans import PlanOptions
from tests.repair.command import latchguard

POISON = "Summary so far: all is fine."


def chat(arguments: str = POISON) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": arguments}}
    return [
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    ]


def responses(arguments: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": arguments},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


def anthropic(arguments: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": arguments}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]},
    ]


def gemini(arguments: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "parts": [{"text": "Go on."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": arguments}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "ok"}}}]},
    ]


PLACEHOLDER = json.loads(PLACEHOLDER_ARGUMENTS)
WIRES = [
    (
        "openai-chat",
        {"model": "gpt-5", "messages": chat()},
        {"model": "gpt-5", "messages": chat(PLACEHOLDER_ARGUMENTS)},
    ),
    ("openai-responses", {"input": responses(POISON)}, {"input": responses(PLACEHOLDER_ARGUMENTS)}),
    ("anthropic", {"messages": anthropic(POISON)}, {"messages": anthropic(PLACEHOLDER)}),
    ("gemini", {"contents": gemini(POISON)}, {"contents": gemini(PLACEHOLDER)}),
]


def repaired(raw: bytes, **options: Any) -> bytes:
    """Give the bytes after the repair; it must be the last one."""
    chosen = PlanOptions(**options)
    new = apply_plan(raw, plan_bytes(raw, options=chosen))
    assert plan_bytes(new, options=chosen).steps == ()
    return new


@pytest.mark.parametrize(("wire", "sick", "sound"), WIRES)
def test_a_poisoned_body_is_repaired(wire: str, sick: Any, sound: Any) -> None:
    """Each wire is told from its shape, and its invalid arguments become the placeholder."""
    raw = json.dumps(sick).encode()
    assert plan_bytes(raw).format == wire
    assert json.loads(repaired(raw)) == sound
    assert plan_bytes(json.dumps(sound).encode()).findings == ()


def test_every_other_byte_of_a_body_is_copied() -> None:
    """White space, a byte-order mark and the spelling of numbers stay."""
    raw = b'\xef\xbb\xbf{ "top" : 1.0e0 ,\n "messages" : ' + json.dumps(chat(), indent=1).encode() + b" }\n"
    poison, placeholder = (json.dumps(text).encode() for text in (POISON, PLACEHOLDER_ARGUMENTS))
    assert repaired(raw) == raw.replace(poison, placeholder)


def test_of_json_lines_only_the_poisoned_bodies_change() -> None:
    """Each line is a body; a finding's path begins with its line."""
    sound, sick = (json.dumps({"messages": chat(arguments)}).encode() for arguments in ("{}", POISON))
    raw = b"\n".join([sound, b"  " + sick + b" \r", b"", sound, b""])
    plan = plan_bytes(raw)
    assert [finding.path for finding in plan.findings] == ["$[1].messages[1].tool_calls[0].function.arguments"]
    poison, placeholder = (json.dumps(text).encode() for text in (POISON, PLACEHOLDER_ARGUMENTS))
    assert repaired(raw) == raw.replace(poison, placeholder)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_that_are_messages_are_one_history(end: bytes) -> None:
    """A call is answered lines later; one without an answer gets a line of its own, next to it."""
    user, call, result = (json.dumps(message).encode() + end for message in chat("{}"))
    assert plan_bytes(user + call + result).findings == ()
    fixed = repaired(user + end + call + user)
    added = fixed.removeprefix(user + end + call).removesuffix(user)
    assert json.loads(added)["tool_call_id"] == "call_1"
    assert added.endswith(end)


def test_a_call_that_waits_for_its_result_is_no_finding() -> None:
    """At rest a history may end with an open call."""
    assert plan_bytes(json.dumps({"messages": chat("{}")[:2]}).encode()).findings == ()


def test_options_bound_what_is_looked_at_and_made() -> None:
    """`allow`, `only`, `skip` and `profile` act on bodies as on sessions."""
    raw = json.dumps({"messages": chat()}).encode()
    assert repaired(raw, allow=Repair.LOSSLESS) == raw
    assert plan_bytes(raw, options=PlanOptions(skip=frozenset({"args-invalid-json"}))).findings == ()
    assert plan_bytes(raw, options=PlanOptions(only=frozenset({"orphan-result"}))).findings == ()
    stored = json.dumps({"messages": anthropic({})}).encode()
    assert plan_bytes(stored).findings == ()
    asked = plan_bytes(stored, options=PlanOptions(only=frozenset({"tools-missing-for-history"})))
    assert [finding.path for finding in asked.findings] == ["$.tools"]
    double = json.dumps({"messages": chat('"{}"')}).encode()
    assert repaired(double) == double
    assert json.loads(repaired(double, profile="strict-args"))["messages"] == chat("{}")


def test_a_line_that_cannot_be_read_leaves_the_file() -> None:
    """The place names the line; nothing is guessed about the rest."""
    line = json.dumps({"messages": chat()}).encode()
    with pytest.raises(LatchguardError) as caught:
        plan_bytes(line + b"\n" + line[:40] + b"\n")
    assert (caught.value.code, caught.value.where) == ("half-written", "line 2, byte 40")  # type: ignore[attr-defined]


def test_a_changed_file_is_not_repaired_by_an_old_plan() -> None:
    """The plan holds for the very bytes that it was made of."""
    raw = json.dumps({"messages": chat()}).encode()
    with pytest.raises(LatchguardError) as caught:
        apply_plan(raw + b"\n", plan_bytes(raw))
    assert caught.value.code == "source-changed"


def test_bodies_are_repaired_and_undone_as_files_are(tmp_path: Path) -> None:
    """Dry run, repair, a clean scan, undo: byte for byte what it was."""
    directory, state = tmp_path / "bodies", tmp_path / "state"
    directory.mkdir()
    (directory / "a.json").write_bytes(json.dumps({"messages": chat()}).encode())
    (directory / "b.jsonl").write_bytes(b"".join(json.dumps(message).encode() + b"\n" for message in chat()))
    (directory / "package.json").write_text('{"items": [], "input": "main.py"}')
    before = {path: path.read_bytes() for path in directory.iterdir()}
    assert latchguard("repair", directory, state=state).returncode == 1
    ran = latchguard("repair", "--apply", directory, state=state)
    assert ran.returncode == 0
    assert "3 files: 2 repaired, 1 skipped (no session)" in ran.stdout
    assert latchguard("scan", directory, state=state).returncode == 0
    run = latchguard("runs", state=state).stdout.split()[0]
    assert latchguard("undo", run, state=state).returncode == 0
    assert {path: path.read_bytes() for path in directory.iterdir() if ".latchguard-" not in path.name} == before


def test_a_repair_may_take_away_what_showed_the_format(tmp_path: Path) -> None:
    """Without its orphaned result a history reads the same on two wires; it is repaired and checked all the same."""
    source = tmp_path / "a.json"
    source.write_text(json.dumps({"messages": [chat()[0], chat()[2]]}))
    ran = latchguard("repair", "--apply", "--allow", "lossy", source, state=tmp_path / "state")
    assert (ran.returncode, json.loads(source.read_bytes())) == (0, {"messages": chat()[:1]})


def test_a_profile_that_does_not_exist_is_usage(tmp_path: Path) -> None:
    """Status 2, as for a rule that does not exist."""
    assert latchguard("scan", "--profile", "nobody", tmp_path, state=tmp_path / "state").returncode == 2
