"""Profiles: names, composition, conflicts, and the evidence of each demand."""

import re

import pytest

from latchguard.core.errors import InvalidValueError, ProfileConflictError, UnknownProfileError
from latchguard.egress import profiles
from latchguard.egress.profiles import PROFILES, Demand, resolve_profile

NAMES = (
    "openai openai-chat-id40 azure-openai anthropic anthropic-prefill anthropic-no-prefill anthropic-prefix-bound "
    "anthropic-compat-strict bedrock gemini gemini-3 mistral deepseek-thinking strict-args strict-required strict-ids "
    "strict-content strict-template strict-empty-text no-null-content text-only stored postgres-jsonb"
)


def demand(name: str, value: object) -> Demand:
    return Demand(name, value, "source", "2026-01", "evidence")


def test_names_are_the_contract() -> None:
    """The closed list of names."""
    assert list(PROFILES) == NAMES.split()


def test_none_and_a_name_without_demands_demand_nothing() -> None:
    """No profile is the wire itself."""
    assert dict(resolve_profile(None)) == dict(resolve_profile("openai")) == {}


def test_names_join_in_any_order() -> None:
    """Commas join, blanks around names are nothing."""
    assert resolve_profile("strict-required , strict-args") == resolve_profile("strict-args,strict-required")
    assert set(resolve_profile("strict-args,strict-required")) == {"args-object", "args-required"}


def test_the_stricter_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two numbers the smaller counts, whichever comes first."""
    table = {"a": (demand("id-length", 64),), "b": (demand("id-length", 40),)}
    monkeypatch.setattr(profiles, "PROFILES", table)
    profiles._resolve.cache_clear()
    assert (resolve_profile("a,b"), resolve_profile("b,a")) == ({"id-length": 40}, {"id-length": 40})
    profiles._resolve.cache_clear()


def test_demands_that_differ_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two choices are a conflict that names both profiles and the demand."""
    table = {"a": (demand("prefill", "allowed"),), "b": (demand("prefill", "refused"),)}
    monkeypatch.setattr(profiles, "PROFILES", table)
    profiles._resolve.cache_clear()
    with pytest.raises(ProfileConflictError) as caught:
        resolve_profile("b,a")
    assert (caught.value.first, caught.value.second, caught.value.demand) == ("a", "b", "prefill")
    profiles._resolve.cache_clear()


@pytest.mark.parametrize("name", ["", "strict-args,", "OpenAI", "x" * 500])
def test_unknown_name_is_an_error(name: str) -> None:
    """Names are exact; an empty part is no name."""
    with pytest.raises(UnknownProfileError):
        resolve_profile(name)


def test_a_profile_that_is_no_text_is_an_error() -> None:
    """A list of names is not taken for one."""
    with pytest.raises(InvalidValueError):
        resolve_profile(["openai"])  # type: ignore[arg-type]


def test_every_demand_has_source_date_and_evidence() -> None:
    """What is neither documented nor in a case is not shipped."""
    for made in (entry for entries in PROFILES.values() for entry in entries):
        assert made.source
        assert made.evidence
        assert re.fullmatch(r"20\d\d-\d\d( to 20\d\d-\d\d)?", made.date)
