"""Messages in the protocol's form. Pools are small on purpose: equal messages must be common, not a coincidence."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from latchguard.testing.dice import TURN_BYTES, Dice
from latchguard.testing.messages import make_history, make_text
from latchguard.testing.protocol import Json

__all__ = ["histories", "texts", "turns"]

_BYTES_PER_MESSAGE: Final = 4


def texts(*, lone_surrogates: bool = False) -> st.SearchStrategy[str]:
    """Give texts: plain, empty, Unicode, controls, long; now and then any Unicode at all.

    Args:
        lone_surrogates: whether halves of surrogate pairs may be among them.
    """
    return st.binary(max_size=12).map(lambda raw: make_text(Dice(raw), lone_surrogates=lone_surrogates))


def histories(*, max_size: int = 8, lone_surrogates: bool = False) -> st.SearchStrategy[list[Json]]:
    """Give whole histories in the protocol's form, ids unique, with tool pairs and twins.

    Args:
        max_size: how many messages at most.
        lone_surrogates: whether halves of surrogate pairs may be among the texts.
    """
    raw = st.binary(max_size=_BYTES_PER_MESSAGE * max_size + 1)
    return raw.map(lambda raw: make_history(Dice(raw), max_size, lone_surrogates=lone_surrogates))


def turns() -> st.SearchStrategy[bytes]:
    """Give turns of the machine, each as the bytes of its `Dice`."""
    return st.binary(min_size=TURN_BYTES, max_size=TURN_BYTES)
