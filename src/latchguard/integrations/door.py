"""One request body on its way out, whatever library sends it: what is checked, what leaves unguarded and why.

1. A body that needs no repair leaves as the very bytes that came, encoding and all.
2. What is not checked leaves too, under a name of `UNGUARDED`; nothing passes without a verdict or a name.
3. A fault of the check itself costs the check, never the request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from attrs import evolve, frozen

from latchguard.core.errors import InvalidValueError, WireUndecidedError, cut
from latchguard.core.findings import Finding, Repair, Wire
from latchguard.core.jsonspans import JsonSpans
from latchguard.core.jsontext import Verdict, check_json
from latchguard.egress.hardening import harden_json
from latchguard.egress.profiles import resolve_profile
from latchguard.integrations.encodings import UndecodableError, decode_body, encode_body
from latchguard.integrations.endpoints import Endpoint

__all__ = ["UNGUARDED", "Passage", "check_options", "pass_body"]

logger = logging.getLogger(__name__)

UNGUARDED: Final = {
    "multipart": "a multipart body (file uploads)",
    "other-path": "a body for a path that is no endpoint of a conversation",
    "unsupported-wire": "a format that no wire covers (Bedrock Converse)",
    "encoding-unknown": "a content encoding without a decoder here",
    "encoding-broken": "bytes that are not what their content encoding promises",
    "too-large": "a body, or its decoded form, over `max_body_bytes`",
    "not-json": "a body that is no JSON as `JSON.parse` takes it, or no UTF-8",
    "too-deep": "a body nested beyond 1,000 levels",
    "other-shape": "JSON that is no request of the endpoint's wire, or of any where the path does not tell",
    "failed": "the check itself raised; logged as ERROR",
}


@frozen
class Passage:
    """How a body passed: the bytes to send, what was found and which rules raised; or why it was not checked."""

    raw: bytes
    findings: tuple[Finding, ...] = ()
    failed: tuple[str, ...] = ()
    changed: bool = False
    clean: bool = True
    unguarded: str | None = None


def check_options(profile: str | None, allow: str) -> None:
    """Raise a `LatchguardError` where `harden` would take neither of these."""
    resolve_profile(profile)
    if allow not in (Repair.LOSSLESS, Repair.PLACEHOLDER, Repair.LOSSY):
        raise InvalidValueError("allow", "lossless, placeholder or lossy", cut(allow))


def pass_body(
    raw: bytes,
    endpoint: Endpoint,
    *,
    encodings: str = "",
    limit_bytes: int,
    profile: str | None = None,
    allow: str = "lossy",
    session: str | None = None,
) -> Passage:
    """Check and repair the body of one request.

    Args:
        raw: the body as it would be sent.
        endpoint: where it goes.
        encodings: value of its `content-encoding` header.
        limit_bytes: the largest body, decoded, that is looked at.
        profile: as in `harden`.
        allow: as in `harden`.
        session: as in `harden`; a label for the log.

    Returns:
        The bytes to send: *raw* itself, the same object, where nothing was repaired.

    Raises:
        LatchguardError: *profile* or *allow* is invalid. Nothing else, whatever the body.
    """
    check_options(profile, allow)
    if not endpoint.supported:
        return Passage(raw, unguarded="unsupported-wire")
    body = raw
    try:
        body = decode_body(raw, encodings, limit_bytes) if encodings else raw
        if len(body) > limit_bytes:
            return Passage(raw, unguarded="too-large")
        passage = _check(body, endpoint, profile=profile, allow=allow, session=session)
        return evolve(passage, raw=encode_body(passage.raw, encodings) if passage.changed else raw)
    except UndecodableError as error:
        return Passage(raw, unguarded=error.unguarded)
    except (InvalidValueError, WireUndecidedError):
        return Passage(raw, unguarded=_name_fault(body) or "other-shape")
    except Exception as error:  # noqa: BLE001  a fault of ours must not cost the host its request
        _log_failure(error, endpoint, session)
        return Passage(raw, unguarded="failed")


def _check(body: bytes, endpoint: Endpoint, **options: Any) -> Passage:
    if endpoint.batch:
        return _check_parts(body, list(_find_requests(body)), endpoint.wire, **options)
    if endpoint.items:
        # A result may belong to a call that the conversation holds already, a call wait for a result of later.
        options["profile"] = ",".join(filter(None, (options["profile"], "stored")))
        return _check_parts(body, list(_find_items(body)), endpoint.wire, **options)
    known = endpoint.wire is not None and _HISTORY[endpoint.wire] in body
    hardened = harden_json(body, endpoint.wire if known else None, **options)
    return Passage(hardened.raw, hardened.findings, hardened.failed, hardened.changed, hardened.clean)


# The key that a body of each wire keeps its history under. One without it is of another shape than its path says.
_HISTORY: Final = {
    Wire.OPENAI_CHAT: b'"messages"',
    Wire.OPENAI_RESPONSES: b'"input"',
    Wire.ANTHROPIC: b'"messages"',
    Wire.GEMINI: b'"contents"',
}


@frozen
class _Part:
    """A request inside a body: where it stands, what makes it a whole one, and how its findings' paths change."""

    start: int
    end: int
    path: str
    inner: str = "$"
    opening: bytes = b""
    closing: bytes = b""


