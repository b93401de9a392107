import re
from html.parser import HTMLParser
from pathlib import Path

from latchguard.core.findings import Finding, Repair
from latchguard.repair.htmlreport import MAX_BYTES, HtmlReport
from latchguard.repair.looking import Outcome
from latchguard.repair.plans import Plan
from latchguard.repair.report import FileReport, State, Tally
from latchguard.repair.timeline import Row
from tests.repair.command import HEALED, SICK, latchguard

HOSTILE = "<script>alert(1)</script>&\"'\x00\x1b\u202e\ud800\n</pre></style>"


class Page(HTMLParser):
    """Collects the tags, the attributes that could load something, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loading: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag."""
        self.tags.add(tag)
        self.loading += [name for name, _ in attrs if name in ("src", "href", "style") or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        """Take text."""
        self.text += data


def file_report(number: int, findings: tuple[Finding, ...]) -> FileReport:
    plan = Plan("bili", f"session {number}", "0" * 64, (), findings)
    return FileReport(Outcome(f"{number:04}.json", named=True, plan=plan), State.FINDINGS, findings)


def page(reports: list[FileReport], rows: tuple[Row, ...] = ()) -> str:
    pieces: list[str] = []
    report = HtmlReport(pieces.append, command="scan", applying=False, read_rows=lambda _: rows)
    for item in reports:
        report.add(item)
    report.end(Tally(applying=False), status=1, run=None)
    return "".join(pieces)


def test_the_page_tells_what_sat_where_and_from_where_the_cache_is_lost(tmp_path: Path) -> None:
    """Through the command line, of a file that the same run has replaced: its first bytes are read from the copy."""
    (tmp_path / "sick.json").write_bytes(SICK)
    report = tmp_path / "report.html"
    ran = latchguard("repair", "--apply", "--report", report, tmp_path / "sick.json", state=tmp_path / "state")
    assert ran.returncode == 0
    assert (tmp_path / "sick.json").read_bytes() == HEALED
    found = Page(report.read_text())
    for piece in (
        "The provider's cache is lost from message 3 of 34 on",
        "stale-latch",
        "forbidden-kind",
        "clip m00015",
        "clip m00012",
        "the same",
        "takes it back",
    ):
        assert piece in found.text
    assert report.stat().st_mode & 0o777 == 0o600


def test_the_page_is_self_contained_and_runs_nothing() -> None:
    """No script, no link, no image, no handler; what comes from a source is text."""
    finding = Finding(
        HOSTILE, HOSTILE, Repair.LOSSY, applied=False, before={HOSTILE: HOSTILE}, after=HOSTILE, note=HOSTILE,
        tool_name=HOSTILE,
    )  # fmt: skip
    row = Row(HOSTILE, HOSTILE, "user", "text", HOSTILE, "other", (HOSTILE,), (HOSTILE,))
    plan = Plan("bili", HOSTILE, "0" * 64, (), (finding,))
    report = FileReport(Outcome(HOSTILE, named=True, plan=plan), State.FINDINGS, (finding,))
    text = page([report], (row,))
    found = Page(text)
    assert found.tags & {"script", "link", "img", "iframe", "object", "a", "form"} == set()
    assert found.loading == []
    assert "<script>alert(1)</script>" in found.text
    assert re.findall(r"[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_the_200_costliest_sessions_are_shown_and_the_rest_counted() -> None:
    """The dearest repair first, then the most findings, then the order of the files."""
    cheap = Finding("cheap", "$", Repair.LOSSLESS, applied=True)
    dear = Finding("dear", "$", Repair.LOSSY, applied=False)
    reports = [file_report(number, (cheap,)) for number in range(250)]
    reports[100] = file_report(100, (cheap, cheap))
    reports[240] = file_report(240, (dear,))
    text = page(reports)
    shown = re.findall(r"<h2>(\d{4})\.json", text)
    assert shown[:3] == ["0240", "0100", "0000"]
    assert shown == ["0240", "0100", *(f"{number:04}" for number in range(199) if number != 100)]
    assert "50 more sessions stand in the JSON report" in text


def test_the_page_never_grows_beyond_its_limit() -> None:
    """300 sessions of 1,000 findings and messages each, every text long and all of it to be escaped."""
    finding = Finding("&" * 999, "$" + "&" * 999, Repair.LOSSY, applied=False, before="\x00" * 999, after="&" * 999)
    row = Row("&" * 999, "&" * 999, "user", "text", "\x00" * 999, "&" * 999, ("&" * 999,), ("&" * 999,))
    reports = [file_report(number, (finding,) * 1000) for number in range(300)]
    text = page(reports, (row,) * 1000)
    assert 10_000_000 < len(text.encode()) <= MAX_BYTES
    assert text.count("The rest stands in the JSON report.") == 400


def test_the_20_messages_around_a_finding_are_shown() -> None:
    """Ten before and ten after the message that a finding names; gaps are counted."""
    rows = tuple(Row(f"id{number}", None, "user", "text", "t", "t", (), ()) for number in range(100))
    finding = Finding("rule", "$", Repair.DETECT, applied=False, before={"message": "id50"})
    text = page([file_report(1, (finding,))], rows)
    assert re.findall(r"<small>id(\d+)</small>", text) == [str(number) for number in range(40, 61)]
    assert re.findall(r"(\d+) messages without findings", text) == ["40", "39"]
    assert "All 100 messages are shown as before" in text
