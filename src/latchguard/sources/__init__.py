"""Formats at rest: where sessions are stored, as bytes in and values out."""
