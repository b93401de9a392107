"""Rules of the area `arguments`: no invalid tool-call arguments leave the process.

They run last, alone and iteratively, so that no other rule can keep them from running.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, Final

import orjson

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.errors import InvalidValueError
from latchguard.core.findings import Repair, Wire
from latchguard.core.jsontext import MAX_DEPTH, Verdict, check_json, dump_json, escape_controls, load_exact
from latchguard.egress.draft import Set
from latchguard.egress.layout import CALL_BLOCKS, at, conversations, find_calls
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule

__all__ = ["RULES", "argument_hits"]

_MAX_PARSES: Final = 4
_STRING_WIRES: Final = (Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES)
_OBJECT_WIRES: Final = (Wire.ANTHROPIC, Wire.GEMINI)
_PLACEHOLDER: Final[dict[str, Any]] = load_exact(PLACEHOLDER_ARGUMENTS)
_HALF: Final = re.compile("[\ud800-\udfff]")


def argument_hits(body: Any, wire: Wire, *, calls: bool = False, decoded: bool = False) -> dict[Trigger, list[Hit]]:
    """Walk over the calls of *body* and give those that a rule must look at; with *calls*, all of them too."""
    if not calls and all(_all_plain(at(body, path), wire, decoded=decoded) for path in conversations(body, wire)):
        return {}
    suspects: list[Hit] = []
    every: list[Hit] = []
    plain = _is_plain_text if wire in _STRING_WIRES else _is_plain_decoded if decoded else _is_plain_object
    for call in find_calls(body, wire):
        value = call.holder.get(call.key)
        if calls:
            every.append(Hit(call.path, value, call.name))
        if not plain(value):
            if value is None and wire is not Wire.ANTHROPIC:
                continue  # missing or null: legal
            suspects.append(Hit(call.path, value, call.name))
    trigger = Trigger.SUSPECT_ARGUMENTS if wire in _STRING_WIRES else Trigger.SUSPECT_INPUT
    return {trigger: suspects, Trigger.CALL: every}


def _all_plain(items: Sequence[Any], wire: Wire, *, decoded: bool) -> bool:
    """Say whether the calls of *items* are plainly right: the usual answer, at a fifth of the walk's price.

    Comprehensions over the usual shape; any other shape, and any doubt, is False, and the walk decides.
    """
    try:
        if wire in _STRING_WIRES:
            texts = _PLAIN_TEXTS[wire](items)
            if max(map(len, texts), default=0) > _SHALLOW_LENGTH:
                return all(map(_is_plain_text, texts))
            return {type(text) for text in texts} <= _STR and {type(orjson.loads(text)) for text in texts} <= _DICT
        return decoded and _PLAIN_TYPES[wire](items) <= _DICT
    except (TypeError, KeyError, AttributeError, ValueError):
        return False


def _chat_texts(messages: Sequence[Any]) -> list[Any]:
    legacy = [message["function_call"] for message in messages if "function_call" in message]
    return [
        call["function"]["arguments"]
        for message in messages
        if "tool_calls" in message
        for call in message["tool_calls"] or ()
    ] + [call["arguments"] for call in legacy if call]


def _responses_texts(items: Sequence[Any]) -> list[Any]:
    return [item["arguments"] for item in items if item.get("type") == "function_call"]


def _anthropic_types(messages: Sequence[Any]) -> set[type]:
    return {
        type(block["input"])
        for message in messages
        if message["role"] == "assistant" and type(message["content"]) is not str
        for block in message["content"]
        if block["type"] in CALL_BLOCKS
    }


def _gemini_types(contents: Sequence[Any]) -> set[type]:
    parts = [part for content in contents for part in content["parts"]]
    return {type(part[key]["args"]) for key in ("functionCall", "function_call") for part in parts if key in part}


_DICT: Final = {dict}
_STR: Final = {str}
_SHALLOW_LENGTH: Final = 2 * MAX_DEPTH  # no shorter text nests deeper than MAX_DEPTH
_PLAIN_TEXTS: Final = {Wire.OPENAI_CHAT: _chat_texts, Wire.OPENAI_RESPONSES: _responses_texts}
_PLAIN_TYPES: Final = {Wire.ANTHROPIC: _anthropic_types, Wire.GEMINI: _gemini_types}


def _is_plain_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        found = orjson.loads(value)
    except ValueError:
        return False
    return type(found) is dict and value.count("{") + value.count("[") <= MAX_DEPTH


def _is_plain_decoded(value: Any) -> bool:
    return isinstance(value, dict)


def _is_plain_object(value: Any) -> bool:
    return isinstance(value, dict) and _is_json(value)


def _is_json(value: Any) -> bool:
    """Say whether JSON could carry *value*, at most `MAX_DEPTH` levels deep. Iterative; ends on cycles too."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: dict[int, Any] = {}  # by id: what is shared is looked at once per level
        for node in level:
            if isinstance(node, dict):
                if not all(isinstance(key, str | int) for key in node):
                    return False
                below |= {id(child): child for child in node.values()}
            elif isinstance(node, list | tuple):
                below |= {id(child): child for child in node}
            elif not (node is None or isinstance(node, str | int) or (isinstance(node, float) and isfinite(node))):
                return False
        if not below:
            return True
        level = list(below.values())
    return False


