"""Rules of the area `content`: texts, images and fields that the wire takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import orjson

from latchguard.core.errors import InvalidValueError
from latchguard.core.findings import Repair, Wire
from latchguard.core.jsonspans import Path
from latchguard.core.jsontext import dump_json
from latchguard.egress.draft import BodyEdit, Drop, Rename, Set
from latchguard.egress.images import image_size, image_type
from latchguard.egress.layout import at, conversations, is_list
from latchguard.egress.plain import plainly_written
from latchguard.egress.profiles import Demands
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule

__all__ = ["RULES", "content_hits"]

_HALF: Final = re.compile("[\ud800-\udfff]")
_IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MAX_PIXELS: Final = 8000
_MANY_IMAGES: Final = 20
_MAX_PIXELS_OF_MANY: Final = 2000
_TEXTS: Final = ("text", "input_text", "output_text")
_NO_IMAGES: Final = "[image omitted: this model has no image input]"
_CONTENT_KEYS: Final = {Wire.GEMINI: "parts"}


def content_hits(body: Any, wire: Wire, demands: Demands, *, decoded: bool) -> dict[Trigger, list[Hit]]:
    """Walk over the messages and their blocks; *decoded* bodies hold no raw surrogate halves."""
    hits: dict[Trigger, list[Hit]] = {}
    found = [] if decoded else list(_surrogates(body))
    for base in () if plainly_written(body, wire, demands) else conversations(body, wire):
        messages = at(body, base)
        found += _message_hits(messages, base, wire, demands)
        if "roles-alternate" in demands:
            found += _runs(messages, base)
        found += _last_hits(messages, base)
    if isinstance(body, dict) and wire is Wire.ANTHROPIC and is_list(body.get("system")):
        found += _block_hits(body["system"], ("system",), ("system",), wire, demands)
    for trigger, hit in found:
        hits.setdefault(trigger, []).append(hit)
    images = hits.get(Trigger.IMAGE, [])
    return {**hits, Trigger.IMAGE: [hit._replace(value=(hit.value, len(images))) for hit in images]}


def _message_hits(messages: Sequence[Any], base: Path, wire: Wire, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    key = _CONTENT_KEYS.get(wire, "content")
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        content: Any = message.get(key)
        if isinstance(content, str):
            if wire is Wire.ANTHROPIC and (not content or content.isspace()) and place + 1 < len(messages):
                yield Trigger.EMPTY_TEXT, Hit((*base, place, key), (content, (*base, place)))
        elif is_list(content):
            yield from _block_hits(content, (*base, place, key), (*base, place), wire, demands)
        if wire is Wire.OPENAI_CHAT:
            yield from _chat_hits(message, (*base, place), demands)
        elif wire is Wire.OPENAI_RESPONSES and "output" in message:
            yield from _output_hit(message, (*base, place), "output")


def _chat_hits(message: Mapping[str, Any], path: Path, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    role = message.get("role")
    if "content" not in message:
        if role == "tool" or (role == "assistant" and "content-key" in demands):
            yield Trigger.MISSING_CONTENT, Hit(path, role)
    elif message["content"] is None:
        yield Trigger.NULL_CONTENT, Hit((*path, "content"), None)
    elif role == "tool":
        yield from _output_hit(message, path, "content")
    if role == "assistant":
        if "tool_calls" in message and message["tool_calls"] == []:
            yield Trigger.EMPTY_CALLS, Hit((*path, "tool_calls"), [])
        if "reasoning-content" in demands:
            yield Trigger.REASONING_CONTENT, Hit(path, message)


def _output_hit(message: Mapping[str, Any], path: Path, key: str) -> Iterator[tuple[Trigger, Hit]]:
    value: Any = message.get(key)
    if value is None or isinstance(value, str):
        return
    if not is_list(value) or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in value):
        yield Trigger.OUTPUT, Hit((*path, key), value)


def _block_hits(
    blocks: Sequence[Any], path: Path, owner: Path, wire: Wire, demands: Demands
) -> Iterator[tuple[Trigger, Hit]]:
    for number, block in enumerate(blocks):
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        here = (*path, number)
        if kind in _TEXTS and wire is not Wire.GEMINI:
            text = block.get("text")
            if isinstance(text, str) and (not text or text.isspace()) and _forbids_empty(wire, demands):
                yield Trigger.EMPTY_TEXT, Hit(here, (text, owner))
        elif kind == "tool_result" and wire is Wire.ANTHROPIC:
            yield from _result_hits(block, here, demands)
        elif kind == "image" and wire is Wire.ANTHROPIC:
            yield Trigger.IMAGE, Hit(here, block)
        if "text-only" in demands and _is_image(block, wire):
            yield Trigger.IMAGE_PART, Hit(here, block)


def _forbids_empty(wire: Wire, demands: Demands) -> bool:
    return wire is Wire.ANTHROPIC or "no-empty-text" in demands


def _result_hits(block: Mapping[str, Any], path: Path, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    content: Any = block.get("content")
    yield from _output_hit(block, path, "content")
    if not is_list(content):
        return
    inner = (*path, "content")
    for number, part in enumerate(content):
        if not isinstance(part, dict):
            continue
        if part.get("type") == "image":
            yield Trigger.IMAGE, Hit((*inner, number), part)
            if "text-only" in demands:
                yield Trigger.IMAGE_PART, Hit((*inner, number), part)
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str) and not text.strip() and "result-text" in demands:
            alone = all(isinstance(other, dict) and not str(other.get("text") or "").strip() for other in content)
            yield Trigger.EMPTY_TEXT, Hit((*inner, number), (text, inner if alone else None))


def _is_image(block: Mapping[str, Any], wire: Wire) -> bool:
    if wire is Wire.GEMINI:
        data = [block.get(key) for key in ("inlineData", "inline_data", "fileData", "file_data")]
        kinds = [str(part.get("mimeType") or part.get("mime_type")) for part in data if isinstance(part, dict)]
        return any(kind.startswith("image/") for kind in kinds)
    return block.get("type") in ("image_url", "input_image", "image")


def _runs(messages: Sequence[Any], base: Path) -> Iterator[tuple[Trigger, Hit]]:
    """Runs of several messages that a chat template takes for one turn."""
    marks = [message.get("role") if isinstance(message, dict) else None for message in messages]
    for role, group in groupby(range(len(messages)), key=marks.__getitem__):
        places = list(group)
        if role in ("user", "assistant") and len(places) > 1:
            yield Trigger.SAME_ROLE, Hit((*base, places[1]), (base, places))


def _last_hits(messages: Sequence[Any], base: Path) -> Iterator[tuple[Trigger, Hit]]:
    last = messages[-1] if messages else None
    if isinstance(last, dict) and last.get("role") == "assistant":
        content = last.get("content")
        path = (*base, len(messages) - 1, "content")
        if is_list(content) and content and isinstance(content[-1], dict):
            path, content = (*path, len(content) - 1, "text"), content[-1].get("text")
        if isinstance(content, str) and content != content.rstrip():
            yield Trigger.TRAILING_SPACE, Hit(path, content)


def _surrogates(body: Any) -> Iterator[tuple[Trigger, Hit]]:
    """Strings and keys with raw surrogate halves. orjson says in one go that there are none; else an iterative walk."""
    try:
        orjson.dumps(body)
    except TypeError:
        pass
    else:
        return
    todo: list[tuple[_Trail, Any]] = [((), body)]
    seen: set[int] = set()
    while todo:
        trail, node = todo.pop()
        if isinstance(node, str):
            if _HALF.search(node):
                yield Trigger.HALF, Hit(_path_of(trail), node)
        elif isinstance(node, dict | list | tuple) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, dict):
                keys = [key for key in node if isinstance(key, str)]
                for key in filter(_HALF.search, keys):
                    yield Trigger.HALF, Hit(_path_of((trail, key)), key, "key")
                todo += (((trail, key), node[key]) for key in reversed(keys))
            else:
                todo += (((trail, place), node[place]) for place in range(len(node) - 1, -1, -1))


# The way to a node as (the way to its parent, its key): a path copied at each level would be quadratic in the depth.
_Trail: TypeAlias = tuple[()] | tuple["_Trail", str | int]


def _path_of(trail: _Trail) -> Path:
    keys: list[str | int] = []
    while trail:
        trail, key = trail
        keys.append(key)
    return tuple(reversed(keys))


def check_half(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A raw surrogate half in a string or a key: no UTF-8 can carry it, and SDKs raise before they send.

    Fires on every wire. An escape of one inside arguments is text and stays. Seen: anomalyco/opencode#17758.
    Repair: each half becomes U+FFFD, lossy by one code unit.
    """
    after = _whole(hit.value)
    is_key = hit.tool_name is not None
    edit: BodyEdit = Rename(hit.path, after) if is_key else Set(hit.path, after)
    yield Fix(hit.path, Repair.LOSSY, (edit,), hit.value, after, "a key" if is_key else "")


