"""Poison that has spread: a stored tool call whose arguments are another message's clip.

1. A call carries a clip where its text is the text of a latch or holds a known marker, and it is no JSON. Valid JSON
   is suspect only where it is a latch's text and does not hash to the message's id.
2. Free-form input of a custom tool may quote a marker: it is left alone where it hashes to its id and is no latch's.
3. The original comes back where all other copies with that call id agree in tool name and text, and, where the id is
   one the kernel derives from content, it hashes to the id. Else the placeholder stands in its stead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from latchguard.core.arguments import PLACEHOLDER_ARGUMENTS
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Replace, format_path
from latchguard.core.jsontext import Verdict, check_json, dump_json
from latchguard.core.message import Kind
from latchguard.core.proof import has_marker
from latchguard.repair.plans import Change, PlanOptions
from latchguard.sources.bili import QUARANTINE, BiliMessage, BiliView, hashes_to_id, is_kernel_id

__all__ = ["ARGS_INVALID_JSON", "check_spread"]

ARGS_INVALID_JSON: Final = "args-invalid-json"


def check_spread(view: BiliView, options: PlanOptions) -> Iterator[Change]:
    """Find the stored tool calls that carry a clip, in `messages` and in `pluginSnapshot`."""
    calls = [entry for entry in view.copies if entry.message.kind is Kind.TOOL_CALL]
    shown = frozenset(_latch_texts(view))
    poisoned = [entry for entry in calls if _carries_clip(entry, shown, options)]
    healthy = [entry for entry in calls if entry not in poisoned]
    for entry in poisoned:
        original = _recover(entry, healthy)
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


def _recover(entry: BiliMessage, healthy: Collection[BiliMessage]) -> str | None:
    """Give the original arguments of a poisoned call, or None where nothing in the session vouches for them."""
    call = entry.message.tool_call_id
    copies = {
        (other.message.tool_name, other.message.text)
        for other in healthy
        if call is not None and other.message.tool_call_id == call
    }
    if len(copies) != 1:
        return None
    name, text = copies.pop()
    vouched = name == entry.message.tool_name and check_json(text) is Verdict.VALID
    if vouched and is_kernel_id(entry.message.id):
        vouched = hashes_to_id(entry.stored, text)
    return text if vouched else None
