"""Wires: request bodies of the providers as messages, and back."""
