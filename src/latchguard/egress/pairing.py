"""Rules of the area `pairing`: every call has its result, every result its call, each at its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from latchguard.core.arguments import decode_arguments
from latchguard.core.findings import Repair, Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.draft import AsBlocks, BodyEdit, Drop, Put, Set
from latchguard.egress.layout import at, is_list
from latchguard.egress.plain import OUTPUT_TYPES, plainly_paired
from latchguard.egress.profiles import Demands
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger, make_rule
from latchguard.egress.turns import Block, Pairing, Turn, Waiting, pair_turns

__all__ = ["CONTINUE_TEXT", "NO_RESULT_TEXT", "RULES", "pairing_hits"]

# Constant, so that the provider's prefix cache holds; they never say that the tool did not run.
NO_RESULT_TEXT: Final = (
    "[no result recorded: the call was interrupted before a result was stored; it may or may not have run]"
)
CONTINUE_TEXT: Final = "[continue]"

_CALL_ID: Final = {Wire.OPENAI_CHAT: "id", Wire.OPENAI_RESPONSES: "call_id", Wire.ANTHROPIC: "id"}
_RESULT_ID: Final = {
    Wire.OPENAI_CHAT: "tool_call_id",
    Wire.OPENAI_RESPONSES: "call_id",
    Wire.ANTHROPIC: "tool_use_id",
}
_BLOCKS: Final = {Wire.ANTHROPIC: "content", Wire.GEMINI: "parts"}


def pairing_hits(body: Any, wire: Wire, demands: Demands) -> dict[Trigger, list[Hit]]:
    """Pair the calls and results of *body* and give what does not pair."""
    hits: dict[Trigger, list[Hit]] = {}
    if plainly_paired(body, wire):
        return hits
    for pairing in pair_turns(body, wire, join="turns-apart" not in demands):
        for trigger, hit in _hits(pairing, body, wire, demands):
            hits.setdefault(trigger, []).append(hit)
    return hits


def _hits(pairing: Pairing, body: Any, wire: Wire, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    yield from _repeated_calls(pairing, body, wire, demands)
    yield from _strays(pairing, body, wire)
    yield from _turn_hits(pairing, body, wire)
    if wire is Wire.OPENAI_RESPONSES:
        yield from _kind_mismatches(pairing)
    if wire is Wire.ANTHROPIC:
        yield from _server_tools(pairing, body)


def _repeated_calls(pairing: Pairing, body: Any, wire: Wire, demands: Demands) -> Iterator[tuple[Trigger, Hit]]:
    messages = at(body, pairing.base)
    tolerated = wire is Wire.OPENAI_CHAT and "unique-call-ids" not in demands
    counts: dict[str, int] = {}
    told: set[Any] = set()
    for call in (call for turn in pairing.turns for call in turn.calls if wire is not Wire.GEMINI):
        call_id = str(call.call_id)
        if wire is Wire.OPENAI_CHAT and (twins := _other_dialect(call, messages)):
            yield Trigger.REPEATED_CALL, Hit(call.path, ("dialect", twins), call.name)
        earlier = counts.get(call_id, 0)
        counts[call_id] = earlier + 1
        if not earlier:
            continue
        place: Any = call.path[len(pairing.base)]
        if messages[place - 1] == messages[place]:
            if place not in told:
                yield Trigger.REPEATED_CALL, Hit((*pairing.base, place), ("repeat", None), call.name)
            told.add(place)
        elif call_id in pairing.tangled:
            if call_id not in told:
                yield Trigger.REPEATED_CALL, Hit(call.path, ("tangled", call), call.name)
            told.add(call_id)
        elif not (tolerated and call.path in pairing.answers):
            name = _new_id(call_id, earlier, counts)
            counts[name] = 1
            yield (
                Trigger.REPEATED_CALL,
                Hit(call.path, ("rename", (call, pairing.answers.get(call.path), name)), call.name),
            )


def _new_id(call_id: str, number: int, known: dict[str, int]) -> str:
    """Give an id that no call up to here bears: it depends on nothing later, so that a prefix keeps its names."""
    while (name := f"{call_id}_dup{number}") in known:
        number += 1
    return name


def _other_dialect(call: Block, messages: Sequence[Any]) -> list[int]:
    """Places of `tool_use` blocks with the id of *call* in the content of its own message."""
    message: Any = call.path[-3]  # of (..., message, "tool_calls", number)
    content = messages[message].get("content")
    return [
        place
        for place, block in enumerate(content if is_list(content) else ())
        if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("id") == call.call_id
    ]


def _strays(pairing: Pairing, body: Any, wire: Wire) -> Iterator[tuple[Trigger, Hit]]:
    """Results at a wrong place, second results, orphans; then the calls that stay without any."""
    waiting = Waiting(named=wire is Wire.GEMINI)
    for number, call in pairing.open_calls:
        if call.call_id not in pairing.tangled:
            waiting.add(number, call)
    moves: dict[int, list[tuple[Block, Block]]] = {}
    split: dict[int, bool] = {}
    elsewhere = _calls_live_elsewhere(pairing, body, wire)
    known: dict[Any, Block] = {call.call_id: call for turn in pairing.turns for call in turn.calls if call.call_id}
    for number, result in pairing.strays:
        if result.call_id in pairing.tangled:
            continue
        target = waiting.take_nearest(number, result)
        if target is not None:
            moves.setdefault(target[0], []).append((target[1], result))
            is_split = number > target[0] + 1 and all(
                pairing.turns[between].side == "result" and pairing.turns[between].results
                for between in range(target[0] + 1, number)
            )
            split[target[0]] = split.get(target[0], True) and is_split
        elif result.call_id in known:
            answer = pairing.answers.get(known[result.call_id].path)
            yield Trigger.REPEATED_RESULT, Hit(result.path, (result, answer), known[result.call_id].name)
        elif not elsewhere:
            yield Trigger.ORPHAN, Hit(result.path, result, result.name)
    for number, pairs in moves.items():
        trigger = Trigger.SPLIT_RESULTS if split[number] else Trigger.MISPLACED_RESULTS
        yield trigger, Hit(pairs[0][0].path, (pairing, number, pairs))
    yield from _open_calls(pairing, waiting.rest(), wire, elsewhere=elsewhere)


def _calls_live_elsewhere(pairing: Pairing, body: Any, wire: Wire) -> bool:
    """Whether the server may hold the call of a result, so that no orphan can be told."""
    if wire is not Wire.OPENAI_RESPONSES or not isinstance(body, dict):
        return False
    items = at(body, pairing.base)
    return (
        pairing.base == ("items",)
        or any(body.get(key) is not None for key in ("previous_response_id", "conversation"))
        or any(isinstance(item, dict) and item.get("type") == "item_reference" for item in items)
    )


def _open_calls(
    pairing: Pairing, waiting: Iterable[tuple[int, Block]], wire: Wire, *, elsewhere: bool
) -> Iterator[tuple[Trigger, Hit]]:
    if elsewhere and pairing.base == ("items",):
        return
    turns: dict[int, list[Block]] = {}
    for number, call in waiting:
        if wire is Wire.OPENAI_RESPONSES and call.kind not in OUTPUT_TYPES:
            continue
        if wire is Wire.GEMINI and call.name is None:
            continue
        turns.setdefault(number, []).append(call)
    for number, calls in turns.items():
        yield Trigger.OPEN_CALLS, Hit(calls[0].path, (pairing, number, calls))


def _turn_hits(pairing: Pairing, body: Any, wire: Wire) -> Iterator[tuple[Trigger, Hit]]:
    turns = pairing.turns
    for number, turn in enumerate(turns):
        late = [result for result in turn.late if result.call_id not in pairing.tangled]
        if late and number and turns[number - 1].calls:
            yield Trigger.LATE_RESULTS, Hit(late[0].path, (pairing, number - 1, late))
    if wire is Wire.GEMINI and turns and turns[0].calls and turns[0].first == 0:
        yield Trigger.CALL_TURN, Hit((*pairing.base, 0), pairing.base)
    messages = at(body, pairing.base)
    if turns and turns[-1].side == "call" and turns[-1].last == len(messages) - 1 and wire in _BLOCKS:
        yield Trigger.TRAILING_MODEL, Hit((*pairing.base, len(messages) - 1), pairing.base)


def _kind_mismatches(pairing: Pairing) -> Iterator[tuple[Trigger, Hit]]:
    for turn in pairing.turns:
        for call in turn.calls:
            answer = pairing.answers.get(call.path)
            wanted = OUTPUT_TYPES.get(call.kind)
            if answer and wanted and answer.kind in OUTPUT_TYPES.values() and answer.kind != wanted:
                yield Trigger.KIND_MISMATCH, Hit(answer.path, (answer.kind, wanted), call.name)


def _server_tools(pairing: Pairing, body: Any) -> Iterator[tuple[Trigger, Hit]]:
    """Pairs that the provider made inside assistant messages: a use without its result, a result without its use."""
    uses: dict[Any, tuple[Path, Any]] = {}
    messages = at(body, pairing.base)
    last = max((turn.last for turn in pairing.turns if turn.side == "call"), default=-1)
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") != "assistant" or not is_list(message.get("content")):
            continue
        for number, block in enumerate(message["content"]):
            kind = block.get("type") if isinstance(block, dict) else None
            path = (*pairing.base, place, "content", number)
            if kind in ("server_tool_use", "mcp_tool_use") and isinstance(block.get("id"), str):
                uses[block["id"]] = (path, block)
            elif _is_server_result(kind, block) and uses.pop(block["tool_use_id"], None) is None:
                yield Trigger.SERVER_TOOL, Hit(path, block)
    for path, block in uses.values():
        if path[len(pairing.base)] != last:
            yield Trigger.SERVER_TOOL, Hit(path, block)


def _is_server_result(kind: Any, block: Any) -> bool:
    return isinstance(kind, str) and kind.endswith("_tool_result") and isinstance(block.get("tool_use_id"), str)


def check_repeated_call(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """An id that an earlier call has.

    Fires on Responses ("Duplicate function_call_output for call_id") and Anthropic ("tool_use ids must be unique");
    on chat, whose servers pair by place, only where the later call has no result of its own, or under `strict-ids`
    ("tool call result does not follow tool call"); on chat too where one message holds a call in two dialects.
    Seen: can1357/oh-my-pi#2055, mnfst/llm-gateway#2858, BerriAI/litellm#23510.
    Repair: pairing is positional: where calls and results alternate, the later pair is renamed at both ends; an exact
    repeat of the message before goes; the second dialect of a call goes. All lossless. Where nobody can say which
    result is whose, it is named, and no other pairing rule touches that id.
    """
    kind, found = hit.value
    if kind == "repeat":
        before = at(scene.body, hit.path)
        yield Fix(hit.path, Repair.LOSSLESS, (Drop(hit.path),), before, note="repeats the message before it")
    elif kind == "dialect":
        yield _without_dialect(hit, scene, found)
    elif kind == "tangled":
        note = "which result belongs to which call cannot be known"
        yield Fix(hit.path, Repair.DETECT, before=found.call_id, note=note, tool_name=hit.tool_name)
    else:
        call, answer, name = found
        edits: tuple[BodyEdit, ...] = (Set((*call.path, _CALL_ID[scene.wire]), name),)
        if answer is not None:
            edits += (Set((*answer.path, _RESULT_ID[scene.wire]), name),)
        yield Fix(hit.path, Repair.LOSSLESS, edits, call.call_id, name, tool_name=hit.tool_name)


def _without_dialect(hit: Hit, scene: Scene, places: Sequence[int]) -> Fix:
    call = at(scene.body, hit.path)
    path = (*hit.path[:-2], "content")
    content = at(scene.body, path)
    function = call.get("function")
    arguments = decode_arguments(function.get("arguments")) if isinstance(function, dict) else None
    same = all(
        content[place].get("name") == hit.tool_name and (content[place].get("input") or {}) == (arguments or {})
        for place in places
    )
    if not same:
        return Fix(hit.path, Repair.DETECT, before=call.get("id"), note="two dialects of one call differ")
    edits = [Drop((*path, place)) for place in places]
    whole = len(places) == len(content)
    return Fix(
        hit.path, Repair.LOSSLESS, (Set(path, None),) if whole else tuple(edits), content, tool_name=hit.tool_name
    )


def check_kind(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A result of another type than its call: a `function_call_output` for a `custom_tool_call`, or the reverse.

    Fires on Responses. Documented: each call type has its own output type; "No tool output found for custom tool
    call". Seen: Soju06/codex-lb#1168.
    Repair: the type, lossless.
    """
    found, wanted = hit.value
    yield Fix(hit.path, Repair.LOSSLESS, (Set((*hit.path, "type"), wanted),), found, wanted, tool_name=hit.tool_name)


