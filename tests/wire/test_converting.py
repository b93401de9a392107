"""Converting: what a body says, on another wire."""

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from attrs import evolve

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.errors import WireUndecidedError
from latchguard.core.findings import Wire
from latchguard.core.jsonspans import format_path
from latchguard.core.jsontext import Verdict, check_json, dump_json, load_json
from latchguard.core.message import Kind, Message, Role
from latchguard.wire import Parsed, convert, parse
from tests.wire.cases import CASES

CHAT, ANTHROPIC, GEMINI, RESPONSES = Wire.OPENAI_CHAT, Wire.ANTHROPIC, Wire.GEMINI, Wire.OPENAI_RESPONSES
PAIRS = [(case, wire) for case in CASES for wire in Wire]

# One conversation in four spellings: what every wire can carry.
CONVERSATION: dict[Wire, Any] = {
    CHAT: {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "list both"},
            {
                "role": "assistant",
                "content": "Listing.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p":"a"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": '{"p":"b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
            {"role": "tool", "tool_call_id": "c2", "content": ""},
            {"role": "user", "content": "go on"},
        ],
    },
    RESPONSES: {
        "model": "m",
        "input": [
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list both"}]},
            {"type": "message", "role": "assistant", "content": "Listing."},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"p":"a"}'},
            {"type": "function_call", "call_id": "c2", "name": "ls", "arguments": '{"p":"b"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            {"type": "function_call_output", "call_id": "c2", "output": ""},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        ],
    },
    ANTHROPIC: {
        "model": "m",
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "list both"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Listing."},
                    {"type": "tool_use", "id": "c1", "name": "ls", "input": {"p": "a"}},
                    {"type": "tool_use", "id": "c2", "name": "ls", "input": {"p": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "x"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": ""},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "list both"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Listing."},
                    {"functionCall": {"id": "c1", "name": "ls", "args": {"p": "a"}}},
                    {"functionCall": {"id": "c2", "name": "ls", "args": {"p": "b"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "x"}}},
                    {"functionResponse": {"id": "c2", "name": "ls", "response": {"output": ""}}},
                    {"text": "go on"},
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("source", Wire)
@pytest.mark.parametrize("target", Wire)
def test_each_wire_says_the_same_in_its_own_words(source: Wire, target: Wire) -> None:
    """Calls, then results, then the text beside them; `content` on every tool message; arguments as the wire wants."""
    converted = convert(parse(CONVERSATION[source], source), target)
    expected = CONVERSATION[target] if source is not GEMINI else {**CONVERSATION[target]}
    if source is GEMINI:
        expected.pop("model", None)
    assert converted.body == expected


@pytest.mark.parametrize("target", [CHAT, RESPONSES, ANTHROPIC])
def test_nothing_is_lost_between_wires_that_say_the_same(target: Wire) -> None:
    """A plain conversation loses nothing but the model, which Gemini names in the URL."""
    assert convert(parse(CONVERSATION[CHAT], CHAT), target).lost == ()
    lost = convert(parse(CONVERSATION[target], target), GEMINI).lost
    assert [(found.path, found.why) for found in lost] == [("$.model", "no counterpart")]


def essence(message: Message) -> tuple[object, ...]:
    """Give what a conversion keeps: all of a message but made ids, and of arguments what they say, not the spacing."""
    text = message.text
    if message.kind is Kind.TOOL_CALL and check_json(text) is Verdict.VALID:
        text = dump_json(load_json(text)).decode()
    return message.role, message.kind, text, message.tool_name


@pytest.mark.parametrize(("case", "target"), [(case, wire) for case, wire in PAIRS if CASES[case][0] is not wire])
def test_what_is_not_listed_survives_there_and_back(case: str, target: Wire) -> None:
    """Every message that neither conversion lists comes back as what it was."""
    wire, body = CASES[case]
    parsed = parse(body, wire)
    there = convert(parsed, target)
    on_target = parse(there.body, target)
    back = convert(on_target, wire)
    lost = {found.path for found in there.lost}
    lost_back = {found.path for found in back.lost}
    lost_texts = {message.text for message in on_target.messages if path_of(on_target, message) in lost_back}
    expected = Counter(
        essence(message)
        for message in parsed.messages
        if path_of(parsed, message) not in lost and message.text not in lost_texts
    )
    found = Counter(map(essence, parse(back.body, wire).messages))
    assert expected - found == Counter()
    assert expected.total() > 0


def path_of(parsed: Parsed, message: Message) -> str:
    return format_path(parsed.frame.path(message.id))


@pytest.mark.parametrize(("case", "target"), PAIRS)
def test_conversion_settles(case: str, target: Wire) -> None:
    """The converted body is read as the target's own, and converting it to its own wire changes nothing."""
    wire, body = CASES[case]
    converted = convert(parse(body, wire), target).body
    assert convert(parse(converted, target), target).body is converted


def convert_one(source: Wire, entry: Any, target: Wire) -> tuple[Any, list[tuple[str, str]]]:
    """Convert a bare list of one or more entries; give the main section and what is lost."""
    converted = convert(parse(entry if isinstance(entry, list) else [entry], source), target)
    key = {CHAT: "messages", ANTHROPIC: "messages", GEMINI: "contents", RESPONSES: "input"}[target]
    return converted.body[key], [(found.path, found.why) for found in converted.lost]


def call(arguments: Any, call_id: str | None = "c1") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}],
    }


