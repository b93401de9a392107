"""Tests of latchguard.testing."""
