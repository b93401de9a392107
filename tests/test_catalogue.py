"""The catalogue of rules: its page is in step, its phrases lead to the right rules."""

import json
from pathlib import Path

import pytest

from latchguard.catalogue import RULES, explain_error, find_rule, render_page
from latchguard.egress.profiles import PROFILES

ERRORS = json.loads((Path(__file__).parent / "errors.json").read_bytes())
KNOWN = {rule.slug for rule in RULES}
COVERED = [entry for entry in ERRORS if entry["rules"] and set(entry["rules"]) <= KNOWN]
OTHERS = [entry for entry in ERRORS if not entry["rules"]]


def test_page_is_in_step() -> None:
    """docs/rules.md is what `latchguard rules --markdown` prints."""
    page = Path(__file__).parent.parent / "docs" / "rules.md"
    assert page.read_text() == render_page()


def test_every_rule_says_what_it_is() -> None:
    """Slugs are unique; each docstring says when the rule fires and what its repair is."""
    assert len(KNOWN) == len(RULES)
    assert [rule.slug for rule in RULES if "Fires" not in rule.doc or "Repair:" not in rule.doc] == []


def test_every_demand_is_made_by_a_profile_and_read_by_a_rule() -> None:
    """A rule that fires on demand can be switched on, and no demand is without a rule."""
    demands = {demand.name for profile in PROFILES.values() for demand in profile}
    assert {rule.demand for rule in RULES if rule.demand} <= demands


@pytest.mark.parametrize("entry", COVERED, ids=lambda entry: str(entry["error"])[:40])
def test_error_leads_to_its_rule(entry: dict[str, list[str]]) -> None:
    """The text of a real error names the rule behind it first, also inside a longer message."""
    found = explain_error(f"Error 400: {entry['error']} (request 17)")
    assert [rule.slug for rule in found[: len(entry["rules"])]] == entry["rules"]


@pytest.mark.parametrize("entry", OTHERS, ids=lambda entry: str(entry["error"])[:40])
def test_error_of_another_kind_leads_nowhere(entry: dict[str, str]) -> None:
    """A quota, a rate limit, an overload is no damage of a conversation."""
    assert explain_error(entry["error"]) == []


def test_find_rule_gives_none_for_an_unknown_slug() -> None:
    """A slug that does not exist gives None."""
    assert find_rule("no-such-rule") is None