@pytest.mark.parametrize(
    ("arguments", "expected", "why"),
    [
        ('{"b":1,"a":[2]}', {"b": 1, "a": [2]}, None),
        ('{ "a" : 1 }', {"a": 1}, None),
        ("", {}, "no arguments became {}"),
        ("{}", {}, None),
        ("prose", load_json(PLACEHOLDER_ARGUMENTS), "the arguments were no JSON object"),
        ("[1]", load_json(PLACEHOLDER_ARGUMENTS), "the arguments were no JSON object"),
        ('{"a":1e400}', load_json(PLACEHOLDER_ARGUMENTS), "the arguments were no JSON object"),
        ('{"a":1,"a":2}', {"a": 2}, "duplicate keys or spellings of numbers"),
        ('{"a":true,"a":false}', {"a": False}, "duplicate keys or spellings of numbers"),
        ('{"a":"1.10 \\" 2.0","b":"\\u00e9"}', {"a": '1.10 " 2.0', "b": "\u00e9"}, None),
        ('{"a":1.10}', {"a": 1.1}, "duplicate keys or spellings of numbers"),
    ],
)
@pytest.mark.parametrize("target", [ANTHROPIC, GEMINI])
def test_arguments_become_objects(arguments: str, expected: Any, why: str | None, target: Wire) -> None:
    """Where arguments are objects, text that holds none becomes the placeholder, listed; never a silent `{}`."""
    entries, lost = convert_one(CHAT, call(arguments), target)
    found = entries[0]["content"][0]["input"] if target is ANTHROPIC else entries[0]["parts"][0]["functionCall"]["args"]
    assert found == expected
    assert lost == ([("$[0].tool_calls[0]", why)] if why else [])


def test_text_in_place_of_an_object_is_carried_where_it_holds_one() -> None:
    """Anthropic's `input` as a string goes to chat as the text it is, if it is an object's."""
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": '{"c": "ls"}'}
    entries, lost = convert_one(ANTHROPIC, {"role": "assistant", "content": [block]}, CHAT)
    assert entries == [call('{"c": "ls"}')]
    assert lost == []


def test_prose_in_place_of_an_object_becomes_the_placeholder() -> None:
    """A poisoned `input` leaves as the placeholder on every wire."""
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": "prose"}
    entries, lost = convert_one(ANTHROPIC, {"role": "assistant", "content": [block]}, CHAT)
    assert entries == [call(PLACEHOLDER_ARGUMENTS)]
    assert lost == [("$[0].content[0]", "the arguments were no JSON object")]


