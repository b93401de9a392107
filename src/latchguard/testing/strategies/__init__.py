"""Hypothesis strategies: what a host can hold and do."""

from latchguard.testing.strategies.messages import histories, texts, turns

__all__ = ["histories", "texts", "turns"]
