"""A transport for `httpx` and `httpx2` that hardens every request on its way out, whatever code path made it.

    client = openai.OpenAI(http_client=httpx2.Client(transport=guard()))

1. Only requests to an endpoint of `latchguard.integrations.endpoints` are read; all others pass as they are.
2. A body without a repair leaves as the very bytes that came; a repaired one leaves in a new request with the same
   method, URL, headers and extensions (time-outs live there). The caller's request is never written to, so that a
   retry and a redirect pass the guard again with the original body.
3. This module imports neither library: the request says which one made it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, TypeVar

from attrs import field, frozen

from latchguard.core.errors import InvalidValueError, LatchguardError, cut
from latchguard.integrations.door import Passage, check_options, pass_body
from latchguard.integrations.endpoints import Endpoint, find_endpoint
from latchguard.integrations.errors import SignedBodyError, UncleanRequestError

__all__ = ["Counts", "Guard", "SignedBodyError", "UncleanRequestError", "guard"]

logger = logging.getLogger(__name__)

# Beyond what any provider takes for one request (Anthropic 32 MB, Vertex 30 MB, Gemini and Bedrock 20 MB inline).
MAX_BODY_BYTES: Final = 64 * 1024 * 1024

# Headers that are computed from the body before a transport sees it, and how their values begin where they are.
_BODY_BOUND: Final = (
    ("authorization", "AWS4-"),
    ("content-digest", ""),
    ("content-md5", ""),
    ("digest", ""),
)
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_LIBRARIES: Final = ("httpx", "httpx2")
# The default transports of a library, and what each must be able to do.
_HANDLERS: Final = {"HTTPTransport": "handle_request", "AsyncHTTPTransport": "handle_async_request"}

T = TypeVar("T")

if TYPE_CHECKING:
    import httpx
    import httpx2

    class _Transport(httpx.BaseTransport, httpx.AsyncBaseTransport, httpx2.BaseTransport, httpx2.AsyncBaseTransport):
        """For type checkers: a guard goes wherever one of the libraries takes a transport."""

        def handle_request(self, request: Any) -> Any: ...
        async def handle_async_request(self, request: Any) -> Any: ...

    AnyTransport: TypeAlias = (
        httpx.BaseTransport | httpx.AsyncBaseTransport | httpx2.BaseTransport | httpx2.AsyncBaseTransport
    )
else:
    _Transport = object


def _read_only(counts: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType(dict(counts))


def _shown(counts: Mapping[str, int]) -> str:
    return repr(dict(counts))


@frozen
class Counts:
    """What a guard has seen since it was made.

    Args:
        requests: all requests that passed.
        checked: requests with a body that was checked.
        changed: requests that left with another body than they came with.
        refused: requests that were not sent, but raised.
        findings: findings by rule, repaired or not.
        failed: rules that raised and were left out for a body, by rule.
        unguarded: requests whose body left unchecked, by class (`latchguard.integrations.door.UNGUARDED`).
    """

    requests: int = 0
    checked: int = 0
    changed: int = 0
    refused: int = 0
    findings: Mapping[str, int] = field(factory=dict, converter=_read_only, repr=_shown)
    failed: Mapping[str, int] = field(factory=dict, converter=_read_only, repr=_shown)
    unguarded: Mapping[str, int] = field(factory=dict, converter=_read_only, repr=_shown)


@frozen
class _Settings:
    profile: str | Callable[[Any], str | None] | None
    allow: str | Callable[[Any], str]
    session: str | Callable[[Any], str | None] | None
    mode: str
    on_unclean: str
    max_body_bytes: int


def guard(
    transport: AnyTransport | None = None,
    *,
    profile: str | Callable[[Any], str | None] | None = None,
    allow: str | Callable[[Any], str] = "lossy",
    session: str | Callable[[Any], str | None] | None = None,
    mode: Literal["repair", "observe"] = "repair",
    on_unclean: Literal["forward", "raise"] = "forward",
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Guard:
    """Put the guard around a transport of `httpx` or `httpx2`, sync or async.

    Args:
        transport: the transport that sends, with your limits, certificates and proxy (a `proxy` of the *client* makes
            a transport of its own, which requests take instead); None for a default one of the library that a
            request comes from, which serves sync and async clients alike.
        profile: as in `harden`, or a function that gives it for a request.
        allow: as in `harden`, or a function that gives it for a request.
        session: a label for the log, or a function that gives it for a request.
        mode: `observe` counts and logs findings, changes nothing and raises nothing.
        on_unclean: what to do with a body whose findings were not all repaired: `raise` sends nothing.
        max_body_bytes: larger bodies, sent or decoded, leave unchecked; streamed ones are not held in memory beyond it.

    Returns:
        A transport for `Client(transport=...)` and `AsyncClient(transport=...)`; its `counts` tell what it saw.

    Raises:
        LatchguardError: an argument is invalid. While sending: `SignedBodyError` where a body needs a repair that its
            signature forbids, `UncleanRequestError` under `on_unclean="raise"`; what your own functions raise passes.

    Guarantees:
        Bodies without a repair leave byte for byte. A fault of the check costs the check, never the request. Counters
        are exact under threads and tasks. Closing the guard closes *transport*.
    """
    for name, value, known in (("mode", mode, ("repair", "observe")), ("on_unclean", on_unclean, ("forward", "raise"))):
        if value not in known:
            raise InvalidValueError(name, " or ".join(known), cut(value))
    if type(max_body_bytes) is not int or max_body_bytes < 1:
        raise InvalidValueError("max_body_bytes", "a number of bytes, at least 1", cut(max_body_bytes))
    check_options(None if callable(profile) else profile, "lossy" if callable(allow) else allow)
    if transport is not None and not any(hasattr(transport, name) for name in _HANDLERS.values()):
        raise InvalidValueError("transport", "a transport of httpx or httpx2", type(transport).__name__)
    settings = _Settings(profile, allow, session, mode, on_unclean, max_body_bytes)
    return _guard_class(_library_of(type(transport)))(transport, settings)


class Guard(_Transport):
    """A transport that checks what passes it; `guard` makes one."""

    def __init__(self, transport: Any, settings: _Settings) -> None:
        self._transport = transport
        self._settings = settings
        self._defaults: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()
        self._counters: Counter[tuple[str, str]] = Counter()

    @property
    def counts(self) -> Counts:
        """What passed so far: one consistent snapshot."""
        with self._lock:
            counters = dict(self._counters)
        groups: dict[str, dict[str, int]] = {"total": {}, "findings": {}, "failed": {}, "unguarded": {}}
        for (group, name), number in counters.items():
            groups[group][name] = number
        fields: dict[str, Any] = {**groups.pop("total"), **groups}
        return Counts(**fields)

    def handle_request(self, request: Any) -> Any:
        """Check *request*, send it or its repaired copy, give the response."""
        sender = self._sender(request, "HTTPTransport")
        endpoint = self._admit(request)
        if endpoint is not None:
            request, raw = _read(request, self._settings.max_body_bytes)
            request = self._pass(request, endpoint, raw)
        return sender.handle_request(request)

    async def handle_async_request(self, request: Any) -> Any:
        """Check *request*, send it or its repaired copy, give the response."""
        sender = self._sender(request, "AsyncHTTPTransport")
        endpoint = self._admit(request)
        if endpoint is not None:
            request, raw = await _aread(request, self._settings.max_body_bytes)
            request = self._pass(request, endpoint, raw)
        return await sender.handle_async_request(request)

    def _sender(self, request: Any, kind: str) -> Any:
        module = _module_of(request)
        if self._transport is not None:
            _require(self._transport, _HANDLERS[kind], module.__name__)
            return self._transport
        with self._lock:
            key = (module.__name__, kind)
            if key not in self._defaults:
                self._defaults[key] = getattr(module, kind)()
            return self._defaults[key]

    def _senders(self, kind: str) -> list[Any]:
        """Give what is to be closed; a default one is made anew if a client goes on."""
        if self._transport is not None:
            return [self._transport]
        with self._lock:
            return [self._defaults.pop(key) for key in list(self._defaults) if key[1] == kind]

    def _admit(self, request: Any) -> Endpoint | None:
        """Count the request; give the endpoint of one whose body is to be read."""
        length = request.headers.get("content-length", "")
        endpoint, unguarded = find_endpoint(request.url.path), ""
        if (length and length != "0") or "transfer-encoding" in request.headers:
            if request.headers.get("content-type", "").lower().startswith("multipart/"):
                unguarded = "multipart"
            elif endpoint is None:
                unguarded = "other-path"
            elif length.isdecimal() and int(length) > self._settings.max_body_bytes:
                unguarded = "too-large"
        with self._lock:
            self._counters["total", "requests"] += 1
        if unguarded:
            self._leave(request, endpoint, unguarded)
            return None
        return endpoint

    def _leave(self, request: Any, endpoint: Endpoint | None, unguarded: str) -> None:
        with self._lock:
            self._counters["unguarded", unguarded] += 1
        level = logging.DEBUG if endpoint is None else logging.WARNING
        logger.log(level, "request to %s left unguarded: %s", cut(request.url.path), unguarded)

    def _pass(self, request: Any, endpoint: Endpoint, raw: bytes | None) -> Any:
        """Give the request to send: *request* itself, or its repaired copy."""
        if raw is None:
            self._leave(request, endpoint, "too-large")
            return request
        if not raw:
            return request
        settings = self._settings
        passage = pass_body(
            raw,
            endpoint,
            encodings=request.headers.get("content-encoding", ""),
            limit_bytes=settings.max_body_bytes,
            profile=_resolve(settings.profile, request),
            allow=_resolve(settings.allow, request),
            session=_resolve(settings.session, request),
        )
        if passage.unguarded is not None:
            self._leave(request, endpoint, passage.unguarded)
            return request
        refusal = _refusal(request, passage, settings.on_unclean) if settings.mode == "repair" else None
        changed = passage.changed and settings.mode == "repair" and refusal is None
        with self._lock:
            self._counters["total", "checked"] += 1
            self._counters["total", "changed"] += changed
            self._counters["total", "refused"] += refusal is not None
            self._counters.update(("findings", finding.rule) for finding in passage.findings)
            self._counters.update(("failed", rule) for rule in passage.failed)
        if refusal is not None:
            raise refusal
        return _rebuild(request, passage.raw, _FRAMING) if changed else request

    def __enter__(self) -> Self:
        if self._transport is not None:
            _require(self._transport, "handle_request")
            self._transport.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._transport is not None:
            self._transport.__exit__(*raised)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        if self._transport is not None:
            _require(self._transport, "handle_async_request")
            await self._transport.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._transport is not None:
            await self._transport.__aexit__(*raised)
        else:
            await self.aclose()

    def close(self) -> None:
        """Close the transport of sync requests."""
        for sender in self._senders("HTTPTransport"):
            sender.close()

    async def aclose(self) -> None:
        """Close the transport of async requests."""
        for sender in self._senders("AsyncHTTPTransport"):
            await sender.aclose()


def _library_of(made: type) -> str | None:
    roots = (base.__module__.partition(".")[0] for base in made.__mro__)
    return next((root for root in roots if root in _LIBRARIES), None)


def _module_of(request: Any) -> ModuleType:
    library = _library_of(type(request))
    if library is None:
        raise InvalidValueError("request", "a request of httpx or httpx2", type(request).__name__)
    return sys.modules[library]


@functools.cache
def _guard_class(library: str | None) -> type[Guard]:
    """A guard around a library's transport is one itself: google-genai picks the library by the base class."""
    if library is None:
        return Guard
    module = sys.modules[library]
    return type("Guard", (Guard, module.BaseTransport, module.AsyncBaseTransport), {"__module__": __name__})


