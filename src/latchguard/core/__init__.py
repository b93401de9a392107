"""The pure core: values in, values out. No I/O, clock, logger, database or environment."""
