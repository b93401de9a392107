import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

import pytest

from latchguard.cli import main
from latchguard.repair.planning import plan_bytes
from tests.repair.command import FIXTURES, HEALED, SICK, SOUND, installed_latchguard, latchguard, snapshot

T = TypeVar("T")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Give a directory with a sick session, a sound one, and what is no session."""
    directory = tmp_path / "sessions"
    directory.mkdir()
    (directory / "sick.json").write_bytes(SICK)
    (directory / "sound.json").write_bytes(SOUND)
    (directory / "README").write_text("no session")
    (directory / "package.json").write_text('{"name": "other"}')
    return directory


def test_a_sound_session_is_status_0(sessions: Path, state: Path) -> None:
    """Nothing wrong, nothing said but the count."""
    ran = latchguard("scan", sessions / "sound.json", state=state)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 file: 1 clean\n", "")


def test_findings_are_status_1_and_name_latch_message_and_rule(sessions: Path, state: Path) -> None:
    """Per finding: the rule, what its repair costs, where it is, what stands there and what would."""
    ran = latchguard("scan", sessions, state=state)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "4 files: 1 clean, 1 with findings, 2 skipped (no session)" in ran.stdout
    for piece in (
        "sick.json: bili, session ses_spread: 4 findings",
        "stale-latch (placeholder, would be repaired)",
        "$.payload.state.emergencyTruncateLatch[0] of tool bash",
        "ref m00003",
        "message h_476c15cb996aee8f, kind tool-call",
        "reason forbidden-kind",
        "args-invalid-json",
        "Stop the process that writes these files first",
        "Readers that do not check the identity of a latch",
    ):
        assert piece in ran.stdout


@pytest.mark.parametrize("argv", [("scan",), ("repair",), ("scan", "--json")])
def test_looking_writes_nothing(sessions: Path, state: Path, argv: tuple[str, ...]) -> None:
    """Bytes, modes, inodes, times and the list of names are the same after a scan and a dry run; no run is kept."""
    before = snapshot(sessions)
    assert latchguard(*argv, sessions, state=state).returncode == 1
    assert snapshot(sessions) == before
    assert not state.exists()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "expected a JSON document, found 0 bytes without content"),
        (b"no json", "expected one JSON document, found"),
        (SICK[:1000], "expected the rest of the document, found the end"),
        (b"[1, 2]", "expected a session whose format shows, found list"),
        (b'{"state": 7}', "expected a session's state with messageRefs or blocks, found 7"),
        (b"BILIENC1" + bytes(100), "expected a readable session, found BILIENC1"),
        (b"[" * 100_000 + b"]" * 100_000, "expected at most 1000 levels, found level 1001"),
        (b"\xff\xfe{}", "expected UTF-8, found"),
        (b"BILIZSTD1\x01\x01junk", "expected a zstd stream"),
    ],
)
def test_a_named_file_that_holds_no_session_is_one_line_and_status_1(
    tmp_path: Path, state: Path, raw: bytes, says: str
) -> None:
    """Expected, found, where: on stderr. The file stays, and a repair leaves it, status 3."""
    path = tmp_path / "file.json"
    path.write_bytes(raw)
    for argv, status in ((("scan",), 1), (("repair",), 1), (("repair", "--apply"), 3)):
        ran = latchguard(*argv, path, state=state)
        assert ran.returncode == status
        assert ran.stderr.startswith(f"latchguard: {path}: ")
        assert ran.stderr.count("\n") == 1
        assert says in ran.stderr
    assert path.read_bytes() == raw


def test_what_is_not_there_is_status_10(tmp_path: Path, state: Path) -> None:
    """A path, a glob and a session that are not there."""
    (tmp_path / "sound.json").write_bytes(SOUND)
    missing = latchguard("scan", tmp_path / "no.json", state=state)
    assert (missing.returncode, missing.stderr) == (
        10,
        f"latchguard: {tmp_path}/no.json: expected a file, found nothing there\n",
    )
    assert latchguard("scan", tmp_path / "*.jsonl", state=state).returncode == 10
    session = latchguard("scan", "--session", "other", tmp_path, state=state)
    assert session.returncode == 10
    assert session.stderr == "latchguard: expected session 'other', found none of that name\n"


def test_what_may_not_be_read_is_reported_and_never_status_0(tmp_path: Path, state: Path) -> None:
    """A FIFO does not block; a link is not followed; the highest status wins."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link.json").symlink_to(FIXTURES / "spread.json")
    ran = latchguard("scan", tmp_path, state=state)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        f"latchguard: {tmp_path}/fifo: expected a regular file with one name, found a FIFO; left alone",
        f"latchguard: {tmp_path}/link.json: expected a regular file with one name, found a symbolic link; left alone",
    ]
    assert latchguard("scan", tmp_path, tmp_path / "gone", state=state).returncode == 10


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("--max-file-bytes=1000", "expected at most 1,000 bytes"),
        ("--max-depth=3", "expected at most 3 levels"),
        ("--max-nodes=10", "expected at most 10 JSON values"),
    ],
)
def test_limits_are_options(tmp_path: Path, state: Path, limit: str, says: str) -> None:
    """What is over a limit is reported and left alone."""
    (tmp_path / "sick.json").write_bytes(SICK)
    ran = latchguard("scan", limit, tmp_path / "sick.json", state=state)
    assert ran.returncode == 1
    assert says in ran.stderr


