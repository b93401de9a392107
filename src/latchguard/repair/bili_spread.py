"""Poison that has spread: a stored tool call whose arguments are another message's clip.

1. A call carries a clip where its text is the text of a latch or holds a known marker, and it is no JSON. Valid JSON
   is suspect only where it is a latch's text and does not hash to the message's id.
2. Free-form input of a custom tool may quote a marker: it is left alone where it hashes to its id and is no latch's.
3. A call of no JSON that is no clip, but not what its id was made of either, is suspect: reported, and repaired where
   the original is there.
4. The original comes back where all other copies with that call id agree in tool name and text, and, where the id is
   one the kernel derives from content, it hashes to the id. Where there is no copy, JSON in the text of a folded block
   that hashes to the id is the original too. Else the placeholder stands in its stead.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

from attrs import evolve

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Replace, format_path
from latchguard.core.jsontext import Verdict, check_json, dump_json
from latchguard.core.proof import has_marker
from latchguard.repair.plans import Change, PlanOptions
from latchguard.sources.bili import QUARANTINE, BiliMessage, BiliView, hashes_to_id, is_kernel_id

__all__ = ["ARGS_INVALID_JSON", "check_spread"]

ARGS_INVALID_JSON: Final = "args-invalid-json"
_CLIP: Final = "the arguments are a clip of another message"
_FOREIGN: Final = "the arguments are no JSON, and not the text that the message's id was made of"
_Copy: TypeAlias = tuple[str | None, str]  # tool name and text
_DECODER: Final = json.JSONDecoder()
_MAX_OBJECTS: Final = 1000  # tried per folded text: each may read to its end


def check_spread(view: BiliView, options: PlanOptions) -> Iterator[Change]:
    """Find the stored tool calls that carry a clip, in `messages` and in `pluginSnapshot`."""
    shown = frozenset(_latch_texts(view))
    texts = view.call_texts
    quoted = any(match for marker in options.markers for match in map(marker.search, texts))
    if not quoted and shown.isdisjoint(texts) and not any(map(_is_odd, texts)):  # nearly all sessions
        return
    faults = {entry.path: _find_fault(entry, shown, options) for entry in view.calls}
    copies = _collect_copies(entry for entry in view.calls if not faults[entry.path])
    for entry in view.calls:
        if fault := faults[entry.path]:
            original = _recover(entry, copies.get(entry.message.tool_call_id, set()), view.folded)
            yield _change(entry, fault, original)


def _change(entry: BiliMessage, fault: str, original: str | None) -> Change:
    path = (*entry.path, "text")
    finding = Finding(
        ARGS_INVALID_JSON,
        format_path(path),
        Repair.LOSSLESS,
        applied=False,
        before=entry.message.text,
        after=original,
        note=fault,
        tool_name=entry.message.tool_name,
    )
    if original is None and fault != _CLIP:
        return Change(evolve(finding, repair=Repair.DETECT))
    if original is None:
        finding = evolve(finding, repair=Repair.PLACEHOLDER, after=PLACEHOLDER_ARGUMENTS)
    return Change(finding, (Replace(path, dump_json(finding.after)),))


def _latch_texts(view: BiliView) -> Iterator[str]:
    yield from (latch.text for latch in view.latches)
    quarantined = view.state.get(QUARANTINE)
    for record in quarantined if isinstance(quarantined, list) else ():
        text: Any = record.get("text") if isinstance(record, dict) else None
        if isinstance(text, str):
            yield text


def _is_odd(text: str) -> bool:
    """Say whether *text* does not even look like an object: cheap, for the many that do."""
    return text != "" and not (text[0] == "{" and text[-1] == "}")


def _find_fault(entry: BiliMessage, shown: Collection[str], options: PlanOptions) -> str:
    """Say what is wrong with the arguments of a call; empty where nothing is."""
    text = entry.message.text
    latched = text in shown
    if not text or not (latched or _is_odd(text) or has_marker(text, options.markers)):
        return ""
    derived, own = is_kernel_id(entry.message.id), hashes_to_id(entry.stored, text)
    if check_json(text) is Verdict.VALID:
        return _CLIP if latched and derived and not own else ""
    if latched or (has_marker(text, options.markers) and not own):
        return _CLIP
    return _FOREIGN if derived and not own else ""


def _collect_copies(calls: Iterable[BiliMessage]) -> dict[str | None, set[_Copy]]:
    """Give tool name and text of the calls without a fault, by call id."""
    copies: dict[str | None, set[_Copy]] = defaultdict(set)
    for entry in calls:
        if entry.message.tool_call_id is not None:
            copies[entry.message.tool_call_id].add((entry.message.tool_name, entry.message.text))
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
