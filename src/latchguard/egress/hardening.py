"""`harden`: check and repair one outbound request body.

1. Rules run in a fixed order; what one repair makes the next rule sees; passes repeat until one repairs nothing.
2. The rules of an area other than `arguments` may fail: the one that raises is dropped for this body and named in
   `failed`. The rules of `arguments` run last, alone, on what is there then.
3. The input is never mutated; an untouched body comes back as the same object, untouched bytes as the same bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from traceback import format_tb
from typing import Any, Final, TypeAlias

import orjson
from attrs import evolve, frozen

from latchguard.core.codec import decode_utf8
from latchguard.core.errors import InvalidValueError, cut
from latchguard.core.findings import Finding, Repair, Wire, permits
from latchguard.core.identity import to_wtf8
from latchguard.core.jsonspans import format_path
from latchguard.core.jsontext import dump_json, load_exact
from latchguard.egress import arguments, content, naming, pairing, reasoning, tooling
from latchguard.egress.arguments import argument_hits
from latchguard.egress.bodybytes import render_bytes
from latchguard.egress.content import content_hits
from latchguard.egress.draft import Draft
from latchguard.egress.layout import is_list
from latchguard.egress.naming import naming_hits
from latchguard.egress.pairing import pairing_hits
from latchguard.egress.profiles import Demands, resolve_profile
from latchguard.egress.reasoning import reasoning_hits
from latchguard.egress.rule import EgressRule, Fix, Hit, Scene, Trigger
from latchguard.egress.tooling import tool_hits
from latchguard.wire.detect import require_wire

__all__ = ["RULES", "Hardened", "HardenedJson", "harden", "harden_json"]

_MAX_ROUNDS: Final = 8

_LOG: Final = logging.getLogger("latchguard.egress")
_LOGGED_BYTES: Final = 64
_WIDE_INTEGER: Final = re.compile(rb"[0-9]{19}")

# The library prints nothing: without a handler of the host's its records go nowhere.
logging.getLogger("latchguard").addHandler(logging.NullHandler())


class _Outcome:
    """What both kinds of body have in common: what was found."""

    __slots__ = ()

    findings: tuple[Finding, ...]

    @property
    def changed(self) -> bool:
        """Whether a repair was made."""
        return any(finding.applied for finding in self.findings)

    @property
    def clean(self) -> bool:
        """Whether nothing is left that a rule found fault with."""
        return all(finding.applied for finding in self.findings)


@frozen
class Hardened(_Outcome):
    """What `harden` gives.

    Args:
        body: the body to send; the very object that was given where nothing changed.
        findings: one per place where a rule fired, in the order of the rules.
        failed: the slugs of rules that raised and were left out for this body.
    """

    body: Any
    findings: tuple[Finding, ...]
    failed: tuple[str, ...] = ()


@frozen
class HardenedJson(_Outcome):
    """What `harden_json` gives: the same as `Hardened`, with the bytes to send as `raw`."""

    raw: bytes
    findings: tuple[Finding, ...]
    failed: tuple[str, ...] = ()


@frozen
class _Run:
    """One call: what was asked for, and the body under repair."""

    draft: Draft
    wire: Wire
    demands: Demands
    allow: Repair
    session: str | None = None
    error: str | None = None
    recorded: Any = None
    decoded: bool = False  # from JSON bytes: it holds nothing that JSON could not carry
    whole: bool = False  # ... by orjson: as it came, it holds no surrogate half
    looks_at: Callable[[str], bool] | None = None


_Find: TypeAlias = Callable[[_Run], Mapping[Trigger, Sequence[Hit]]]

# The areas in the order in which they run, each with its walk over the body; `arguments` comes after all of them.
_AREAS: Final[tuple[tuple[tuple[EgressRule, ...], _Find], ...]] = (
    (pairing.RULES, lambda run: pairing_hits(run.draft.body, run.wire, run.demands)),
    (naming.RULES, lambda run: naming_hits(run.draft.body, run.wire, run.demands)),
    (tooling.RULES, lambda run: tool_hits(run.draft.body, run.wire)),
    (
        reasoning.RULES,
        lambda run: reasoning_hits(run.draft.body, run.wire, run.demands, run.error, run.recorded),
    ),
    (
        content.RULES,
        lambda run: content_hits(
            run.draft.body, run.wire, run.demands, decoded=run.whole and run.draft.body is run.draft.original
        ),
    ),
)

# Every rule of the exit, in the order in which they run.
RULES: Final[tuple[EgressRule, ...]] = (*(rule for rules, _ in _AREAS for rule in rules), *arguments.RULES)


def harden(
    body: Any,
    wire: Wire | str | None = None,
    *,
    profile: str | None = None,
    allow: Repair | str = Repair.LOSSY,
    session: str | None = None,
    error: str | None = None,
    recorded: Any = None,
) -> Hardened:
    """Check and repair one outbound request body.

    Args:
        body: a request body as a dict, or its bare list of messages (Responses: items, Gemini: contents).
        wire: its wire; None to tell it from the body.
        profile: what the target demands beyond its wire: names of `latchguard rules --profiles`, joined with commas.
        allow: the dearest repair that is made: `lossless`, `placeholder` or `lossy`.
        session: named in the log.
        error: the text of the error that came back for this body, for rules that the body alone cannot show.
        recorded: one assistant message's content blocks as they were received, or a list of those.

    Returns:
        The body to send, and what was found.

    Raises:
        InvalidValueError: *body* is neither an object nor a list, or an option has no such value.
        WireUndecidedError: *wire* is no wire, or is None and the body does not tell.
        UnknownProfileError: a name in *profile* does not exist.
        ProfileConflictError: two demands of *profile* exclude each other.

    Guarantees:
        Deterministic and idempotent; *body* is never mutated; logs one WARNING per finding.
    """
    if not isinstance(body, dict) and not is_list(body):
        raise InvalidValueError("$", "a request body: an object, or a list of messages", cut(body))
    run = _Run(Draft(body), *_options(body, wire, profile, allow), session, error, recorded)
    findings, failed = _harden(run)
    _log(findings, session)
    return Hardened(run.draft.body, findings, failed)


def harden_json(  # noqa: PLR0913  # a body, and what is known of it
    raw: bytes,
    wire: Wire | str | None = None,
    *,
    profile: str | None = None,
    allow: Repair | str = Repair.LOSSY,
    session: str | None = None,
    error: str | None = None,
    recorded: Any = None,
    looks_at: Callable[[str], bool] | None = None,
) -> HardenedJson:
    """Check and repair one outbound request body as bytes; every byte outside a repaired span is copied.

    Args:
        raw: the JSON body. The last of duplicate keys counts.
        wire: as for `harden`.
        profile: as for `harden`.
        allow: as for `harden`.
        session: as for `harden`.
        error: as for `harden`.
        recorded: as for `harden`.
        looks_at: says of a rule's slug whether it is looked at; None for all.

    Returns:
        The bytes to send (*raw* itself where nothing changed), and what was found.

    Raises:
        InvalidValueError: *raw* is no UTF-8 JSON object or list, or nests deeper than 1,000 levels (1,024 where its
            numbers and strings are plain): nothing can be told about such a body, and *raw* is still the caller's.
        WireUndecidedError, UnknownProfileError, ProfileConflictError: as for `harden`.

    Guarantees:
        As `harden`. There is no limit on size; memory is that of the parsed body.
    """
    if not isinstance(raw, bytes):
        raise InvalidValueError("raw", "bytes", type(raw).__name__)
    body, whole = _parse(raw)
    options = _options(body, wire, profile, allow)
    run = _Run(Draft(body), *options, session, error, recorded, decoded=True, whole=whole, looks_at=looks_at)
    findings, failed = _harden(run)
    if run.draft.body is not body and (exact := _parse_wide(raw)) is not None:
        run = evolve(run, draft=Draft(exact))
        findings, failed = _harden(run)
    _log(findings, session)
    return HardenedJson(render_bytes(raw, run.draft), findings, failed)


def _parse(raw: bytes) -> tuple[Any, bool]:
    """Give the body, and whether orjson took it: then it holds no surrogate half."""
    whole = True
    try:
        body = orjson.loads(raw)
    except ValueError:
        whole = False
        try:
            body = load_exact(decode_utf8(raw))
        except ValueError as error:
            raise InvalidValueError("$", "a JSON body, at most 1,000 levels deep", f"{error}: {cut(raw)}") from error
    if not isinstance(body, dict | list):
        raise InvalidValueError("$", "a request body: an object, or a list of messages", cut(raw))
    return body, whole


def _parse_wide(raw: bytes) -> Any:
    """Give the body with every digit of its integers, where orjson may have made floats of some; else None."""
    if not _WIDE_INTEGER.search(raw):
        return None
    try:
        return load_exact(raw.decode())
    except ValueError:  # nested too deep for that
        return None


def _options(body: Any, wire: Any, profile: str | None, allow: Any) -> tuple[Wire, Demands, Repair]:
    demands = resolve_profile(profile)
    if not isinstance(allow, str) or allow not in (Repair.LOSSLESS, Repair.PLACEHOLDER, Repair.LOSSY):
        raise InvalidValueError("allow", "lossless, placeholder or lossy", cut(allow))
    return require_wire(body, wire), demands, Repair(allow)


def _harden(run: _Run) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Run all rules, and all of them again while a repair was made: one may give another something to find."""
    made: list[Finding] = []
    failed: dict[str, None] = {}
    for _ in range(_MAX_ROUNDS):
        findings = [*_run_areas(run, failed), *_run_arguments(run)]
        made += (finding for finding in findings if finding.applied)
        if not any(finding.applied for finding in findings):
            break
    return (*made, *(finding for finding in findings if not finding.applied)), tuple(failed)


