"""Poison that has spread: a stored tool call whose arguments are another message's clip.

1. A call carries a clip where its text is the text of a latch or holds a known marker, and it is no JSON. Valid JSON
   is suspect only where it is a latch's text and does not hash to the message's id.
2. Free-form input of a custom tool may quote a marker: it is left alone where it hashes to its id and is no latch's.
3. The original comes back where all other copies with that call id agree in tool name and text, and, where the id is
   one the kernel derives from content, it hashes to the id. Where there is no copy, JSON in the text of a folded block
   that hashes to the id is the original too. Else the placeholder stands in its stead.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Path, Replace, format_path
from latchguard.core.jsontext import Verdict, check_json, dump_json
from latchguard.core.proof import has_marker
from latchguard.repair.plans import Change, PlanOptions
from latchguard.sources.bili import QUARANTINE, BiliMessage, BiliView, hashes_to_id, is_kernel_id

__all__ = ["ARGS_INVALID_JSON", "check_spread"]

ARGS_INVALID_JSON: Final = "args-invalid-json"
_Copy: TypeAlias = tuple[str | None, str]  # tool name and text
_DECODER: Final = json.JSONDecoder()
_MAX_OBJECTS: Final = 1000  # tried per folded text: each may read to its end


def check_spread(view: BiliView, options: PlanOptions) -> Iterator[Change]:
    """Find the stored tool calls that carry a clip, in `messages` and in `pluginSnapshot`."""
    shown = frozenset(_latch_texts(view))
    if not any(text in shown or has_marker(text, options.markers) for text in view.call_texts):
        return
    poisoned = [entry for entry in view.calls if _carries_clip(entry, shown, options)]
    copies = _collect_copies(view.calls, {entry.path for entry in poisoned})
    for entry in poisoned:
        original = _recover(entry, copies.get(entry.message.tool_call_id, set()), view.folded)
        path = (*entry.path, "text")
        after = PLACEHOLDER_ARGUMENTS if original is None else original
        finding = Finding(
            ARGS_INVALID_JSON,
            format_path(path),
            Repair.PLACEHOLDER if original is None else Repair.LOSSLESS,
            applied=False,
            before=entry.message.text,
            after=after,
            note="the arguments are a clip of another message",
            tool_name=entry.message.tool_name,
        )
        yield Change(finding, (Replace(path, dump_json(after)),))


def _latch_texts(view: BiliView) -> Iterator[str]:
    yield from (latch.text for latch in view.latches)
    quarantined = view.state.get(QUARANTINE)
    for record in quarantined if isinstance(quarantined, list) else ():
        text: Any = record.get("text") if isinstance(record, dict) else None
        if isinstance(text, str):
            yield text


def _carries_clip(entry: BiliMessage, shown: Collection[str], options: PlanOptions) -> bool:
    text = entry.message.text
    latched = text in shown
    if not text or not (latched or has_marker(text, options.markers)):
        return False
    own = hashes_to_id(entry.stored, text)
    if check_json(text) is Verdict.VALID:
        return latched and is_kernel_id(entry.message.id) and not own
    return latched or not own


def _collect_copies(calls: Iterable[BiliMessage], poisoned: Collection[Path]) -> dict[str | None, set[_Copy]]:
    """Give tool name and text of the calls that carry no clip, by call id."""
    copies: dict[str | None, set[_Copy]] = defaultdict(set)
    for entry in calls:
        message = entry.message
        if entry.path not in poisoned and message.tool_call_id is not None:
            copies[message.tool_call_id].add((message.tool_name, message.text))
    return copies


def _recover(entry: BiliMessage, copies: Collection[_Copy], folded: Iterable[str]) -> str | None:
    """Give the original arguments of a poisoned call, or None where nothing in the session vouches for them."""
    derived = is_kernel_id(entry.message.id)
    if not copies and derived:
        return next((text for text in _objects(folded) if hashes_to_id(entry.stored, text)), None)
    if len(copies) != 1:
        return None
    name, text = next(iter(copies))
    vouched = name == entry.message.tool_name and check_json(text) is Verdict.VALID
    return text if vouched and (not derived or hashes_to_id(entry.stored, text)) else None


def _objects(texts: Iterable[str]) -> Iterator[str]:
    """Give the JSON objects that stand in *texts*, outermost only."""
    for text in texts:
        position = text.find("{")
        for _ in range(_MAX_OBJECTS):
            if position < 0:
                break
            try:
                _, end = _DECODER.raw_decode(text, position)
            except (ValueError, RecursionError):
                end = position + 1
            else:
                yield text[position:end]
            position = text.find("{", end)