def _find_requests(body: bytes) -> Iterator[_Part]:
    """Find the requests of an Anthropic batch."""
    spans = _spans(body)
    for list_ in spans.members(spans.span(())[0]):
        if list_.key != "requests":
            continue
        for number, request in enumerate(spans.members(list_.value)):
            for member in spans.members(request.value):
                if member.key == "params":
                    yield _Part(member.value, member.end, f"$.requests[{number}].params")


def _find_items(body: bytes) -> Iterator[_Part]:
    """Find the items that are added to a conversation; the rules know them as those of a request within one."""
    spans = _spans(body)
    for member in spans.members(spans.span(())[0]):
        if member.key == "items":
            yield _Part(member.value, member.end, "$.items", "$.input", b'{"conversation":"","input":', b"}")


def _spans(body: bytes) -> JsonSpans:
    if _name_fault(body):
        raise InvalidValueError("$", "a JSON body", cut(body))
    return JsonSpans(body)


def _check_parts(body: bytes, parts: list[_Part], wire: Wire | None, **options: Any) -> Passage:
    if not parts:
        return Passage(body, unguarded="other-shape")
    pieces: list[bytes] = []
    findings: list[Finding] = []
    failed: list[str] = []
    clean, changed, position = True, False, 0
    for part in parts:
        hardened = harden_json(part.opening + body[part.start : part.end] + part.closing, wire, **options)
        findings += (evolve(each, path=part.path + each.path.removeprefix(part.inner)) for each in hardened.findings)
        failed += hardened.failed
        clean, changed = clean and hardened.clean, changed or hardened.changed
        repaired = hardened.raw[len(part.opening) : len(hardened.raw) - len(part.closing)]
        pieces += (body[position : part.start], repaired)
        position = part.end
    pieces.append(body[position:])
    return Passage(b"".join(pieces) if changed else body, tuple(findings), tuple(failed), changed, clean)


def _name_fault(body: bytes) -> str | None:
    """Give the class of a body that is no JSON or too deep; None where it is JSON."""
    try:
        return _FAULTS[check_json(body.decode())]
    except UnicodeDecodeError:
        return "not-json"


_FAULTS: Final = {Verdict.VALID: None, Verdict.INVALID: "not-json", Verdict.TOO_DEEP: "too-deep"}


def _log_failure(error: Exception, endpoint: Endpoint, session: str | None) -> None:
    """One line without the traceback: a traceback's own text cannot be escaped or cut."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "unknown"
    logger.error(
        "request to %s left unguarded: the check raised %s(%s) at %s (session %s)",
        endpoint.suffix, type(error).__name__, cut(str(error)), where, cut(session or ""),
    )  # fmt: skip