def _whole(text: str) -> str:
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined if _HALF.search(text) else text


def check_missing_content(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A message without the key `content`.

    Fires on chat: on tool messages always ("missing field `content`"), on assistant messages under `strict-content`.
    Seen: BerriAI/litellm#39268.
    Repair: the key, `""` on a tool message, null on an assistant message, lossless.
    """
    value = "" if hit.value == "tool" else None
    yield Fix(hit.path, Repair.LOSSLESS, (Set((*hit.path, "content"), value),), after=value)


def check_null_content(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """`content` is null.

    Fires on chat under `no-null-content`: the OpenAI servers take it. Seen: lmstudio-ai/lmstudio-bug-tracker#261,
    "'content' field must be a string or an array of objects".
    Repair: `""`, lossless.
    """
    yield Fix(hit.path, Repair.LOSSLESS, (Set(hit.path, ""),), None, "")


def check_empty_calls(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """`tool_calls` is an empty array.

    Fires on chat: "Invalid 'messages[1].tool_calls': empty array." Seen: openai/openai-node#1341.
    Repair: the key goes, lossless.
    """
    yield Fix(hit.path, Repair.LOSSLESS, (Drop(hit.path),), [])


def check_output(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A tool result that is neither text nor a list of parts.

    Fires on chat, Responses and Anthropic. Seen: NousResearch/hermes-agent#31435.
    Repair: compact JSON in its key order, lossless; where JSON cannot carry it, it is named only.
    """
    try:
        text = dump_json(hit.value).decode()
    except InvalidValueError:
        yield Fix(hit.path, Repair.DETECT, before=None, note="JSON cannot carry it")
    else:
        yield Fix(hit.path, Repair.LOSSLESS, (Set(hit.path, text),), hit.value, text)


def check_field(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A field that the target refuses, of a closed table: `reasoning_content` on assistant messages.

    Fires on chat under `mistral` ("Extra inputs are not permitted"). Seen: BerriAI/litellm#30835.
    Repair: the field goes from the wire, lossy; it stands in the finding.
    """
    if scene.demands["reasoning-content"] == "refused" and "reasoning_content" in hit.value:
        path = (*hit.path, "reasoning_content")
        yield Fix(path, Repair.LOSSY, (Drop(path),), hit.value["reasoning_content"])


def check_reasoning_content(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An assistant message with calls lacks `reasoning_content`.

    Fires on chat under `deepseek-thinking`: "Missing `reasoning_content` field in the assistant message".
    Repair: `""`, lossless.
    """
    if (
        scene.demands["reasoning-content"] == "required"
        and hit.value.get("tool_calls")
        and not isinstance(hit.value.get("reasoning_content"), str)
    ):
        path = (*hit.path, "reasoning_content")
        yield Fix(path, Repair.LOSSLESS, (Set(path, ""),), after="")


def check_roles(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Several messages of one role in a row.

    Fires on chat under `strict-template`: chat templates raise "Conversation roles must alternate". Seen:
    nesquena/hermes-webui#3276.
    Repair: their texts become one message, a blank line between them, lossless; where a message but the last has
    calls or parts, the run is named only.
    """
    base, places = hit.value
    run = [at(scene.body, (*base, place)) for place in places]
    plain = all(isinstance(message.get("content"), str | None) for message in run)
    if not plain or any(message.get("tool_calls") or message.get("function_call") for message in run[:-1]):
        yield Fix(hit.path, Repair.DETECT, before=run[0].get("role"), note="messages that no text can join")
        return
    text = "\n\n".join(message["content"] for message in run if message.get("content"))
    edits: tuple[BodyEdit, ...] = (Set((*base, places[-1], "content"), text or run[-1].get("content")),)
    yield Fix(hit.path, Repair.LOSSLESS, (*edits, *(Drop((*base, place)) for place in places[:-1])), after=text)


def check_trailing_space(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """The last assistant message ends in white space.

    Fires on Anthropic under `anthropic-prefill`: "final assistant content cannot end with trailing whitespace". Seen:
    langchain-ai/langchain#35072.
    Repair: that white space goes, lossless; other messages keep theirs.
    """
    if scene.demands["prefill"] == "allowed":
        after = hit.value.rstrip()
        yield Fix(hit.path, Repair.LOSSLESS, (Set(hit.path, after),), hit.value, after)


def check_image_type(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An image whose media type is none that the API takes, or not its own.

    Fires on Anthropic (jpeg, png, gif, webp): "image was specified using the image/png media type, but the image
    appears to be a image/jpeg image". Seen: anthropics/claude-code#7052.
    Repair: the type that its first bytes say, lossless; a text in its place where that is none, a placeholder.
    """
    block, _ = hit.value
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64" or not isinstance(source.get("data"), str):
        return
    declared, actual = source.get("media_type"), image_type(source["data"])
    if actual is not None and actual != declared:
        path = (*hit.path, "source", "media_type")
        yield Fix(path, Repair.LOSSLESS, (Set(path, actual),), declared, actual)
    elif actual is None and declared not in _IMAGE_TYPES:
        yield _omitted(hit, f"media type {str(declared)[:64]} is not accepted", declared)


def check_image_size(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An image with more pixels on a side than the API takes.

    Fires on Anthropic: 8,000, and 2,000 where the request has more than 20 images, so that a new image can break an
    old one. Seen: anthropics/claude-code#13480.
    Repair: a text in its place, a placeholder.
    """
    block, count = hit.value
    source = block.get("source")
    size = image_size(source["data"]) if isinstance(source, dict) and isinstance(source.get("data"), str) else None
    limit = _MAX_PIXELS_OF_MANY if count > _MANY_IMAGES else _MAX_PIXELS
    if size is not None and max(size) > limit:
        yield _omitted(hit, f"{size[0]}x{size[1]} exceeds the {limit} px limit", f"{size[0]}x{size[1]}")


def _omitted(hit: Hit, why: str, before: Any) -> Fix:
    text = {"type": "text", "text": f"[image omitted: {why}]"}
    return Fix(hit.path, Repair.PLACEHOLDER, (Set(hit.path, text),), before, text)


def check_image_part(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An image for a model that has no image input.

    Fires on every wire under `text-only`. Seen: nesquena/hermes-webui#2297.
    Repair: a text in its place, a placeholder; the store keeps the image.
    """
    text: dict[str, Any] = {"text": _NO_IMAGES}
    if scene.wire is not Wire.GEMINI:
        text = {"type": "input_text" if hit.value.get("type") == "input_image" else "text", **text}
    yield Fix(hit.path, Repair.PLACEHOLDER, (Set(hit.path, text),), hit.value.get("type"), text)


def check_empty_text(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A text that is empty or white space only.

    Fires on Anthropic, in messages but for a last one that is a mere text ("text content blocks must be non-empty",
    "must contain non-whitespace text"); inside tool results under `bedrock`; elsewhere under `strict-empty-text`.
    Seen: BerriAI/litellm#34822, NousResearch/hermes-agent#70909 and #55093.
    Repair: the block goes, and its message where nothing is left in it, lossless: a sentence in its place was echoed
    by the model. A tool result without any other text becomes `""`, which is legal.
    """
    text, owner = hit.value
    edits: tuple[BodyEdit, ...] = (Drop(hit.path, owner),)
    if isinstance(hit.path[-1], str):
        edits = (Drop(owner),)
    elif owner == hit.path[:-1] and owner != ("system",):
        edits = (Set(owner, ""),)
    yield Fix(hit.path, Repair.LOSSLESS, edits, text)


_CHAT: Final = (Wire.OPENAI_CHAT,)
_ANTHROPIC: Final = (Wire.ANTHROPIC,)
_MESSAGES: Final = (Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES, Wire.ANTHROPIC)

# In the order in which they run; empty texts last, since other repairs make some.
RULES: Final[tuple[EgressRule, ...]] = (
    make_rule("lone-surrogate", Trigger.HALF, Repair.LOSSY, check_half, errors=("surrogates not allowed",)),
    make_rule(
        "empty-tool-calls-array",
        Trigger.EMPTY_CALLS,
        Repair.LOSSLESS,
        check_empty_calls,
        wires=_CHAT,
        errors=("tool_calls: empty array", "Invalid 'messages[1].tool_calls': empty array"),
    ),
    make_rule(
        "content-missing-key",
        Trigger.MISSING_CONTENT,
        Repair.LOSSLESS,
        check_missing_content,
        wires=_CHAT,
        errors=("missing field content",),
    ),
    make_rule(
        "content-null",
        Trigger.NULL_CONTENT,
        Repair.LOSSLESS,
        check_null_content,
        wires=_CHAT,
        demand="content-text",
        errors=("'content' field must be a string or an array of objects",),
    ),
    make_rule("tool-content-not-string", Trigger.OUTPUT, Repair.LOSSLESS, check_output, wires=_MESSAGES),
    make_rule(
        "field-not-permitted",
        Trigger.REASONING_CONTENT,
        Repair.LOSSY,
        check_field,
        wires=_CHAT,
        demand="reasoning-content",
        errors=("Extra inputs are not permitted",),
    ),
    make_rule(
        "reasoning-content-missing",
        Trigger.REASONING_CONTENT,
        Repair.LOSSLESS,
        check_reasoning_content,
        wires=_CHAT,
        demand="reasoning-content",
        errors=("Missing `reasoning_content` field in the assistant message",),
    ),
    make_rule(
        "image-media-mismatch",
        Trigger.IMAGE,
        Repair.PLACEHOLDER,
        check_image_type,
        wires=_ANTHROPIC,
        errors=("image was specified using the ... media type, but the image appears",),
    ),
    make_rule(
        "image-too-large",
        Trigger.IMAGE,
        Repair.PLACEHOLDER,
        check_image_size,
        wires=_ANTHROPIC,
        moves_prefix=True,
        errors=("image dimensions exceed max allowed size",),
    ),
    make_rule("image-unsupported", Trigger.IMAGE_PART, Repair.PLACEHOLDER, check_image_part, demand="text-only"),
    make_rule(
        "trailing-whitespace-final-assistant",
        Trigger.TRAILING_SPACE,
        Repair.LOSSLESS,
        check_trailing_space,
        wires=_ANTHROPIC,
        demand="prefill",
        moves_prefix=True,
        errors=("final assistant content cannot end with trailing whitespace",),
    ),
    make_rule(
        "empty-text-block",
        Trigger.EMPTY_TEXT,
        Repair.LOSSLESS,
        check_empty_text,
        wires=_MESSAGES,
        moves_prefix=True,
        errors=(
            "text content blocks must be non-empty",
            "text content blocks must contain non-whitespace text",
            "messages: text content blocks must be non-empty",
        ),
    ),
    make_rule(
        "roles-not-alternating",
        Trigger.SAME_ROLE,
        Repair.LOSSLESS,
        check_roles,
        wires=_CHAT,
        demand="roles-alternate",
        moves_prefix=True,
        errors=("Conversation roles must alternate",),
    ),
)