def check_not_string(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments that are no string: an object, a list or a number stands where JSON text belongs.

    Fires on: any value of `arguments` but a string and null. Documented: both OpenAI references type the field as a
    string. Seen: bytedance/deer-flow#4445, ggml-org/llama.cpp#20198 (2026-03); "Input should be a valid string".
    Repair: lossless, the value as compact JSON in its key order; the placeholder where JSON cannot carry it.
    """
    if isinstance(hit.value, str):
        return
    text = None
    if _is_json(hit.value):
        with suppress(InvalidValueError):  # nested too deep to be written
            text = dump_json(hit.value).decode()
    yield _fix(hit, Repair.PLACEHOLDER if text is None else Repair.LOSSLESS, text or PLACEHOLDER_ARGUMENTS)


def check_invalid_json(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments that are no JSON: text that is not empty and that `JSON.parse` would refuse.

    Fires on: prose, cut JSON, `NaN`, raw control characters, a BOM, trailing commas, two documents, nesting beyond
    1,000 levels. Documented: RFC 8259. Seen: vllm-project/vllm#48922 (2026-07), ggml-org/llama.cpp#23516
    (2026-05), mistralai/mistral-vibe#615 (2026-04), 500 `parse_error.101`: the client resends the history each turn,
    so that the session is poisoned for good.
    Repair: raw control characters inside strings are escaped, lossless; all else becomes the placeholder object.
    Nothing is completed: a cut command must not come out looking whole. The raw text stands in the finding.
    """
    if not isinstance(hit.value, str) or not hit.value:
        return
    verdict = check_json(hit.value)
    if verdict is Verdict.VALID:
        return
    if (escaped := escape_controls(hit.value)) is not None:
        yield _fix(hit, Repair.LOSSLESS, escaped)
    else:
        note = "nested too deep" if verdict is Verdict.TOO_DEEP else ""
        yield _fix(hit, Repair.PLACEHOLDER, PLACEHOLDER_ARGUMENTS, note)


def check_empty(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments are the empty string, and the target wants an object.

    Fires under `strict-args` only: elsewhere `""` is legal. Seen: vllm-project/vllm#19419 (2025), agno-agi/agno#10254
    (2026-09); "Assistant tool call function.arguments must be valid JSON."
    Repair: `{}`, lossless: a call without arguments.
    """
    if hit.value == "":
        yield _fix(hit, Repair.LOSSLESS, "{}")


def check_double_encoded(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments are a JSON string that holds the object.

    Fires under `strict-args` only: elsewhere any JSON is legal. At most 4 parses, the first included. Seen:
    tailcallhq/forgecode#2764; quarkiverse/quarkus-langchain4j#2642 (2026-06).
    Repair: the innermost text, verbatim, lossless. Raw surrogate halves in it become escapes, which mean the same.
    """
    inner = _unwrap(hit.value)
    if inner is not None:
        yield _fix(hit, Repair.LOSSLESS, _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", inner))


def check_not_object(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments are JSON, but neither an object nor one in strings, and the target wants an object.

    Fires under `strict-args` only: elsewhere any JSON is legal. Seen: chat templates walk over the arguments,
    "Can only get item pairs from a mapping" (QwenLM/Qwen3-Coder#444, 2025-07; mudler/LocalAI#10256, 2026-06);
    sgl-project/sglang#28035 (2026-06), vercel/ai#18999.
    Repair: `{"value": ...}` around the verbatim text, lossless; the placeholder where that nests too deep.
    """
    if not isinstance(hit.value, str) or not hit.value or _unwrap(hit.value) is not None:
        return
    if check_json(hit.value) is not Verdict.VALID or isinstance(_load(hit.value), dict):
        return
    wrapped = f'{{"value":{hit.value}}}'
    if check_json(wrapped) is Verdict.VALID:
        yield _fix(hit, Repair.LOSSLESS, wrapped)
    else:
        yield _fix(hit, Repair.PLACEHOLDER, PLACEHOLDER_ARGUMENTS, "nested too deep to be wrapped")


def check_input(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Arguments on an object-typed wire are no object: `tool_use.input`, `functionCall.args`.

    Fires on: text (a clip that landed on a call), a list, a number; on Anthropic null and a missing key too, on
    Gemini these are legal; an object that JSON cannot carry. Documented: both references type the field as an
    object; Anthropic answers "tool_use.input: Input should be a valid dictionary". Seen:
    anthropics/anthropic-sdk-typescript#648 (2024-12), langchain-ai/langsmith-sdk#2435.
    Repair: text that parses to an object, at most 4 levels, becomes it, and nothing (`""`, null) becomes `{}`,
    lossless; all else becomes the placeholder object.
    """
    if hit.value is None or hit.value == "":
        yield _fix(hit, Repair.LOSSLESS, {})
        return
    inner = _unwrap(hit.value)
    value = _load(hit.value if inner is None else inner) if isinstance(hit.value, str) else None
    if isinstance(value, dict) and _is_json(value):
        yield _fix(hit, Repair.LOSSLESS, value)
    else:
        yield _fix(hit, Repair.PLACEHOLDER, dict(_PLACEHOLDER))


def check_required(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A key that the declared tool demands is not among the arguments.

    Fires under `strict-required` only, where the tool is declared in the same body. Documented: JSON Schema
    2020-12 validation, section 6.5.3, `required`.
    Repair: none. No value can be made up; the call is named.
    """
    value = _load(hit.value) if isinstance(hit.value, str) else hit.value
    schema = scene.parameters.get(hit.tool_name or "")
    if schema is None or not isinstance(value, dict | None):
        return
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []
    if missing := [name for name in names if name not in (value or {})]:
        note = f"missing: {', '.join(missing)}"
        yield Fix(hit.path, Repair.DETECT, before=hit.value, note=note, tool_name=hit.tool_name)


def _fix(hit: Hit, repair: Repair, after: Any, note: str = "") -> Fix:
    return Fix(hit.path, repair, (Set(hit.path, after),), hit.value, after, note, hit.tool_name)


def _load(text: Any) -> Any:
    try:
        return load_exact(text)
    except ValueError:
        return None


def _layers(text: Any) -> Iterator[tuple[str, Any]]:
    """Parse, and parse again while the value is a string: each text with its value, at most `_MAX_PARSES`."""
    for _ in range(_MAX_PARSES):
        if not isinstance(text, str):
            return
        value = _load(text)
        yield text, value
        text = value


def _unwrap(text: Any) -> str | None:
    """Give the text of the object that *text* holds inside one JSON string or more; None where it does not."""
    layers = list(_layers(text))
    return layers[-1][0] if len(layers) > 1 and isinstance(layers[-1][1], dict) else None


# In the order in which they run: what one makes, the next sees.
RULES: Final[tuple[EgressRule, ...]] = (
    make_rule(
        "args-not-string",
        Trigger.SUSPECT_ARGUMENTS,
        Repair.PLACEHOLDER,
        check_not_string,
        wires=_STRING_WIRES,
        errors=("Input should be a valid string", "arguments: expected a string, but got an object"),
    ),
    make_rule(
        "args-invalid-json",
        Trigger.SUSPECT_ARGUMENTS,
        Repair.PLACEHOLDER,
        check_invalid_json,
        wires=_STRING_WIRES,
        errors=(
            "arguments must be a valid JSON object string",
            "Failed to parse tool call arguments as JSON",
            "arguments must be valid JSON",
            "parse_error.101",
        ),
    ),
    make_rule(
        "args-empty",
        Trigger.SUSPECT_ARGUMENTS,
        Repair.LOSSLESS,
        check_empty,
        wires=_STRING_WIRES,
        demand="args-object",
        errors=("Assistant tool call function.arguments must be valid JSON",),
    ),
    make_rule(
        "args-double-encoded",
        Trigger.SUSPECT_ARGUMENTS,
        Repair.LOSSLESS,
        check_double_encoded,
        wires=_STRING_WIRES,
        demand="args-object",
        errors=("Can only get item pairs from a mapping",),
    ),
    make_rule(
        "args-not-object",
        Trigger.SUSPECT_ARGUMENTS,
        Repair.PLACEHOLDER,
        check_not_object,
        wires=_STRING_WIRES,
        demand="args-object",
        errors=("Can only get item pairs from a mapping",),
    ),
    make_rule(
        "input-not-object",
        Trigger.SUSPECT_INPUT,
        Repair.PLACEHOLDER,
        check_input,
        wires=_OBJECT_WIRES,
        errors=("tool_use.input: Input should be a valid dictionary",),
    ),
    make_rule("args-miss-required", Trigger.CALL, Repair.DETECT, check_required, demand="args-required"),
)
