"""The rules of the area `content`, beyond what the cases show."""

from __future__ import annotations

import base64
import json
import tracemalloc
from typing import Any

import pytest

from latchguard import harden, harden_json
from latchguard.core.errors import ProfileConflictError
from latchguard.egress.images import image_size, image_type

USER = {"role": "user", "content": "q"}
SAID = {"role": "assistant", "content": "a"}


def fired(result: Any) -> list[tuple[str, str]]:
    return [(finding.rule, finding.repair) for finding in result.findings]


def chat(*messages: Any, **options: Any) -> Any:
    return harden({"messages": list(messages)}, "openai-chat", **options)


def claude(*messages: Any, **options: Any) -> Any:
    return harden({"messages": list(messages)}, "anthropic", **options)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_halves_in_strings_and_keys_become_the_replacement_character() -> None:
    """Anywhere in the body, keys of keys included; a pair of halves becomes its character; key order stays."""
    schema = {"a": 1, "k\ud800": {"in\udc00": "x"}, "z": "\ud83d\ude00"}
    body = {"messages": [{"role": "user", "content": "a\ud800b\ud83d\ude00"}], "metadata": schema}
    result = harden(body, "openai-chat")
    assert fired(result) == [("lone-surrogate", "lossy")] * 4
    assert result.body["messages"][0]["content"] == "a\ufffdb\U0001f600"
    assert list(result.body["metadata"]) == ["a", "k\ufffd", "z"]
    assert result.body["metadata"]["k\ufffd"] == {"in\ufffd": "x"}
    assert result.body["metadata"]["z"] == "\U0001f600"
    result.body["messages"][0]["content"].encode()


def test_escape_of_a_half_in_the_body_bytes_is_a_half() -> None:
    """JSON text can write what UTF-8 cannot carry; an escape inside arguments is text of its own and stays."""
    arguments = json.dumps({"a": "\ud800"})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "x\udfff"}
    raw = json.dumps(
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, answer]}
    ).encode()
    result = harden_json(raw, "openai-chat")
    assert [finding.path for finding in result.findings] == ["$.messages[2].content"]
    assert result.raw == raw.replace(b'"x\\udfff"', '"x\ufffd"'.encode())


def test_tool_message_always_has_content() -> None:
    """The key is required there; on an assistant message only under `strict-content`."""
    call = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
    result = chat(USER, call, {"role": "tool", "tool_call_id": "c1"}, USER)
    assert fired(result) == [("content-missing-key", "lossless")]
    assert result.body["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": ""}
    both = chat(
        USER, call, {"role": "tool", "tool_call_id": "c1", "content": ""}, profile="strict-content,no-null-content"
    )
    assert both.body["messages"][1]["content"] == ""


