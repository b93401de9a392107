r"""Request bodies at rest: one JSON document, or JSON lines of bodies or of messages. The rules are those of the exit.

1. A file is one body; or lines, each a body; or lines, each a message: together one history. Lines end at `\n` bytes.
2. Each body is hardened by itself, under `stored`: at rest a history may end with a call that waits for its result.
   What only a request must have is not asked of it, unless `only` names the rule.
3. A step replaces one body, by the bytes in which only the spans of findings differ: all of the file, or one line.
4. One line that cannot be read, and the file is left. Paths of findings in lines begin with the line, counted from 0.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

from attrs import evolve, frozen

from latchguard.core.findings import Finding
from latchguard.core.jsonspans import JsonSpans, Path, Replace, format_path
from latchguard.egress.hardening import HardenedJson, harden_json
from latchguard.repair.plans import Plan, PlanOptions, SourceChangedError, Step, digest
from latchguard.sources.errors import NoSessionError, SourceError
from latchguard.sources.limits import Limits
from latchguard.sources.reading import BOM, read_json

__all__ = ["apply_bodies", "plan_bodies"]

_HISTORIES: Final = ("messages", "contents", "input", "items")  # the keys under which a body keeps its history
_OF_REQUESTS: Final = frozenset({"tools-missing-for-history"})  # who sends a stored history adds its tools
_WHITE: Final = b" \t\r"


@frozen
class _Lines:
    """JSON lines, each with the white space around it, and where those that are not blank stand."""

    lines: list[bytes]
    filled: list[int]


def plan_bodies(raw: bytes, format_name: str, options: PlanOptions) -> Plan:
    """Say what the rules of the exit find in stored bodies of one wire, and what would repair them.

    Raises:
        SourceError: something in it is no body: empty, no JSON, half written, too large, too deep.

    Guarantees:
        Pure; the same bytes give the same plan in every process.
    """
    steps: list[Step] = []
    findings: list[Finding] = []
    for path, old, new, found in _harden_all(raw, format_name, options):
        findings += found
        if new != old:
            steps.append(Step(Replace(path, new), digest(old), next(finding for finding in found if finding.applied)))
    return Plan(format_name, None, digest(raw) if steps else "", tuple(steps), tuple(findings))


def apply_bodies(raw: bytes, plan: Plan) -> bytes:
    """Make the steps of *plan* in *raw*; the caller has seen that the plan was made from these bytes.

    Raises:
        SourceChangedError: a step does not fit.
    """
    lines = raw.split(b"\n")
    for step in plan.steps:
        path = step.edit.path
        line = lines[path[0]] if path and isinstance(path[0], int) else raw
        old = line.strip(_WHITE) if path else raw
        if not isinstance(step.edit, Replace) or digest(old) != step.before:
            raise SourceChangedError(format_path(path), step.before, digest(old))
        if not path:
            return step.edit.value
        start = line.index(old)
        lines[path[0]] = line[:start] + step.edit.value + line[start + len(old) :]  # type: ignore[index]
    return b"\n".join(lines)


def _harden_all(
    raw: bytes, format_name: str, options: PlanOptions
) -> Iterator[tuple[Path, bytes, bytes, list[Finding]]]:
    """Give path, old bytes, new bytes and findings of each body."""
    found = _split(raw, options.limits)
    if found is None:
        mark, body = (BOM, raw.removeprefix(BOM)) if raw.startswith(BOM) else (b"", raw)
        result = _harden(body, format_name, options)
        yield (), raw, mark + result.raw, list(result.findings)
    elif _are_messages(found, options.limits):
        whole = b"[" + b",".join(found.lines[number] for number in found.filled) + b"]"
        result = _harden(whole, format_name, options)
        yield (), raw, _rejoin(found, result.raw) if result.changed else raw, list(result.findings)
    else:
        for number in found.filled:
            old = found.lines[number].strip(_WHITE)
            result = _harden(old, format_name, options)
            prefix = format_path((number,))
            yield (number,), old, result.raw, [evolve(one, path=prefix + one.path[1:]) for one in result.findings]


def _harden(body: bytes, format_name: str, options: PlanOptions) -> HardenedJson:
    profile = f"stored,{options.profile}" if options.profile else "stored"
    result = harden_json(
        body,
        format_name,
        profile=profile,
        allow=options.allow,
        looks_at=lambda rule: options.looks_at(rule) and (rule not in _OF_REQUESTS or options.only is not None),
    )
    if result.failed:
        raise RuntimeError(f"these rules failed: {', '.join(result.failed)}")
    return result


def _split(raw: bytes, limits: Limits) -> _Lines | None:
    """Give the lines of a file of JSON lines; None where it is one document.

    Raises:
        SourceError: it is neither; the place names the line.
    """
    try:
        _check_body(read_json(raw, limits), "$")
    except SourceError as error:
        lines = raw.split(b"\n")
        filled = [number for number, line in enumerate(lines) if line.strip(_WHITE)]
        if len(filled) < 2 or error.code not in ("no-json", "half-written"):  # noqa: PLR2004  # one line is a document
            raise
        return _Lines(lines, filled)
    return None


def _are_messages(found: _Lines, limits: Limits) -> bool:
    """Read every line, and say whether each is a message of one history, not a body."""
    bodies = 0
    for number in found.filled:
        try:
            value = read_json(found.lines[number], limits)
            _check_body(value, "$")
        except SourceError as error:
            raise _at_line(error, number) from error
        bodies += isinstance(value, list) or any(isinstance(value.get(key), list) for key in _HISTORIES)
    return not bodies


def _at_line(error: SourceError, line: int) -> SourceError:
    """Give *error* with the line, counted from 1, before its place."""
    return type(error)(f"line {line + 1}, {error.where}", error.expected, error.found)


def _check_body(value: Any, where: str) -> None:
    if not isinstance(value, dict | list):
        raise NoSessionError(where, "a request body: an object, or a list of messages", type(value).__name__)


def _rejoin(found: _Lines, array: bytes) -> bytes:
    """Give the messages of *array* as lines again; those that did not change with all that stood around them."""
    stored: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
    start = 0
    for number in found.filled:
        stored[found.lines[number].strip(_WHITE)].append(b"\n".join(found.lines[start : number + 1]))
        start = number + 1
    end = b"\r" if found.lines[found.filled[0]].endswith(b"\r") else b""
    spans = JsonSpans(array)
    values = [array[member.value : member.end] for member in spans.members(spans.span(())[0])]
    lines = [stored[value].popleft() if stored[value] else value + end for value in values]
    return b"\n".join([*lines, *found.lines[start:]])