def test_control_characters_of_names_and_texts_do_not_reach_the_terminal(tmp_path: Path, state: Path) -> None:
    """Neither in text nor in JSON nor in errors; a name that is no UTF-8 is shown too."""
    hostile = tmp_path / "a\x1b[2J\n\u202eb.json"
    hostile.write_bytes(SICK.replace(b"ses_spread", b"\\u001b[31m\\u202e"))
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b.json")).write_text("{")
    text, document = (latchguard("scan", *argv, tmp_path, state=state) for argv in ((), ("--json",)))
    assert text.returncode == document.returncode == 1
    for printed in (text.stdout, text.stderr, document.stdout, document.stderr):
        assert "\x1b" not in printed
        assert "\u202e" not in printed
    assert f"{tmp_path}/a\\x1b[2J\\n\\u202eb.json: bili, session" in text.stdout
    assert f"{tmp_path}/\\udcff\\x1b.json: byte 1: expected" in text.stderr
    assert [os.fsencode(file["source"])[-7:] for file in json.loads(document.stdout)["files"]] == [
        b"\xaeb.json",
        b"\xff\x1b.json",
    ]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "Missing argument"),
        (("--only", "no-such-rule", "x"), "no rule is called no-such-rule"),
        (("--report", "x.txt", "x"), "ends in .json or .html"),
        (("--marker", "(", "x"), "expected a regular expression"),
        (("--allow", "detect", "x"), "Invalid value for '--allow'"),
        (("--jobs", "0", "x"), "Invalid value for '--jobs'"),
    ],
)
def test_a_wrong_command_line_is_status_2(state: Path, argv: tuple[str, ...], says: str) -> None:
    """And says what was expected."""
    ran = latchguard("scan", *argv, state=state)
    assert ran.returncode == 2
    assert says in ran.stderr


def test_only_and_skip_choose_rules(sessions: Path, state: Path) -> None:
    """Rules join with commas; what is not looked at is no finding."""
    sick = sessions / "sick.json"
    only = json.loads(latchguard("scan", "--json", "--only", "args-invalid-json", sick, state=state).stdout)
    assert list(only["count"]["rules"]) == ["args-invalid-json"]
    skip = latchguard("scan", "--skip", "args-invalid-json,stale-latch", sick, state=state)
    assert skip.returncode == 0


def test_the_json_document_is_versioned_and_whole(sessions: Path, state: Path) -> None:
    """Clean files are counted; a file with findings has its digest, its session and every field of each finding."""
    ran = latchguard("scan", "--json", sessions, state=state)
    document = json.loads(ran.stdout)
    assert document["latchguard"] == {"document": "scan", "version": 1}
    assert document["status"] == ran.returncode == 1
    assert document["run"] is None
    assert document["count"]["files"] == {
        "clean": 1, "findings": 1, "repaired": 0, "left": 0, "failed": 0, "skipped": 2
    }  # fmt: skip
    (file,) = document["files"]
    assert (file["source"], file["session"], file["omitted"]) == (str(sessions / "sick.json"), "ses_spread", 0)
    assert [finding["rule"] for finding in file["findings"]] == ["stale-latch"] * 3 + ["args-invalid-json"]


