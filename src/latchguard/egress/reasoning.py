"""Rules of the area `reasoning`: thoughts, their signatures and what must stand beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from latchguard.core.findings import Repair, Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.draft import Drop, Set
from latchguard.egress.layout import at, conversations, is_list
from latchguard.egress.plain import plainly_reasoned
from latchguard.egress.profiles import Demands
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule

__all__ = ["RULES", "SKIP_SIGNATURE", "reasoning_hits"]

# The documented value that tells Gemini not to validate a signature.
SKIP_SIGNATURE: Final = "skip_thought_signature_validator"
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_BOUND: Final = "bound to a different conversation"
_FOREIGN_THINKING: Final = re.compile("invalid .?signature.? in .?thinking.? block", re.IGNORECASE)
_FOREIGN_ENCRYPTED: Final = re.compile(
    "encrypted.content.*could not be verified|invalid_encrypted_content", re.IGNORECASE
)
_FOREIGN_THOUGHT: Final = re.compile("corrupted thought signature", re.IGNORECASE)
_NO_REASONING: Final = re.compile("without its required .?reasoning.? item", re.IGNORECASE)
_NO_THINKING: Final = re.compile("expected .?thinking.? or .?redacted_thinking.?, but found .?tool_use", re.IGNORECASE)


def reasoning_hits(
    body: Any, wire: Wire, demands: Demands, error: str | None, recorded: Any
) -> dict[Trigger, list[Hit]]:
    """Find what holds thoughts, as far as a rule may have to look at it."""
    hits: dict[Trigger, list[Hit]] = {}
    if error is None and recorded is None and "signed-steps" not in demands and plainly_reasoned(body, wire):
        return hits
    for base in conversations(body, wire):
        messages = at(body, base)
        if wire is Wire.OPENAI_RESPONSES:
            found = _responses_hits(messages, base)
        elif wire is Wire.GEMINI:
            found = _gemini_hits(messages, base, demands)
        elif wire is Wire.ANTHROPIC and (error is not None or recorded is not None):
            found = _anthropic_hits(messages, base)
        else:
            continue
        for trigger, hit in found:
            hits.setdefault(trigger, []).append(hit)
    return hits


def _responses_hits(items: Sequence[Any], base: Path) -> Iterator[tuple[Trigger, Hit]]:
    reasoned = False
    followed = _followed(items)
    for place, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        path = (*base, place)
        if kind == "reasoning":
            reasoned = True
            yield Trigger.REASONING, Hit(path, item)
            if not followed[place]:
                yield Trigger.LONE_REASONING, Hit(path, item)
        elif kind == "message" and item.get("role") == "assistant" and isinstance(item.get("id"), str) and reasoned:
            before = items[place - 1]
            if not (isinstance(before, dict) and before.get("type") == "reasoning"):
                yield Trigger.LONE_FOLLOWER, Hit(path, item["id"])


def _followed(items: Sequence[Any]) -> list[bool]:
    """For each place, whether the next item behind it that is no reasoning is the model's own."""
    found = [False] * len(items)
    own = False
    for place in range(len(items) - 1, -1, -1):
        found[place] = own
        item = items[place]
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            own = item.get("role") == "assistant"
        elif kind != "reasoning":  # of what has another shape nobody can say what it is
            own = not (isinstance(kind, str) and kind.endswith("_output"))
    return found


