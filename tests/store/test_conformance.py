"""The laws of the harness hold for the store, on the three databases."""

import pytest

from latchguard import SessionStore
from latchguard.testing import check_store


def test_the_store_conforms(store: SessionStore) -> None:
    """Few runs here; what the harness finds in broken stores is tested with the harness."""
    check_store(lambda: store, runs=6, steps=15, seed=1)


@pytest.mark.long
def test_the_store_conforms_for_long(store: SessionStore) -> None:
    """The same, many runs."""
    check_store(lambda: store, runs=100, steps=30, seed=2)
