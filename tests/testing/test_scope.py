import pytest

from latchguard.testing import CoreKernel, NonConformanceError, check_small_scope, planted, scope

FOUND = ("identity-less", "latches-not-moved", "hash-without-role", "hash-without-kind", "twins-merged")


def test_the_core_passes_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every history of at most 2 messages, each with its latches and restamps, keeps every law."""
    monkeypatch.setattr(scope, "_MOST_MESSAGES", 2)
    assert check_small_scope(CoreKernel()) == 174


@pytest.mark.long
def test_the_core_passes_the_small_scope() -> None:
    """Every history of at most 4 messages over 3 identities, 2 latches, every two-step restamp."""
    assert check_small_scope(CoreKernel()) > 50_000


@pytest.mark.parametrize("name", FOUND)
def test_a_broken_binding_is_in_the_small_scope(name: str) -> None:
    """What binds a latch to the wrong message does so with few messages already."""
    with pytest.raises(NonConformanceError) as caught:
        check_small_scope(planted.ALL[name]())
    assert len(caught.value.steps) <= 5
