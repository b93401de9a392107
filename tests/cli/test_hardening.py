"""`latchguard harden`, through the installed command."""

import json
import subprocess
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("latchguard")
POISONED = (
    b'{"seed": 1.10, "messages": [{"role":"assistant", "tool_calls":[{"function":{"name":"sh\\u001b[2J",'
    b'"arguments" : "Summary\\n of work"}}]}]}'
)


def run(*arguments: str, raw: bytes = POISONED) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, "harden", *arguments], input=raw, capture_output=True, check=False)


def test_repaired_body_goes_to_stdout_and_findings_to_stderr() -> None:
    """Only the arguments change; the finding names rule and place, controls escaped; status 0."""
    done = run()
    assert done.returncode == 0
    assert done.stdout.startswith(b'{"seed": 1.10, "messages": [{"role":"assistant", "tool_calls":[{"function":{"name"')
    assert b"Summary" not in done.stdout
    assert b"args-invalid-json at $.messages[0].tool_calls[0].function.arguments" in done.stderr
    assert b"\x1b" not in done.stderr


def test_unrepaired_finding_is_status_3() -> None:
    """What `--allow` forbids stays, and the status says so."""
    done = run("--allow", "lossless")
    assert (done.returncode, done.stdout) == (3, POISONED)


def test_json_report_is_one_versioned_document() -> None:
    """`--json` puts one JSON document on stderr, the raw text in it."""
    report = json.loads(run("--json").stderr)
    assert (report["format"], report["schema"], report["clean"]) == ("latchguard-harden", 1, True)
    assert report["findings"][0]["before"] == "Summary\n of work"


def test_clean_body_is_copied() -> None:
    """A body without fault comes out byte for byte, and nothing is said."""
    raw = b'{"n":1,\n "messages": [ ]}\n'
    done = run(raw=raw)
    assert (done.returncode, done.stdout, done.stderr) == (0, raw, b"")


def test_no_body_is_status_2_and_no_output() -> None:
    """Input that is no JSON body, an undecided wire, an unknown profile: one line, status 2, nothing on stdout."""
    for done in (run(raw=b'{"messages'), run(raw=b"{}"), run("--profile", "nonsense")):
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"Error: ") == 1
