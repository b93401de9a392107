"""Repair at rest: look, plan, apply, journal, undo."""