def _require(transport: Any, handler: str, library: str | None = None) -> None:
    """Raise where *transport* cannot serve this side, or is of another library than the request."""
    made = type(transport)
    if not hasattr(transport, handler) or _library_of(made) not in (None, library or _library_of(made)):
        expected = f"a transport of {library or 'the client'} with {handler}"
        raise InvalidValueError("transport", expected, f"{made.__module__}.{made.__name__}")


def _resolve(option: T | Callable[[Any], T], request: Any) -> T:
    return option(request) if callable(option) else option


def _refusal(request: Any, passage: Passage, on_unclean: str) -> LatchguardError | None:
    """Give the error that keeps this request from being sent."""
    if passage.changed:
        for header, beginning in _BODY_BOUND:
            if header in request.headers and request.headers[header].startswith(beginning):
                return SignedBodyError(request.url.path, header, passage.findings)
    if not passage.clean and on_unclean == "raise":
        left = tuple(finding for finding in passage.findings if not finding.applied)
        return UncleanRequestError(request.url.path, left)
    return None


def _rebuild(request: Any, content: Any, without: tuple[bytes, ...] = ()) -> Any:
    """Copy *request* with another body, without the headers named."""
    headers = [(name, value) for name, value in request.headers.raw if name.lower() not in without]
    return _module_of(request).Request(
        request.method, request.url, headers=headers, content=content, extensions=request.extensions
    )