@pytest.mark.parametrize(
    ("content", "after"),
    [({"b": 1, "a": 2}, '{"b":1,"a":2}'), ([1, 2], "[1,2]"), (42, "42"), ([{"x": 1}], '[{"x":1}]')],
)
def test_tool_result_of_another_type_becomes_its_json(content: Any, after: str) -> None:
    """On chat, Responses and Anthropic alike; a list of parts stays."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    on_chat = chat(USER, call, {"role": "tool", "tool_call_id": "c", "content": content})
    assert (on_chat.body["messages"][2]["content"], fired(on_chat)) == (
        after,
        [("tool-content-not-string", "lossless")],
    )
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": content},
    ]
    assert harden({"input": items}, "openai-responses").body["input"][1]["output"] == after
    parts = {"role": "tool", "tool_call_id": "c", "content": [text("ok")]}
    assert chat(USER, call, parts).findings == ()


def test_empty_texts_on_anthropic() -> None:
    """Blocks go, messages without anything left go, a blank text content goes, the last one stays."""
    result = claude(
        USER, {"role": "assistant", "content": [text(" \n")]}, USER, {"role": "user", "content": ""}, SAID, USER
    )
    assert fired(result) == [("empty-text-block", "lossless")] * 2
    assert result.body["messages"] == [USER, USER, SAID, USER]
    assert claude(USER, {"role": "assistant", "content": ""}).findings == ()
    body = {"system": [text(""), text("s")], "messages": [USER]}
    assert harden(body, "anthropic").body["system"] == [text("s")]


def test_empty_texts_elsewhere_are_legal_but_under_their_trait() -> None:
    """Chat takes an empty text part; `strict-empty-text` does not."""
    message = {"role": "user", "content": [text(""), text("q")]}
    assert chat(message).findings == ()
    assert chat(message, profile="strict-empty-text").body["messages"][0]["content"] == [text("q")]


def test_run_of_one_role_becomes_one_message() -> None:
    """Texts join, also before a message with calls; parts and calls before the last are named only."""
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    answer = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    result = chat(USER, SAID, SAID, calls, answer, SAID, USER, profile="strict-template")
    assert fired(result) == [("roles-not-alternating", "lossless")]
    assert result.body["messages"] == [USER, {**calls, "content": "a\n\na"}, answer, SAID, USER]
    parts = chat(USER, {"role": "user", "content": [text("q")]}, profile="strict-template")
    assert fired(parts) == [("roles-not-alternating", "detect")]


def test_reasoning_content_is_refused_here_and_required_there() -> None:
    """One field, two servers: each profile has its rule, and together they exclude each other."""
    thought = {**SAID, "reasoning_content": "hm"}
    assert fired(chat(USER, thought, USER, profile="mistral")) == [("field-not-permitted", "lossy")]
    assert chat(USER, thought, USER).findings == ()
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    answer = {"role": "tool", "tool_call_id": "c", "content": "ok"}
    result = chat(USER, calls, answer, SAID, USER, profile="deepseek-thinking")
    assert fired(result) == [("reasoning-content-missing", "lossless")]
    assert result.body["messages"][1]["reasoning_content"] == ""
    with pytest.raises(ProfileConflictError):
        chat(USER, profile="mistral,deepseek-thinking")


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(head + b"\x08\x06\0\0\0").decode()


JPEG = base64.b64encode(
    b"\xff\xd8\xff\xe0\x00\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xc0\x00\x11\x08\x00\x20\x00\x40\x03\x01\x22\0\x02\x11\x01"
).decode()
GIF = base64.b64encode(b"GIF89a\x07\0\x05\0\0\0").decode()
WEBP = base64.b64encode(b"RIFF\x24\0\0\0WEBPVP8 ").decode()


def test_image_headers_are_read() -> None:
    """Type and size, of the four types; anything else says nothing."""
    found = [(image_type(data), image_size(data)) for data in (png(10, 20), JPEG, GIF, WEBP, "PHN2Zy8+", "%%%", "")]
    assert found == [
        ("image/png", (10, 20)),
        ("image/jpeg", (64, 32)),
        ("image/gif", (7, 5)),
        ("image/webp", None),
        (None, None),
        (None, None),
        (None, None),
    ]


def image(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def test_declared_type_follows_the_bytes() -> None:
    """A JPEG that calls itself PNG gets its own name, and nothing else changes; urls are not looked at."""
    result = claude({"role": "user", "content": [image(JPEG), text("q")]})
    assert fired(result) == [("image-media-mismatch", "lossless")]
    assert result.body["messages"][0]["content"][0] == image(JPEG, "image/jpeg")
    url = {"type": "image", "source": {"type": "url", "url": "https://example.org/i.svg"}}
    assert claude({"role": "user", "content": [url]}).findings == ()


def test_many_images_have_a_lower_limit() -> None:
    """More than twenty images: 2,000 pixels a side, inside tool results too."""
    blocks = [image(png(2001, 10))] + [image(png(10, 10)) for _ in range(19)]
    assert claude({"role": "user", "content": blocks}).findings == ()
    result = claude({"role": "user", "content": [*blocks, image(png(10, 10))]})
    assert fired(result) == [("image-too-large", "placeholder")]
    assert result.body["messages"][0]["content"][0] == text("[image omitted: 2001x10 exceeds the 2000 px limit]")


def test_images_for_a_text_model_become_texts_on_every_wire() -> None:
    """Each in the wire's own kind of text."""
    gemini = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}]}]}
    made = harden(gemini, "gemini", profile="text-only").body["contents"][0]["parts"][0]
    assert made == {"text": "[image omitted: this model has no image input]"}
    items = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]}
    part = harden(items, "openai-responses", profile="text-only").body["input"][0]["content"][0]
    assert part == {"type": "input_text", "text": "[image omitted: this model has no image input]"}
    assert fired(claude({"role": "user", "content": [image(png(1, 1))]}, profile="text-only")) == [
        ("image-unsupported", "placeholder")
    ]


def test_only_the_last_assistant_message_loses_trailing_space() -> None:
    """And only under `anthropic-prefill`."""
    spaced = {"role": "assistant", "content": "a "}
    assert claude(USER, spaced, USER, profile="anthropic-prefill").findings == ()
    assert claude(USER, spaced).findings == ()
    assert claude(USER, spaced, profile="anthropic-prefill").body["messages"][1]["content"] == "a"


def test_a_body_nested_without_end_costs_what_it_holds() -> None:
    """An object can be nested deeper than any text; no path is made for what holds no half."""
    nested: Any = "\ud800"
    for _ in range(10_000):
        nested = [nested, "sibling"]
    tracemalloc.start()
    result = harden({"messages": [], "extra": nested}, "openai-chat")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.findings[0].path == "$.extra" + "[0]" * 10_000
    assert peak_bytes < 50_000_000
