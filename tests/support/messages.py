"""Messages of each kind, for tests that care about nothing but id, kind and text."""

from latchguard import Kind, Message, Role


def note(message_id: str, text: str) -> Message:
    """Give a user's text message."""
    return Message(message_id, Role.USER, Kind.TEXT, text)


def result(message_id: str, text: str, call_id: str = "call_1") -> Message:
    """Give a tool result."""
    return Message(message_id, Role.TOOL, Kind.TOOL_RESULT, text, tool_call_id=call_id)


def call(message_id: str, text: str = '{"path":"a"}', name: str = "read", call_id: str = "call_1") -> Message:
    """Give an assistant's tool call."""
    return Message(message_id, Role.ASSISTANT, Kind.TOOL_CALL, text, name, call_id)
