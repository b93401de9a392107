"""`latchguard rules` and `latchguard explain`, through the installed command."""

import subprocess
import sys
from pathlib import Path

from latchguard.catalogue import RULES, render_page
from latchguard.egress.profiles import PROFILES

COMMAND = Path(sys.executable).with_name("latchguard")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_rules_lists_every_rule() -> None:
    """One line per rule, its slug first."""
    assert [line.split()[0] for line in run("rules").stdout.splitlines()] == [rule.slug for rule in RULES]


def test_rules_lists_every_profile() -> None:
    """One line per profile, its name first."""
    assert [line.split()[0] for line in run("rules", "--profiles").stdout.splitlines()] == list(PROFILES)


def test_rules_prints_the_page() -> None:
    """`--markdown` prints docs/rules.md."""
    assert run("rules", "--markdown").stdout == render_page()


def test_explain_shows_a_rule() -> None:
    """A slug shows its rule alone."""
    done = run("explain", "args-empty")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "args-empty (arguments; openai-chat, openai-responses; dearest repair: lossless; fires"
    )


def test_explain_names_the_rules_behind_an_error_most_likely_first() -> None:
    """The text of an error gives its rules; the one with the longer phrase leads."""
    done = run("explain", "400: Assistant tool call function.arguments must be valid JSON.")
    firsts = [block.split()[0] for block in done.stdout.split("\n\n") if " dearest repair" in block]
    assert firsts == ["args-empty", "args-invalid-json"]


def test_explain_says_when_nothing_is_known() -> None:
    """Another error is status 1 and one line on stderr."""
    done = run("explain", "Rate limit reached for requests\x1b[2J")
    assert (done.returncode, done.stdout) == (1, "")
    assert "\x1b" not in done.stderr
