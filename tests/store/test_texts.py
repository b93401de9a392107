"""What a text may hold: it comes back as it was, or is refused before anything is written."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latchguard import Kind, Message, Role, SessionStore
from latchguard.core.errors import InvalidValueError, SessionNotFoundError
from latchguard.store.texts import from_stored, to_stored

CHARACTERS = st.characters(categories=None)  # surrogates too
ODD = {
    "nul": "a\0b\0",
    "lone halves": "\ud800 and \udc00",
    "four bytes": "\U0001f600\U0010ffff",
    "the mark": "\x1f\\0000",
    "64 KiB and more": "\u00e4\U0001f600" * 40_000,
    "line ends": "a\r\nb\u2028c\x85",
    "noncharacters": "\uffff\ufffe\ufdd0",
    "spaces at the end": "a  \t ",
    "empty": "",
}
IDS = {
    "512 characters of four bytes": "\U0001f600" * 512,
    "nul": "a\0b",
    "spaces at the end": "a ",
    "other case": "A",
    "accents": "\u00e4",
    "decomposed": "a\u0308",
    "empty": "",
}


@given(st.text(CHARACTERS))
def test_the_stored_form_is_exact_and_storable(text: str) -> None:
    """Any text comes back; its stored form is valid Unicode without a NUL, and the text itself where it can be."""
    stored = to_stored(text)
    assert from_stored(stored) == text
    assert "\0" not in stored
    stored.encode()


def test_ordinary_text_is_stored_as_it_is() -> None:
    """Readable to any client, backslashes and control characters included."""
    assert to_stored("C:\\dir\n\x01 \U0001f600") == "C:\\dir\n\x01 \U0001f600"


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_texts_come_back(store: SessionStore, text: str) -> None:
    """In every place that takes a text: message, tool name, call id, clip, view and its name."""
    call = Message("call", Role.ASSISTANT, Kind.TOOL_CALL, text, tool_name=text, tool_call_id=text)
    plain = Message("plain", Role.USER, Kind.TEXT, text + "!")
    store.append("s", [call, plain])
    store.latch("s", plain, text)
    store.latch("s", plain, text, view=text)
    assert store.messages("s") == [call, plain]
    assert [latch.text for latch in store.state("s").latches] == [text, text]
    assert store.replay("s").messages[1].text == text
    store.unlatch("s", plain)
    assert [stored.drop.latch.text for stored in store.quarantine("s")] == [text]


def test_ids_are_compared_byte_for_byte(store: SessionStore) -> None:
    """No two of them are one message or one session on any database: nothing is padded, folded or normalised."""
    messages = [Message(message_id, Role.USER, Kind.TEXT, name) for name, message_id in [*IDS.items(), ("plain", "a")]]
    store.append("s", messages)
    assert store.messages("s") == messages
    for message in messages:
        store.append(message.id, [message])
    assert len(store.sessions()) == len(messages) + 1
    for message in messages:
        assert store.messages(message.id) == [message]


@pytest.mark.parametrize("key", ["\U0001f600" * 513, "x" * 2049, "\0" * 410, "half \ud800", None, 7])
def test_keys_that_no_index_holds_are_refused(store: SessionStore, key: str) -> None:
    """As a message id they are refused before anything is written, as a session too."""
    good = Message("good", Role.USER, Kind.TEXT, "x")
    if isinstance(key, str):
        with pytest.raises(InvalidValueError) as caught:
            store.append("s", [good, Message(key, Role.USER, Kind.TEXT, "x")])
        assert caught.value.path == "messages[1].id"
        with pytest.raises(SessionNotFoundError):
            store.state("s")
    for use in (store.state, store.delete, lambda name: store.append(name, [good])):
        with pytest.raises(InvalidValueError) as caught:
            use(key)
        assert caught.value.path == "session"
    assert store.sessions() == []


@given(st.lists(st.tuples(st.text(CHARACTERS), st.none() | st.text(CHARACTERS)), max_size=5))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts_come_back(shared_store: SessionStore, texts: list[tuple[str, str | None]]) -> None:
    """Whatever Unicode or half of it a message holds."""
    messages = [
        Message(str(number), Role.TOOL, Kind.TOOL_RESULT, text, tool_call_id=call_id)
        for number, (text, call_id) in enumerate(texts)
    ]
    shared_store.append("any texts", messages)
    assert shared_store.messages("any texts") == messages
    shared_store.delete("any texts")