def test_text_before_a_result_goes_after_it() -> None:
    """Results stand next to their calls, whatever stood between."""
    entries, _ = convert_one(
        ANTHROPIC,
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and?"},
                    {"type": "tool_result", "tool_use_id": "c1"},
                ],
            },
        ],
        CHAT,
    )
    assert entries == [
        call("{}"),
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "user", "content": "and?"},
    ]


def test_calls_without_ids_are_paired_by_name_and_order() -> None:
    """Gemini's optional ids are made where the target needs them, the same for a call and its result."""
    calls: list[Any] = [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g", "f")]
    answers = [
        {"functionResponse": {"name": name, "response": {"output": text}}}
        for name, text in (("g", "2"), ("f", "1"), ("f", "3"), ("f", "no call"))
    ]
    entries, _ = convert_one(GEMINI, [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}], CHAT)
    ids = [made["id"] for made in entries[0]["tool_calls"]]
    told = [(entry["tool_call_id"], entry["content"]) for entry in entries[1:]]
    assert told[:3] == [(ids[1], "2"), (ids[0], "1"), (ids[2], "3")]
    assert told[3][0] not in ids
    assert len(set(ids)) == 3


def test_names_of_results_come_from_their_calls() -> None:
    """Gemini wants the tool's name on a result; an orphan's is unknown."""
    orphan = {"role": "tool", "tool_call_id": "c9", "content": "y"}
    entries, _ = convert_one(CHAT, [call("{}"), {"role": "tool", "tool_call_id": "c1", "content": "x"}, orphan], GEMINI)
    assert [part["functionResponse"]["name"] for part in entries[1]["parts"]] == ["f", "unknown"]


def test_custom_calls_stay_custom_between_openai_wires() -> None:
    """A free-form call and its output keep their form, and become `{"input": ...}` on other wires, listed."""
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    ]
    entries, lost = convert_one(RESPONSES, items, CHAT)
    assert entries[0]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    ]
    assert lost == []
    assert convert_one(CHAT, entries, RESPONSES)[0] == items
    blocks, lost = convert_one(RESPONSES, items, ANTHROPIC)
    assert blocks[0]["content"][0]["input"] == {"input": "*** Begin"}
    assert lost == [("$[0]", "free-form input became an object")]


def test_failed_results_stay_failed_where_the_wire_can_say_so() -> None:
    """`is_error` is Gemini's `error` key; on chat it is lost and listed."""
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True}
    entry = {"role": "user", "content": [block]}
    parts, lost = convert_one(ANTHROPIC, entry, GEMINI)
    assert parts[0]["parts"][0]["functionResponse"]["response"] == {"error": "no"}
    assert lost == []
    assert convert_one(GEMINI, parts, ANTHROPIC)[0] == [entry]
    assert convert_one(ANTHROPIC, entry, CHAT)[1] == [
        ("$[0].content[0]", "that the call failed is told by its text only")
    ]


PNG = "iVBORw0KGgo="
IMAGES = {
    CHAT: {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}],
    },
    RESPONSES: {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}],
    },
    ANTHROPIC: {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
    },
    GEMINI: {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]},
}
LINKS = {
    CHAT: {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    RESPONSES: {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://x/y.png"}],
    },
    ANTHROPIC: {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}],
    },
    GEMINI: {"role": "user", "parts": [{"fileData": {"fileUri": "https://x/y.png"}}]},
}


@pytest.mark.parametrize(("source", "target"), list(permutations(Wire, 2)))
@pytest.mark.parametrize("spellings", [IMAGES, LINKS])
def test_images_are_carried(source: Wire, target: Wire, spellings: dict[Wire, Any]) -> None:
    """An image goes over as data or as its URL, in the target's spelling."""
    assert convert_one(source, spellings[source], target) == ([spellings[target]], [])


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        {"type": "image", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "image", "source": {"type": "url", "url": "data:application/pdf;base64,AAAA"}},
        {"type": "image", "source": {"type": "base64", "data": PNG}},
        {"type": "image", "source": {"type": "url", "media_type": "image/png"}},
        {"type": "image", "source": 5},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    ],
)
def test_other_blocks_are_listed(block: Any) -> None:
    """What has no counterpart is named with its path."""
    entry = {"role": "user", "content": [{"type": "text", "text": "x"}, block]}
    assert convert_one(ANTHROPIC, entry, CHAT) == (
        [{"role": "user", "content": "x"}],
        [("$[0].content[1]", "no counterpart")],
    )


