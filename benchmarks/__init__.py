"""Measurements: ratios in one run, printed as a table."""
