"""All rules of all areas in one tuple, their page, and the rules behind a provider's error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from latchguard.core.findings import Rule
from latchguard.egress.hardening import RULES as EGRESS_RULES
from latchguard.egress.profiles import PROFILES
from latchguard.repair.state_rules import RULES as STATE_RULES

__all__ = ["RULES", "explain_error", "find_rule", "render_page"]

RULES: Final[tuple[Rule, ...]] = (*EGRESS_RULES, *STATE_RULES)


def find_rule(slug: str) -> Rule | None:
    """Give the rule called *slug*."""
    return next((rule for rule in RULES if rule.slug == slug), None)


def explain_error(text: str) -> list[Rule]:
    """Give the rules that may stand behind the text of a provider's error, the most likely first.

    A rule is likely where one of its phrases occurs in *text*, whatever the case, quotes and white space; the longer
    the phrase, the likelier. Empty where no phrase occurs.
    """
    plain = _plain(text)
    scores = {rule.slug: max((_score(phrase, plain) for phrase in rule.errors), default=0) for rule in RULES}
    return sorted((rule for rule in RULES if scores[rule.slug]), key=lambda rule: -scores[rule.slug])


def _score(phrase: str, plain: str) -> int:
    parts = [_plain(part) for part in phrase.split("...")]
    return len("".join(parts)) if re.search(".*".join(map(re.escape, parts)), plain) else 0


def _plain(text: str) -> str:
    return " ".join(re.sub("[`'\"\\\\]", "", text).casefold().split())


def render_page() -> str:
    """Give `docs/rules.md`: every rule and every profile, from docstrings and tables."""
    return "\n".join([*_rule_lines(), *_profile_lines()]) + "\n"


def _rule_lines() -> Iterator[str]:
    yield "# Rules"
    yield ""
    yield "Written by `latchguard rules --markdown`; the text of a rule stands beside its check."
    yield "References and public issues are cited as they stood in November 2026, or in the month given."
    area = ""
    for rule in RULES:
        if rule.area != area:
            area = rule.area
            yield ""
            yield f"## {area}"
        yield ""
        yield f"### `{rule.slug}`"
        yield ""
        yield f"Wires: {', '.join(rule.wires) or 'none'}. Dearest repair: {rule.repair}.{_demand_sentence(rule)}"
        yield ""
        yield rule.doc


def _demand_sentence(rule: Rule) -> str:
    if rule.demand is None:
        return ""
    names = [name for name, demands in PROFILES.items() if any(demand.name == rule.demand for demand in demands)]
    return f" Only under {', '.join(f'`{name}`' for name in names)}."


def _profile_lines() -> Iterator[str]:
    yield ""
    yield "# Profiles"
    yield ""
    yield "Several join with commas, in any order. A name without a row makes no demand beyond its wire yet."
    yield ""
    yield f"Names: {', '.join(f'`{name}`' for name in PROFILES)}."
    yield ""
    yield "| profile | demand | value | source | as of | evidence |"
    yield "|---|---|---|---|---|---|"
    for name, demands in PROFILES.items():
        for demand in demands:
            cells = (f"`{name}`", demand.name, str(demand.value), demand.source, demand.date, demand.evidence)
            yield f"| {' | '.join(cells)} |"
