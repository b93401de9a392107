"""Everything else that a session keys by ref, held against the ref map (I12): rule `stale-ref`, lossless.

1. A record that names its message moves with it: an image record to its message's ref, a block's span to the first
   and last ref of the messages it covers.
2. A ref that nothing in the map knows is removed.
3. No finding, by design: `byRaw["bili:ref-floor"]`, values `BLOCKED`, ids without a row in `byRef`.
4. What cannot be judged (a map that contradicts itself, an entry that is no ref) is reported and left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from latchguard.core.errors import cut
from latchguard.core.findings import Finding, Repair
from latchguard.core.jsonspans import Edit, Path, Remove, Replace, format_path
from latchguard.core.jsontext import dump_json
from latchguard.core.refs import BLOCKED, ref_number
from latchguard.repair.plans import Change
from latchguard.repair.state_rules import STALE_REF
from latchguard.sources.bili import BiliView

__all__ = ["check_refs"]

_KEYED: Final = ("tokenSnapshot", "imageFullRestored", "hiddenOrphanRefs", "deadRefs")
_RECORDS: Final = "imageShrinks"
_BLOCKS: Final = "blocks"
_ENDS: Final = ("startRef", "endRef")


def check_refs(view: BiliView) -> Iterator[Change]:
    """Find what stands under a ref that is not its own, or no ref at all."""
    path = (*view.root, "state")
    for fault in view.faults:
        keyed_by_ref = view.latches or any(view.state.get(name) for name in (*_KEYED, _RECORDS))
        if fault.path[len(path)] == "messageRefs" and (keyed_by_ref or view.refs.readable):
            yield _detect(fault.path, fault.found, f"expected {fault.expected}")
    if not view.refs.readable:
        return
    yield from _check_map(view, (*path, "messageRefs"))
    for name in _KEYED:
        yield from _check_keyed(view, (*path, name), view.state.get(name))
    yield from _check_images(view, (*path, _RECORDS), view.state.get(_RECORDS))
    blocks = view.state.get(_BLOCKS)
    for position, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(block, dict):
            yield from _check_block(view, (*path, _BLOCKS, position), block)


def _check_map(view: BiliView, path: Path) -> Iterator[Change]:
    """Report where the two directions contradict each other, or two messages of the file hold one ref."""
    by_id, by_ref = view.refs.by_id, view.refs.by_ref
    if list(map(by_id.get, by_ref.values())) != list(by_ref) or BLOCKED in by_ref:
        for ref, message_id in by_ref.items():
            own = by_id.get(message_id)
            if own != ref or ref == BLOCKED:
                yield _detect((*path, "byRef", ref), message_id, f"that message's own ref is {own}")
    refs = [ref for ref in by_id.values() if ref != BLOCKED]
    if len(set(refs)) == len(refs):
        return
    ids = dict.fromkeys(entry.message.id for entry in view.messages)
    owners = {ref: named for ref, named in by_ref.items() if named in ids}
    for message_id in ids:
        ref = by_id.get(message_id, BLOCKED)
        if ref != BLOCKED and owners.setdefault(ref, message_id) != message_id:
            yield _detect((*path, "byRaw", message_id), ref, "another message of the file holds this ref too")


def _check_keyed(view: BiliView, path: Path, stored: Any) -> Iterator[Change]:
    if isinstance(stored, dict):
        if stored.keys() <= view.refs.by_ref.keys():
            return
        entries: list[tuple[str | int, Any]] = [(ref, ref) for ref in stored]
    elif isinstance(stored, list):
        entries = list(enumerate(stored))
    else:
        if stored is not None:
            yield _detect(path, cut(stored), "expected a list of refs or a map by ref")
        return
    known = view.refs.known
    for key, ref in entries:
        if not isinstance(ref, str):
            yield _detect((*path, key), cut(ref), "expected a ref")
        elif ref not in known:
            yield _removal((*path, key), ref)


def _check_images(view: BiliView, path: Path, stored: Any) -> Iterator[Change]:
    if not isinstance(stored, list):
        if stored is not None:
            yield _detect(path, cut(stored), "expected a list of records")
        return
    for position, record in enumerate(stored):
        place = (*path, position)
        ref = record.get("ref") if isinstance(record, dict) else None
        if not isinstance(ref, str):
            yield _detect(place, cut(record), "expected a record with a ref")
            continue
        message_id = record.get("rawMessageId")
        own = view.refs.by_id.get(message_id) if isinstance(message_id, str) else None
        if own is not None and ref_number(own):
            if own != ref:
                yield _move((*place, "ref"), ref, own)
        elif ref not in view.refs.known or own == BLOCKED:
            yield _removal(place, ref)
        elif isinstance(message_id, str) and view.refs.by_ref.get(ref, message_id) != message_id:
            yield _detect(place, ref, "its message has no ref, and its ref is another message's")


def _check_block(view: BiliView, path: Path, block: dict[str, Any]) -> Iterator[Change]:
    ends = {name: ref for name in _ENDS if isinstance(ref := block.get(name), str) and ref_number(ref)}
    members = next((ids for name in ("effectiveMessageIds", "directMessageIds") if (ids := block.get(name))), None)
    ids = [key for key in members if isinstance(key, str)] if isinstance(members, list) else []
    refs = [view.refs.by_id.get(key) for key in ids]
    own = sorted((ref for ref in refs if ref and ref_number(ref)), key=lambda ref: ref_number(ref) or 0)
    if own and None not in refs and not set(ends.values()) <= set(own):
        for name, right in zip(_ENDS, (own[0], own[-1]), strict=True):
            if ends.get(name, right) != right:
                yield _move((*path, name), ends[name], right)
        return
    for name, ref in ends.items():
        if ref not in view.refs.known:
            yield _removal((*path, name), ref)


def _detect(path: Path, found: str, note: str) -> Change:
    return Change(Finding(STALE_REF, format_path(path), Repair.DETECT, applied=False, before=found, note=note))


def _removal(path: Path, ref: str) -> Change:
    return _stale(path, ref, None, Remove(path))


def _move(path: Path, ref: str, own: str) -> Change:
    return _stale(path, ref, own, Replace(path, dump_json(own)))


def _stale(path: Path, ref: str, own: str | None, edit: Edit) -> Change:
    finding = Finding(STALE_REF, format_path(path), Repair.LOSSLESS, applied=False, before=ref, after=own)
    return Change(finding, (edit,))