def _gemini_hits(contents: Sequence[Any], base: Path, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    current = _current_turn(contents)
    for place, content in enumerate(contents):
        parts: Any = content.get("parts") if isinstance(content, dict) else None
        first_seen = False
        for number, part in enumerate(parts if is_list(parts) else ()):
            if not isinstance(part, dict):
                continue
            path = (*base, place, "parts", number)
            if any(isinstance(part.get(key), str) for key in _SIGNATURES):
                yield Trigger.SIGNATURE, Hit(path, part)
            call = next(
                (part[key] for key in ("functionCall", "function_call") if isinstance(part.get(key), dict)), None
            )
            if not isinstance(call, dict):
                continue
            if any(key in call for key in _SIGNATURES):
                yield Trigger.NESTED_SIGNATURE, Hit(path, part)
            elif not first_seen and place > current and not any(key in part for key in _SIGNATURES):
                yield Trigger.UNSIGNED, Hit(path, part)
            first_seen = True


def _current_turn(contents: Sequence[Any]) -> int:
    """Place of the last content that a person wrote: signatures are validated behind it only."""
    for place in range(len(contents) - 1, -1, -1):
        content = contents[place]
        parts: Any = content.get("parts") if isinstance(content, dict) else None
        if not is_list(parts) or content.get("role") != "user":
            continue
        if any(isinstance(part, dict) and "text" in part for part in parts):
            return place
    return -1


def _anthropic_hits(messages: Sequence[Any], base: Path) -> Iterator[tuple[Trigger, Hit]]:
    for place, message in enumerate(messages):
        blocks: Any = message.get("content") if isinstance(message, dict) else None
        if not is_list(blocks) or message.get("role") != "assistant":
            continue
        yield Trigger.ANSWER, Hit((*base, place, "content"), blocks)
        for number, block in enumerate(blocks):
            if isinstance(block, dict) and block.get("type") in _THOUGHTS:
                yield Trigger.THOUGHT, Hit((*base, place, "content", number), block)


def check_lone_reasoning(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A reasoning item that nothing of the model's follows.

    Fires on Responses: "Item of type 'reasoning' was provided without its required following item." Seen:
    vercel/ai#7099.
    Repair: the item goes, lossy: it is opaque, nothing visible is lost.
    """
    yield Fix(hit.path, Repair.LOSSY, (Drop(hit.path),), hit.value)


def check_lone_follower(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An assistant message with an id whose reasoning item is used up by an earlier item.

    Fires on Responses under `azure-openai`, or when the error says so: "Item of type 'message' was provided without
    its required 'reasoning' item". Seen: openai/openai-agents-python#3574.
    Repair: the message loses its id and keeps its text, lossless.
    """
    if "reasoning-per-item" in scene.demands or _says(scene, _NO_REASONING):
        yield Fix(hit.path, Repair.LOSSLESS, (Drop((*hit.path, "id")),), hit.value)


def check_reasoning_field(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A reasoning item without `summary`.

    Fires on Responses. Documented: the field is required ("Missing required parameter: 'input[1].summary'").
    Repair: an empty list, lossless.
    """
    if "summary" not in hit.value:
        yield Fix(hit.path, Repair.LOSSLESS, (Set((*hit.path, "summary"), []),), after=[])


def check_encrypted(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Encrypted reasoning that another account, key or provider made.

    Fires on Responses when the error says so ("The encrypted content ... could not be verified"): the body does not
    show it. Seen: openai/codex#8119.
    Repair: the item goes, lossy.
    """
    if hit.value.get("encrypted_content") and _says(scene, _FOREIGN_ENCRYPTED):
        yield Fix(hit.path, Repair.LOSSY, (Drop(hit.path),), hit.value)


def check_nested_signature(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A thought signature inside `functionCall`; its place is the part.

    Fires on Gemini. Documented: `thoughtSignature` is a field of the part. Seen: Wei-Shaw/claude-relay-service#967.
    Repair: it moves to the part, lossless; one that is there already stays.
    """
    key = "functionCall" if "functionCall" in hit.value else "function_call"
    call = hit.value[key]
    found = next(call[name] for name in _SIGNATURES if name in call)
    part = {name: value for name, value in hit.value.items() if name != key}
    rest = {name: value for name, value in call.items() if name not in _SIGNATURES}
    if not any(name in hit.value for name in _SIGNATURES):
        part["thoughtSignature"] = found
    yield Fix(hit.path, Repair.LOSSLESS, (Set(hit.path, {key: rest, **part}),), found, found)


def check_unsigned(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """The first call of a step in the current turn has no thought signature.

    Fires on Gemini under `gemini-3`: "Function call is missing a thought_signature in functionCall parts." Earlier
    turns and parallel calls are legal without. Seen: thClaws/thClaws#65.
    Repair: the documented value that skips validation, a placeholder.
    """
    path = (*hit.path, "thoughtSignature")
    yield Fix(path, Repair.PLACEHOLDER, (Set(path, SKIP_SIGNATURE),), after=SKIP_SIGNATURE)


def check_foreign_signature(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A thought signature of another model or provider.

    Fires on Gemini when the error says so ("Corrupted thought signature."): the body does not show it. Seen:
    decolua/9router#4136.
    Repair: every signature becomes the documented value that skips validation, lossy.
    """
    if not _says(scene, _FOREIGN_THOUGHT):
        return
    for key in _SIGNATURES:
        if isinstance(hit.value.get(key), str) and hit.value[key] != SKIP_SIGNATURE:
            path = (*hit.path, key)
            yield Fix(path, Repair.LOSSY, (Set(path, SKIP_SIGNATURE),), hit.value[key], SKIP_SIGNATURE)


def check_modified(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """The thinking blocks of an assistant message are not as they were received.

    Fires on Anthropic where the blocks that were received are given (`recorded`): "`thinking` blocks in the latest
    assistant message cannot be modified". Seen: anthropics/claude-code#63289.
    Repair: the recorded blocks, lossless.
    """
    for blocks in _recorded(scene.recorded):
        if _is_same_answer(hit.value, blocks) and _thoughts(hit.value) != _thoughts(blocks):
            yield Fix(hit.path, Repair.LOSSLESS, (Set(hit.path, blocks),), hit.value, blocks)
            return


def _recorded(recorded: Any) -> list[list[Any]]:
    """One message's blocks, or a list of those, as a list of those."""
    if not is_list(recorded) or not recorded:
        return []
    return [list(blocks) for blocks in recorded if is_list(blocks)] if is_list(recorded[0]) else [list(recorded)]


def _thoughts(blocks: Sequence[Any]) -> list[Any]:
    return [block for block in blocks if isinstance(block, dict) and block.get("type") in _THOUGHTS]


def _is_same_answer(blocks: Sequence[Any], recorded: Sequence[Any]) -> bool:
    """Whether all but the thoughts is equal, and there is something else."""
    thoughts, known = _thoughts(blocks), _thoughts(recorded)
    others = [block for block in blocks if block not in thoughts]
    return bool(others) and others == [block for block in recorded if block not in known]


def check_missing_thinking(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An assistant message with calls does not begin with its thinking.

    Fires on Anthropic when the error says so: "Expected `thinking` or `redacted_thinking`, but found `tool_use`".
    Repair: none: a signature cannot be made up. Where the received blocks are given, `thinking-modified` puts them
    back.
    """
    first = hit.value[0] if hit.value else None
    calls = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in hit.value)
    if calls and _says(scene, _NO_THINKING) and not (isinstance(first, dict) and first.get("type") in _THOUGHTS):
        yield Fix(hit.path, Repair.DETECT, before=first, note="the message begins without its thinking")


def check_foreign_thinking(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A thinking block that another model or provider signed.

    Fires on Anthropic when the error says so ("Invalid `signature` in `thinking` block"): the body does not show it.
    Seen: can1357/oh-my-pi#6379.
    Repair: the thinking blocks go, and a message where nothing is left, lossy.
    """
    if _says(scene, _FOREIGN_THINKING) and _BOUND not in str(scene.error):
        yield Fix(hit.path, Repair.LOSSY, (Drop(hit.path, hit.path[:-2]),), hit.value)


def check_bound_thinking(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A thinking block that is bound to a history that has changed before it.

    Fires on Anthropic under `anthropic-prefix-bound` when the error says so ("The block is bound to a different
    conversation"): any edit before a block unbinds it, tools and system included.
    Repair: the thinking blocks go, and a message where nothing is left, lossy.
    """
    if _BOUND in str(scene.error):
        yield Fix(hit.path, Repair.LOSSY, (Drop(hit.path, hit.path[:-2]),), hit.value)


def _says(scene: Scene, phrase: re.Pattern[str]) -> bool:
    return isinstance(scene.error, str) and phrase.search(scene.error) is not None


_RESPONSES: Final = (Wire.OPENAI_RESPONSES,)
_GEMINI: Final = (Wire.GEMINI,)
_ANTHROPIC: Final = (Wire.ANTHROPIC,)

# In the order in which they run: what was received is put back before anything is dropped.
RULES: Final[tuple[EgressRule, ...]] = (
    make_rule(
        "encrypted-content-foreign",
        Trigger.REASONING,
        Repair.LOSSY,
        check_encrypted,
        wires=_RESPONSES,
        errors=("The encrypted content ... could not be verified", "invalid_encrypted_content"),
    ),
    make_rule(
        "reasoning-without-follower",
        Trigger.LONE_REASONING,
        Repair.LOSSY,
        check_lone_reasoning,
        wires=_RESPONSES,
        moves_prefix=True,
        errors=("provided without its required following item",),
    ),
    make_rule(
        "follower-without-reasoning",
        Trigger.LONE_FOLLOWER,
        Repair.LOSSLESS,
        check_lone_follower,
        wires=_RESPONSES,
        errors=("was provided without its required 'reasoning' item",),
    ),
    make_rule(
        "reasoning-missing-field",
        Trigger.REASONING,
        Repair.LOSSLESS,
        check_reasoning_field,
        wires=_RESPONSES,
        errors=("Missing required parameter: ...summary",),
    ),
    make_rule(
        "thought-signature-misplaced", Trigger.NESTED_SIGNATURE, Repair.LOSSLESS, check_nested_signature, wires=_GEMINI
    ),
    make_rule(
        "thought-signature-foreign",
        Trigger.SIGNATURE,
        Repair.LOSSY,
        check_foreign_signature,
        wires=_GEMINI,
        errors=("Corrupted thought signature",),
    ),
    make_rule(
        "thought-signature-missing",
        Trigger.UNSIGNED,
        Repair.PLACEHOLDER,
        check_unsigned,
        wires=_GEMINI,
        demand="signed-steps",
        moves_prefix=True,
        errors=("Function call is missing a thought_signature in functionCall parts",),
    ),
    make_rule(
        "thinking-modified",
        Trigger.ANSWER,
        Repair.LOSSLESS,
        check_modified,
        wires=_ANTHROPIC,
        errors=("blocks in the latest assistant message cannot be modified",),
    ),
    make_rule(
        "thinking-missing",
        Trigger.ANSWER,
        Repair.DETECT,
        check_missing_thinking,
        wires=_ANTHROPIC,
        errors=("Expected `thinking` or `redacted_thinking`, but found `tool_use`",),
    ),
    make_rule(
        "thinking-signature-foreign",
        Trigger.THOUGHT,
        Repair.LOSSY,
        check_foreign_thinking,
        wires=_ANTHROPIC,
        errors=("Invalid `signature` in `thinking` block",),
    ),
    make_rule(
        "thinking-prefix-bound",
        Trigger.THOUGHT,
        Repair.LOSSY,
        check_bound_thinking,
        wires=_ANTHROPIC,
        demand="thinking-bound",
        errors=("The block is bound to a different conversation",),
    ),
)