def test_at_most_1000_findings_of_a_rule_are_listed_and_all_are_counted(tmp_path: Path, state: Path) -> None:
    """The count says how many there are and how many are listed."""
    for number in range(350):
        (tmp_path / f"{number:03}.json").write_bytes(SICK)
    document = json.loads(latchguard("scan", "--json", tmp_path, state=state).stdout)
    listed = [finding["rule"] for file in document["files"] for finding in file["findings"]]
    assert document["count"]["rules"] == {
        "args-invalid-json": {"count": 350, "listed": 350},
        "stale-latch": {"count": 1050, "listed": 1000},
    }
    assert listed.count("stale-latch") == 1000
    assert sum(file["omitted"] for file in document["files"]) == 50


def test_a_report_file_is_written_whole_and_for_its_owner_alone(sessions: Path, tmp_path: Path, state: Path) -> None:
    """It is the document that --json prints; it holds conversation text."""
    report = tmp_path / "report.json"
    ran = latchguard("scan", "--json", "--report", report, sessions, state=state)
    assert report.read_text() == ran.stdout
    assert report.stat().st_mode & 0o777 == 0o600
    assert latchguard("scan", "--report", tmp_path / "no/report.json", sessions, state=state).returncode == 20


def test_a_report_is_written_over_a_report_and_over_nothing_else(sessions: Path, state: Path) -> None:
    """A session's name given by mistake is a usage error; a report in the directory that is scanned is no source."""
    sick = sessions / "sick.json"
    assert latchguard("scan", "--report", sick, sessions, state=state).returncode == 2
    assert sick.read_bytes() == SICK
    for name in ("report.json", "report.html", "report.json", "report.html"):
        ran = latchguard("scan", "--report", sessions / name, sessions, state=state)
        assert (ran.returncode, ran.stderr) == (1, "")
    assert "6 files: 1 clean, 1 with findings, 4 skipped" in ran.stdout