def _loaded(request: Any) -> bytes | None:
    try:
        content: bytes = request.content
    except _module_of(request).RequestNotRead:
        return None
    return content


def _read(request: Any, limit_bytes: int) -> tuple[Any, bytes | None]:
    """Give the body, and the request that still can send it; None for one over the limit."""
    raw = _loaded(request)
    if raw is not None:
        return request, raw
    chunks: list[bytes] = []
    stream = iter(request.stream)
    for chunk in stream:
        chunks.append(chunk)
        if (limit_bytes := limit_bytes - len(chunk)) < 0:
            return _rebuild(request, itertools.chain(chunks, stream)), None
    raw = b"".join(chunks)
    return _rebuild(request, raw), raw


async def _aread(request: Any, limit_bytes: int) -> tuple[Any, bytes | None]:
    raw = _loaded(request)
    if raw is not None:
        return request, raw
    chunks: list[bytes] = []
    stream = aiter(request.stream)
    async for chunk in stream:
        chunks.append(chunk)
        if (limit_bytes := limit_bytes - len(chunk)) < 0:
            return _rebuild(request, _chain(chunks, stream)), None
    raw = b"".join(chunks)
    return _rebuild(request, raw), raw


async def _chain(chunks: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    async for chunk in rest:
        yield chunk