def test_results_of_several_texts_keep_their_parts() -> None:
    """A result of two texts stays two; Gemini, which has one place, gets them joined and it is listed."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    entry = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": parts}]}
    assert convert_one(ANTHROPIC, entry, CHAT) == ([{"role": "tool", "tool_call_id": "c1", "content": parts}], [])
    assert convert_one(CHAT, {"role": "tool", "tool_call_id": "c1", "content": parts}, ANTHROPIC) == ([entry], [])
    output = convert_one(ANTHROPIC, entry, RESPONSES)[0][0]["output"]
    assert output == [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    contents, lost = convert_one(ANTHROPIC, entry, GEMINI)
    assert contents[0]["parts"][0]["functionResponse"]["response"] == {"output": "a\nb"}
    assert lost == [("$[0].content[0]", "its texts became one")]


def test_a_result_of_parts_that_became_a_text_is_a_text() -> None:
    """A kernel may have put a text in place of parts: it goes over as a result."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    parsed = parse([{"role": "tool", "tool_call_id": "c", "content": parts}], CHAT)
    converted = convert(Parsed((evolve(parsed.messages[0], text="clip"),), parsed.frame), ANTHROPIC)
    block = {"type": "tool_result", "tool_use_id": "c", "content": "clip"}
    assert converted.body["messages"] == [{"role": "user", "content": [block]}]


def test_deep_arguments_are_carried() -> None:
    """Arguments nested as deep as is valid go over."""
    text = '{"a":' * 999 + "1" + "}" * 999
    entries, lost = convert_one(CHAT, call(text), ANTHROPIC)
    assert parse(entries, ANTHROPIC).messages[0].text == text
    assert lost == []