def check_split(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Results of one turn in several user messages.

    Fires under `anthropic-compat-strict` only: the API itself joins adjacent messages of one role. Seen:
    AstrBotDevs/AstrBot#7871, "tool_use without tool_result immediately after".
    Repair: they move into the first of those messages, lossless.
    """
    yield from _moved(hit, scene)


def check_misplaced(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A result that does not stand where its call's results belong.

    Fires on a result whose call is open elsewhere: behind a text, another turn, or before the call. On Responses only
    where it stands before its call. Seen: leookun/cursor-byok#307, langchain-ai/langgraphjs#1423.
    Repair: the real result moves to its place, lossless.
    """
    yield from _moved(hit, scene)


def check_repeated_result(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A second result of one call.

    Fires on every wire. Seen: Kilo-Org/kilocode#3772; "Duplicate function_call_output for call_id".
    Repair: the later one goes: lossless where both are equal, else lossy, and it stands in the finding.
    """
    result, answer = hit.value
    equal = answer is not None and answer.value == result.value
    repair = Repair.LOSSLESS if equal else Repair.LOSSY
    yield Fix(hit.path, repair, (_drop(hit.path, scene.wire),), result.value, tool_name=hit.tool_name)


def check_orphan(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A result without a call.

    Fires on every wire; not on Responses where the server may hold the call (`previous_response_id`, `conversation`,
    conversation items, an `item_reference`). Documented: "messages with role 'tool' must be a response to a
    preceeding message with 'tool_calls'"; "unexpected tool_use_id found in tool_result blocks". Seen:
    microsoft/autogen#7955, langchain-ai/langchain#38352, anthropics/claude-code#11042, google/adk-python#6582.
    Repair: only that block goes, and its message where nothing is left in it; lossy; it stands in the finding.
    """
    result = hit.value
    yield Fix(hit.path, Repair.LOSSY, (_drop(hit.path, scene.wire),), result.value, tool_name=hit.tool_name)


def check_open(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A call without a result.

    Fires on every wire; an open call at the end is legal under `stored`. Documented: "An assistant message with
    'tool_calls' must be followed by tool messages", "No tool output found for function call", "tool_use ids were
    found without tool_result blocks immediately after", "number of function response parts is equal to the number of
    function call parts". Seen: MoonshotAI/kimi-code#269, anthropics/claude-code#685, google-gemini/gemini-cli#5443.
    Repair: a placeholder result of the call's own kind, after the real ones: a chat `tool` message, a Responses
    output of the call's type, an Anthropic `tool_result` with `is_error`, a Gemini `response` with `error`.
    """
    pairing, number, calls = hit.value
    if "open-tail" in scene.demands and _is_tail(pairing, number):
        return
    made = [_placeholder(call, scene.wire) for call in calls]
    edits = _place(scene, pairing, number, made)
    for place, call in enumerate(calls):
        yield Fix(
            call.path,
            Repair.PLACEHOLDER,
            tuple(edits) if place == 0 else (),
            call.call_id or call.name,
            made[place],
            tool_name=call.name,
        )


def check_late(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Results that do not come first in their user turn.

    Fires on Anthropic. Documented: in the user message the tool_result blocks must come first, text after all of
    them. Seen: langchain-ai/langgraphjs#1423.
    Repair: they move to the front, behind those that are there, lossless.
    """
    pairing, number, late = hit.value
    edits: list[BodyEdit] = [_drop(result.path, scene.wire) for result in late]
    edits += _place(scene, pairing, number, [result.value for result in late])
    for place, result in enumerate(late):
        yield Fix(result.path, Repair.LOSSLESS, tuple(edits) if place == 0 else (), result.call_id, result.call_id)


def check_server_tool(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """Half of a pair that the provider itself made: `server_tool_use` or `mcp_tool_use`, and its result block.

    Fires on Anthropic, inside assistant messages: a result whose use does not stand before it, a use whose result is
    nowhere, but for the last assistant turn, which may be paused. Seen: anthropics/claude-code#62577.
    Repair: that block goes, lossy; it stands in the finding.
    """
    yield Fix(hit.path, Repair.LOSSY, (_drop(hit.path, scene.wire),), hit.value)


def check_call_turn(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """A model turn with calls that no user turn precedes.

    Fires on Gemini, at the start of `contents`. Documented: "Please ensure that function call turn comes immediately
    after a user turn or after a function response turn."
    Repair: a placeholder user turn before it.
    """
    made = {"role": "user", "parts": [{"text": CONTINUE_TEXT}]}
    yield Fix(hit.path, Repair.PLACEHOLDER, (Put(hit.value, 0, made),), after=made)


def check_trailing(hit: Hit, scene: Scene) -> Iterator[Fix]:
    """The conversation ends on the model's turn.

    Fires on Gemini, but not under `stored`; on Anthropic under `anthropic-no-prefill` only: elsewhere a last
    assistant message is a prefill. Documented: Anthropic, "The conversation must end with a user message." Seen:
    crewAIInc/crewAI#6973.
    Repair: a placeholder user turn after it.
    """
    if "open-tail" in scene.demands:
        return
    if scene.wire is Wire.ANTHROPIC and scene.demands.get("prefill") != "refused":
        return
    made: dict[str, Any] = {"role": "user", "content": CONTINUE_TEXT}
    if scene.wire is Wire.GEMINI:
        made = {"role": "user", "parts": [{"text": CONTINUE_TEXT}]}
    yield Fix(hit.path, Repair.PLACEHOLDER, (Put(hit.value, int(hit.path[-1]) + 1, made),), after=made)


def _moved(hit: Hit, scene: Scene) -> Iterator[Fix]:
    pairing, number, pairs = hit.value
    edits: list[BodyEdit] = [_drop(result.path, scene.wire) for _, result in pairs]
    edits += _place(scene, pairing, number, [result.value for _, result in pairs])
    for place, (call, result) in enumerate(pairs):
        shown = result.call_id or result.name
        note = "moved to the results of its call"
        yield Fix(result.path, Repair.LOSSLESS, tuple(edits) if place == 0 else (), shown, shown, note, call.name)


def _drop(path: Path, wire: Wire) -> Drop:
    return Drop(path, path[:-2]) if wire in _BLOCKS else Drop(path)


def _placeholder(call: Block, wire: Wire) -> dict[str, Any]:
    if wire is Wire.OPENAI_CHAT:
        return {"role": "tool", "tool_call_id": call.call_id, "content": NO_RESULT_TEXT}
    if wire is Wire.OPENAI_RESPONSES:
        return {"type": OUTPUT_TYPES[call.kind], "call_id": call.call_id, "output": NO_RESULT_TEXT}
    if wire is Wire.ANTHROPIC:
        return {"type": "tool_result", "tool_use_id": call.call_id, "content": NO_RESULT_TEXT, "is_error": True}
    response: dict[str, Any] = {"name": call.name, "response": {"error": NO_RESULT_TEXT}}
    return {"functionResponse": response if call.call_id is None else {"id": call.call_id, **response}}


def _place(scene: Scene, pairing: Pairing, number: int, values: Sequence[Any]) -> list[BodyEdit]:
    """Give the edits that put *values* among the results of turn *number*, after those that are there."""
    base, turns = pairing.base, pairing.turns
    after = turns[number + 1] if number + 1 < len(turns) and turns[number + 1].side == "result" else None
    if scene.wire is Wire.OPENAI_RESPONSES:
        return [Put(base, _end_of_block(turns, number), value) for value in values]
    if scene.wire is Wire.OPENAI_CHAT:
        return [Put(base, (after or turns[number]).last + 1, value) for value in values]
    key = _BLOCKS[scene.wire]
    spot = _spot(scene.body, base, after, key) if after is not None else None
    if spot is None:
        return [Put(base, turns[number].last + 1, {"role": "user", key: list(values)})]
    path, position = spot
    return [AsBlocks(path), *(Put(path, position, value) for value in values)]


def _spot(body: Any, base: Path, turn: Turn, key: str) -> tuple[Path, int] | None:
    """Where in a user turn one more result belongs: after the leading ones, else at the front."""
    leading = [result for result in turn.results if result not in turn.late]
    if leading:
        return leading[-1].path[:-1], int(leading[-1].path[-1]) + 1
    path = (*base, turn.first, key)
    holder = at(body, path[:-1])
    return (path, 0) if is_list(holder.get(key)) or (key == "content" and isinstance(holder.get(key), str)) else None


def _end_of_block(turns: Sequence[Turn], number: int) -> int:
    while number + 1 < len(turns) and turns[number + 1].side:
        number += 1
    return turns[number].last + 1


def _is_tail(pairing: Pairing, number: int) -> bool:
    """Whether nothing but calls and results follows turn *number*."""
    later = pairing.turns[number + 1 :]
    return all(turn.side == "result" and len(turn.results) == turn.last - turn.first + 1 for turn in later) or not later


_NAMED_IDS: Final = (Wire.OPENAI_CHAT, Wire.OPENAI_RESPONSES, Wire.ANTHROPIC)

# In the order in which they run: ids first, since pairing rests on them; open calls when nothing else can answer them.
RULES: Final[tuple[EgressRule, ...]] = (
    make_rule(
        "duplicate-call-id",
        Trigger.REPEATED_CALL,
        Repair.LOSSLESS,
        check_repeated_call,
        wires=_NAMED_IDS,
        errors=(
            "tool_use ids must be unique",
            "Duplicate function_call_output for call_id",
            "tool call result does not follow tool call (2013)",
        ),
        moves_prefix=True,
    ),
    make_rule(
        "output-kind-mismatch",
        Trigger.KIND_MISMATCH,
        Repair.LOSSLESS,
        check_kind,
        wires=(Wire.OPENAI_RESPONSES,),
        errors=("No tool output found for custom",),
    ),
    make_rule(
        "result-split-messages",
        Trigger.SPLIT_RESULTS,
        Repair.LOSSLESS,
        check_split,
        wires=(Wire.ANTHROPIC,),
        demand="turns-apart",
        errors=("tool_use without tool_result immediately after",),
        moves_prefix=True,
    ),
    make_rule(
        "misplaced-result",
        Trigger.MISPLACED_RESULTS,
        Repair.LOSSLESS,
        check_misplaced,
        moves_prefix=True,
        errors=("tool call result does not follow tool call", "tool_use ids were found without tool_result blocks"),
    ),
    make_rule(
        "duplicate-result",
        Trigger.REPEATED_RESULT,
        Repair.LOSSY,
        check_repeated_result,
        errors=("Duplicate function_call_output",),
    ),
    make_rule(
        "orphan-result",
        Trigger.ORPHAN,
        Repair.LOSSY,
        check_orphan,
        moves_prefix=True,
        errors=(
            "messages with role 'tool' must be a response to a preceeding message",
            "unexpected tool_use_id found in tool_result blocks",
            "No function call event found for function responses ids",
            "No tool call found for function call output",
            "orphan 'tool' message",
        ),
    ),
    make_rule(
        "unanswered-call",
        Trigger.OPEN_CALLS,
        Repair.PLACEHOLDER,
        check_open,
        moves_prefix=True,
        errors=(
            "'tool_calls' must be followed by tool messages",
            "tool_call_ids did not have response messages",
            "No tool output found for function call",
            "No tool output found for custom tool call",
            "tool_use ... without tool_result",
            "number of function response parts is equal to the number of function call parts",
            "AI_MissingToolResultsError",
        ),
    ),
    make_rule("result-not-first", Trigger.LATE_RESULTS, Repair.LOSSLESS, check_late, wires=(Wire.ANTHROPIC,)),
    make_rule(
        "server-tool-unpaired",
        Trigger.SERVER_TOOL,
        Repair.LOSSY,
        check_server_tool,
        wires=(Wire.ANTHROPIC,),
        moves_prefix=True,
    ),
    make_rule(
        "call-turn-not-after-user",
        Trigger.CALL_TURN,
        Repair.PLACEHOLDER,
        check_call_turn,
        wires=(Wire.GEMINI,),
        errors=("function call turn comes immediately after a user turn or after a function response turn",),
    ),
    make_rule(
        "trailing-assistant",
        Trigger.TRAILING_MODEL,
        Repair.PLACEHOLDER,
        check_trailing,
        wires=(Wire.GEMINI, Wire.ANTHROPIC),
        errors=("The conversation must end with a user message",),
        moves_prefix=True,
    ),
)