def _run_areas(run: _Run, failed: dict[str, None]) -> Iterator[Finding]:
    for rules, find in _AREAS:
        look = _Look(run, find)
        for rule in rules:
            if not _applies(rule, run) or rule.slug in failed:
                continue
            try:
                yield from _run_rule(rule, look)
            except Exception as error:  # noqa: BLE001  # a rule that raises costs neither request nor other rules
                failed[rule.slug] = None
                # What it says may quote the body: the trace goes in without it.
                trace = "".join(format_tb(error.__traceback__))
                kind = type(error).__name__
                _LOG.error("%s left out for a body, raised %s: %s\n%s", rule.slug, kind, _shown(str(error)), trace)


def _run_arguments(run: _Run) -> Iterator[Finding]:
    rules = [rule for rule in arguments.RULES if _applies(rule, run)]
    calls = any(rule.trigger is Trigger.CALL for rule in rules)
    look = _Look(run, lambda run: argument_hits(run.draft.body, run.wire, calls=calls, decoded=run.decoded))
    for rule in rules:
        yield from _run_rule(rule, look)


def _applies(rule: EgressRule, run: _Run) -> bool:
    wanted = run.looks_at is None or run.looks_at(rule.slug)
    return wanted and run.wire in rule.wires and (rule.demand is None or rule.demand in run.demands)