@pytest.mark.parametrize("target", [RESPONSES, ANTHROPIC, GEMINI])
def test_parts_of_texts_lose_nothing(target: Wire) -> None:
    """Texts in parts are texts: nothing of them is listed."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    entries = [{"role": role, "content": parts} for role in ("user", "assistant")]
    found, lost = convert_one(CHAT, [*entries, {"role": "tool", "tool_call_id": "c", "content": parts[:1]}], target)
    assert [message.text for message in parse(found, target).messages] == ["a", "b", "a", "b", "a"]
    assert lost == []


def test_what_a_hosted_tool_gave_is_no_result() -> None:
    """The output of a computer call has no call to answer on another wire."""
    entries, lost = convert_one(RESPONSES, {"type": "computer_call_output", "call_id": "c", "output": {}}, CHAT)
    assert entries == []
    assert lost == [("$[0]", "no counterpart")]


@pytest.mark.parametrize(("target", "is_kept"), [(ANTHROPIC, False), (GEMINI, True), (RESPONSES, True)])
def test_white_space_goes_where_it_is_taken(target: Wire, *, is_kept: bool) -> None:
    """Anthropic refuses a text of white space; it is listed there, and kept elsewhere."""
    entries, lost = convert_one(CHAT, {"role": "user", "content": " "}, target)
    assert [message.text for message in parse(entries, target).messages] == ([" "] if is_kept else [])
    assert [why for _, why in lost] == ([] if is_kept else ["an empty text, which the target refuses"])


def test_the_spelling_of_the_sdk_loses_nothing() -> None:
    """Gemini in snake case is carried whole, responses under each of their keys."""
    contents = [
        {"role": "model", "parts": [{"function_call": {"id": key, "name": "f", "args": {}}} for key in "abc"]},
        {
            "role": "user",
            "parts": [
                {"function_response": {"id": call_id, "name": "f", "response": {key: "r"}}}
                for call_id, key in zip("abc", ("output", "result", "error"), strict=True)
            ],
        },
        {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": PNG}}]},
        {"role": "user", "parts": [{"file_data": {"mime_type": "image/png", "file_uri": "https://x/y.png"}}]},
    ]
    entries, lost = convert_one(GEMINI, contents, ANTHROPIC)
    assert [message.text for message in parse(entries, ANTHROPIC).messages[:6]] == ["{}"] * 3 + ["r"] * 3
    assert entries[1]["content"][3:] == [IMAGES[ANTHROPIC]["content"][0], LINKS[ANTHROPIC]["content"][0]]
    assert lost == []


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_listed_once(key: str) -> None:
    """Reasoning never goes over, and stands in the list once."""
    entries, lost = convert_one(CHAT, {"role": "assistant", "content": "x", key: "hm"}, ANTHROPIC)
    assert entries == [{"role": "assistant", "content": [{"type": "text", "text": "x"}]}]
    assert lost == [(f"$[0].{key}", "reasoning is bound to its provider")]


def test_media_in_a_result_is_listed() -> None:
    """Of a result of text and image the text is carried."""
    parts = [{"type": "text", "text": "a"}, IMAGES[ANTHROPIC]["content"][0]]
    entry = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": parts}]}
    entries, lost = convert_one(ANTHROPIC, entry, CHAT)
    assert entries == [{"role": "tool", "tool_call_id": "c1", "content": "a"}]
    assert lost == [("$[0].content[0]", "parts that are no text")]


def test_a_late_system_message_moves_to_the_head() -> None:
    """Where system texts have a place of their own, a later one is listed; the developer speaks as system."""
    body = {
        "messages": [
            {"role": "developer", "content": "a"},
            {"role": "user", "content": "x"},
            {"role": "system", "content": "b"},
        ]
    }
    converted = convert(parse(body, CHAT), ANTHROPIC)
    assert converted.body == {
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    }
    assert [(found.path, found.why) for found in converted.lost] == [
        ("$.messages[0].content", "the developer speaks as system"),
        ("$.messages[2].content", "stands at the head now"),
    ]


def test_marks_unknown_shapes_and_keys_are_listed() -> None:
    """Every key and part that no message holds is named: cache marks, signatures, names, parts of unknown shape."""
    body = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, 5], "odd": 1, "none": None},
            "junk",
        ],
    }
    lost = convert(parse(body, ANTHROPIC), CHAT).lost
    assert [(found.path, found.why) for found in lost] == [
        ("$.system[0].cache_control", "no counterpart"),
        ("$.messages[0].content[1]", "no counterpart"),
        ("$.messages[0].odd", "no counterpart"),
        ("$.messages[1]", "of unknown shape"),
    ]


def test_what_an_image_says_besides_is_listed() -> None:
    """The detail of an image and the cache mark on it have no counterpart."""
    block = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}, "odd": 1}
    lost = convert_one(CHAT, {"role": "user", "content": [block]}, ANTHROPIC)[1]
    assert lost == [("$[0].content[0].odd", "no counterpart"), ("$[0].content[0].image_url.detail", "no counterpart")]


def test_parameters_of_a_data_url_are_no_data() -> None:
    """A data URL may name a charset before its data."""
    url = f"data:image/png;charset=utf-8;base64,{PNG}"
    entry = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
    assert convert_one(RESPONSES, entry, ANTHROPIC) == ([IMAGES[ANTHROPIC]], [])


def test_settings_and_tools_are_carried() -> None:
    """What both wires can say is said in the target's place; the rest is listed."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "stop": "END",
        "seed": 1,
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True},
            },
            {"type": "web_search"},
        ],
    }
    converted = convert(parse(body, CHAT), GEMINI)
    assert converted.body == {
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "generationConfig": {"maxOutputTokens": 9, "temperature": 0.5, "stopSequences": ["END"]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}},
                ]
            }
        ],
    }
    assert [(found.path, found.why) for found in converted.lost] == [
        ("$.tools[0].function.strict", "no counterpart"),
        ("$.tools[1]", "a hosted tool, or of unknown shape"),
        ("$.model", "no counterpart"),
        ("$.seed", "no counterpart"),
    ]
    assert convert(parse(converted.body, GEMINI), ANTHROPIC).body == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "max_tokens": 9,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    }