def test_a_killed_worker_is_status_20(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and what to do."""

    class Pool:
        def __init__(self, *_: object) -> None:
            raise BrokenProcessPool

    monkeypatch.setattr("latchguard.repair.processes.ProcessPoolExecutor", Pool)
    monkeypatch.setattr("sys.argv", ["latchguard", "scan", "--jobs", "2", str(FIXTURES)])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 20
    assert capsys.readouterr().err.endswith("one of 2 processes was killed, out of memory perhaps; try fewer --jobs\n")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="children are found in /proc")
def test_a_killed_scan_leaves_no_process_behind(tmp_path: Path) -> None:
    """Its workers end with it, though they wait for their next task."""
    for number in range(500):
        (tmp_path / f"{number}.json").write_bytes(SICK)
    command = [sys.executable, "-m", "latchguard", "scan", "--jobs", "2", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as scan:
        assert scan.stdout
        scan.stdout.readline()  # a first file was looked at: the workers are at work
        workers = [pid for pid in children(scan.pid) if b"spawn_main" in command_line(pid)]
        scan.kill()
    assert len(workers) == 2
    wait_for(lambda: not any(b"spawn_main" in command_line(pid) for pid in workers))


def children(parent: int) -> list[int]:
    return list(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for(condition: Callable[[], T]) -> T:
    """Give what *condition* gives as soon as it is true, within 20 seconds."""
    end = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_processes_and_hash_seeds_change_nothing(sessions: Path, state: Path) -> None:
    """Two seeds, one process or three, errors too: the same bytes on stdout."""
    for number in range(40):
        (sessions / f"{number:02}.json").write_bytes(SICK if number % 3 else HEALED)
    (sessions / "link.json").symlink_to(sessions / "sick.json")
    first = installed_latchguard("scan", "--json", sessions, sessions / "gone*", state=state, hash_seed="1")
    jobs = ("--jobs", "3")
    second = installed_latchguard("scan", "--json", *jobs, sessions, sessions / "gone*", state=state, hash_seed="2")
    assert first.stdout == second.stdout
    assert first.returncode == second.returncode == 10
    assert '"source-refused"' in first.stdout


@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_and_not_in_a_pipe(tmp_path: Path, *, on_terminal: bool) -> None:
    """On stderr; stdout is the same."""
    for number in range(1500):
        (tmp_path / f"{number}.json").write_bytes(SOUND)
    reader, writer = pty.openpty() if on_terminal else os.pipe()
    command = [sys.executable, "-m", "latchguard", "scan", str(tmp_path)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=writer, check=True).stdout
    os.close(writer)
    told = os.read(reader, 100_000) if on_terminal else b"".join(iter(lambda: os.read(reader, 1000), b""))
    os.close(reader)
    assert printed == b"1,500 files: 1,500 clean\n"
    assert (b" files" in told) is on_terminal


def test_one_file_that_trips_a_bug_does_not_hide_the_others(
    sessions: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 70, its traceback, and the findings of the rest."""

    def trip(raw: bytes, **options: object) -> object:
        return 1 // 0 if raw == SOUND else plan_bytes(raw, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("latchguard.repair.looking.plan_bytes", trip)
    monkeypatch.setattr("sys.argv", ["latchguard", "scan", str(sessions)])
    with pytest.raises(SystemExit) as caught:
        main.main()
    printed = capsys.readouterr()
    assert caught.value.code == 70
    assert "ZeroDivisionError" in printed.err
    assert "sick.json: bili" in printed.out


def test_messages_that_are_no_list_are_no_clean_session(sessions: Path, state: Path) -> None:
    """What should stand where, and what does; the file is left, and is a finding."""
    raw = json.dumps({**json.loads(SOUND), "messages": 5})
    source = sessions / "odd.json"
    source.write_text(raw)
    ran = latchguard("repair", "--apply", source, state=state)
    assert (ran.returncode, source.read_text()) == (3, raw)
    assert ran.stderr == f"latchguard: {source}: $.messages: expected a list of messages, found 5\n"


def test_a_reader_that_goes_away_ends_the_command_quietly(sessions: Path) -> None:
    """As by the system's own hand: SIGPIPE, and not a word."""
    argv = [sys.executable, "-m", "latchguard", "scan", str(sessions)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdout.close()
        said = ran.stderr.read()
    assert (ran.returncode, said) == (-signal.SIGPIPE, b"")


def test_an_interrupt_is_said_and_leaves_no_part_of_a_report(
    sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 130, one line, and neither the report nor a piece of it."""

    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    report = tmp_path / "report.json"
    monkeypatch.setattr("latchguard.repair.looking.plan_bytes", interrupt)
    monkeypatch.setattr(sys, "argv", ["latchguard", "scan", "--report", str(report), str(sessions)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip() == "latchguard: interrupted; nothing is half done"
    assert list(tmp_path.glob("report*")) == []


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_no_color_means_no_colour(sessions: Path, value: str, coloured: bool) -> None:
    """On a terminal the name of a file is bold, unless the environment asks for none."""
    reader, writer = pty.openpty()
    argv = [sys.executable, "-m", "latchguard", "scan", str(sessions / "sick.json")]
    with subprocess.Popen(argv, stdout=writer, env={**os.environ, "NO_COLOR": value}) as ran:
        os.close(writer)
        shown = os.read(reader, 4096)
        ran.terminate()
    os.close(reader)
    assert (b"\x1b[1m" in shown) is coloured


def test_a_known_format_that_is_not_repaired_is_said_to_be_left(tmp_path: Path, state: Path) -> None:
    """A rollout of a coding agent is named for what it is; it is a finding, and untouched."""
    source = tmp_path / "rollout.jsonl"
    raw = b'{"type":"session_meta","payload":{}}\n{"type":"response_item","payload":{}}\n'
    source.write_bytes(raw)
    ran = latchguard("repair", "--apply", source, state=state)
    assert (ran.returncode, source.read_bytes()) == (3, raw)
    told = "found codex-jsonl, which is known, but not repaired here; reported and left alone"
    assert ran.stderr == f"latchguard: {source}: $: {told}\n"