class _Look:
    """The hits of one area in the body as it is now, looked for again when the body has changed."""

    def __init__(self, run: _Run, find: _Find) -> None:
        self.run = run
        self._find = find
        self._scene: Scene | None = None

    def scene(self) -> Scene:
        run = self.run
        if self._scene is None or self._scene.body is not run.draft.body:
            hits = self._find(run)
            self._scene = Scene(run.draft.body, run.wire, run.demands, hits, run.error, run.recorded)
        return self._scene


def _run_rule(rule: EgressRule, look: _Look) -> list[Finding]:
    """Judge every hit, make the permitted repairs in one batch, and look again until there is nothing to repair."""
    run = look.run
    findings: list[Finding] = []
    for _ in range(_MAX_ROUNDS):
        scene = look.scene()
        fixes = [fix for hit in scene.hits.get(rule.trigger, ()) for fix in rule.check(hit, scene)]
        made = [fix for fix in fixes if permits(run.allow, fix.repair)]
        findings += [_finding(rule, fix, run) for fix in made or fixes]
        if not made:
            break
        run.draft.apply(edit for fix in made for edit in fix.edits)
    return findings


def _finding(rule: EgressRule, fix: Fix, run: _Run) -> Finding:
    return Finding(
        rule=rule.slug,
        path=format_path(run.draft.original_path(fix.path)),
        repair=fix.repair,
        applied=permits(run.allow, fix.repair),
        before=fix.before,
        after=fix.after,
        note=fix.note,
        tool_name=fix.tool_name,
    )


def _log(findings: Iterable[Finding], session: str | None) -> None:
    for finding in findings:
        _LOG.warning(
            "%s at %s: session %s, tool %s, %s repair %s, found %s",
            finding.rule,
            ascii(finding.path)[1:-1],
            cut(session),
            cut(finding.tool_name),
            finding.repair,
            "made" if finding.applied else "not made",
            _shown(finding.before),
        )


def _shown(value: Any) -> str:
    """The first bytes of *value*, everything but printable ASCII escaped."""
    try:
        raw = to_wtf8(value) if isinstance(value, str) else dump_json(value)
    except InvalidValueError:
        return f"a {type(value).__name__} that JSON cannot carry"
    return ascii(raw[:_LOGGED_BYTES])[1:]