SETTINGS: dict[Wire, dict[str, Any]] = {
    CHAT: {"max_completion_tokens": 9, "temperature": 1, "top_p": 0.5, "stream": True, "stop": ["END"]},
    RESPONSES: {"max_output_tokens": 9, "temperature": 1, "top_p": 0.5, "stream": True},
    ANTHROPIC: {"max_tokens": 9, "temperature": 1, "top_p": 0.5, "stream": True, "stop_sequences": ["END"]},
    GEMINI: {"generationConfig": {"maxOutputTokens": 9, "temperature": 1, "topP": 0.5, "stopSequences": ["END"]}},
}


@pytest.mark.parametrize(("source", "target"), [pair for pair in permutations(Wire, 2) if RESPONSES not in pair])
def test_each_setting_has_its_place(source: Wire, target: Wire) -> None:
    """A setting is written under the target's own name; streaming is Gemini's URL."""
    section = {GEMINI: "contents"}
    parsed = parse({**SETTINGS[source], section.get(source, "messages"): []}, source)
    found = convert(parsed, target)
    expected = {**SETTINGS[target], section.get(target, "messages"): []}
    if source is GEMINI:
        expected.pop("stream")
    assert found.body == expected
    assert [lost.path for lost in found.lost] == (["$.stream"] if target is GEMINI else [])


def test_responses_has_no_stops() -> None:
    """What the target cannot be told is listed."""
    found = convert(parse({**SETTINGS[CHAT], "messages": []}, CHAT), RESPONSES)
    assert found.body == {**SETTINGS[RESPONSES], "input": []}
    assert [lost.path for lost in found.lost] == ["$.stop"]


def test_names_of_people_and_odd_keys_of_calls_are_listed() -> None:
    """The name of who speaks has no counterpart, the name of a tool has."""
    called = {"name": "f", "arguments": "{}", "odd": 1}
    entries = [
        {"role": "user", "name": "Ann", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": called}]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "r"},
    ]
    lost = convert_one(CHAT, entries, ANTHROPIC)[1]
    assert [path for path, _ in lost] == ["$[0].name", "$[1].tool_calls[0].function.odd"]


def test_strict_tools_stay_strict() -> None:
    """Responses takes a tool for strict unless it is told not to; the others the other way round."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {}, **strict}}
        for name, strict in (("f", {"strict": True}), ("g", {}))
    ]
    parsed = parse({"model": "m", "messages": [], "tools": tools}, CHAT)
    there = convert(parsed, RESPONSES).body
    assert [tool["strict"] for tool in there["tools"]] == [True, False]
    assert convert(parse(there, RESPONSES), CHAT).body["tools"] == tools
    assert [tool.get("strict") for tool in convert(parsed, ANTHROPIC).body["tools"]] == [True, None]


def test_gemini_schemas_are_lower_case_elsewhere() -> None:
    """A schema with upper-case types is refused by every other server."""
    wire, body = CASES["097-gem-schema-keys"]
    tool = convert(parse(body, wire), RESPONSES).body["tools"][0]
    assert tool["parameters"]["type"] == "object"
    assert tool["parameters"]["properties"]["data"]["type"] == "string"


def test_changed_and_added_messages_are_converted() -> None:
    """Messages that a kernel changed or added go over like those of the body."""
    parsed = parse(CONVERSATION[CHAT], CHAT)
    added = Message("new", Role.USER, Kind.TEXT, "more")
    converted = convert(Parsed((*parsed.messages[:2], added), parsed.frame), ANTHROPIC)
    assert converted.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "list both"}, {"type": "text", "text": "more"}]}
    ]


def test_an_unknown_wire_is_refused() -> None:
    """A wire that does not exist is the documented error."""
    with pytest.raises(WireUndecidedError):
        convert(parse(CONVERSATION[CHAT], CHAT), "grpc")
