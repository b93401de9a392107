"""Conversations in a database: refs, latches, quarantine and bodies beside the host's own tables."""
