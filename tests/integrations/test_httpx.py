"""The transport itself, on both libraries, sync and async."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

import latchguard
from latchguard.core.errors import InvalidValueError, LatchguardError, UnknownProfileError
from latchguard.egress.hardening import RULES
from latchguard.integrations import door
from latchguard.integrations.encodings import decode_body, encode_body
from latchguard.integrations.httpx import Guard, SignedBodyError, UncleanRequestError, guard
from tests.integrations.provider import Provider

CLIP = "Summary of the work so far"
URL = "http://127.0.0.1/v1/chat/completions"

libraries = pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)
sides = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def chat(arguments: str = CLIP, text: str = "x") -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": arguments}}
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    return json.dumps({"model": "m", "messages": messages}).encode()


REPAIRED = chat(latchguard.PLACEHOLDER_ARGUMENTS)


class Sink:
    """The end of the line: keeps each request, and the bytes that would go over the wire."""

    def __init__(self, library: ModuleType, answer: Callable[[Any], Any] | None = None) -> None:
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []
        self.transport = library.MockTransport(self._take)
        self._answer = answer or (lambda _: library.Response(200))

    def _take(self, request: Any) -> Any:
        self.requests.append(request)
        self.bodies.append(request.content)
        return self._answer(request)


def send(library: ModuleType, transport: Any, *, is_async: bool = False, **request: Any) -> Any:
    """Send one request the way a host does."""
    options = {"method": "POST", "url": URL, **request}
    if not is_async:
        with library.Client(transport=transport) as client:
            return client.request(**options)

    async def scenario() -> Any:
        async with library.AsyncClient(transport=transport) as client:
            return await client.request(**options)

    return asyncio.run(scenario())


@libraries
@sides
def test_poison_is_repaired_on_the_way_out(library: ModuleType, *, is_async: bool) -> None:
    """The bytes that leave are repaired and their length is right; the caller's request is not written to."""
    sink = Sink(library)
    response = send(library, guard(sink.transport), is_async=is_async, content=chat())
    assert sink.bodies == [REPAIRED]
    assert sink.requests[0].headers["content-length"] == str(len(REPAIRED))
    assert response.request.content == chat()


@libraries
@sides
def test_clean_request_passes_as_the_same_object(library: ModuleType, *, is_async: bool) -> None:
    """Without a repair nothing is copied: the very request goes on."""
    sink = Sink(library)
    response = send(library, guard(sink.transport), is_async=is_async, content=chat("{}"))
    assert sink.requests == [response.request]
    assert sink.requests[0] is response.request


@libraries
@sides
def test_repaired_request_keeps_all_but_its_framing(library: ModuleType, *, is_async: bool) -> None:
    """Method, URL, headers and extensions (time-outs live there) are those of the original, in their order."""
    sink = Sink(library)
    headers = [("X-One", "1"), ("x-two", "a"), ("x-two", "b"), ("cookie", "c=1"), ("authorization", "Bearer k")]
    response = send(
        library,
        guard(sink.transport),
        is_async=is_async,
        content=chat(),
        headers=headers,
        params={"api-version": "2026-01-01"},
        timeout=7.5,
        extensions={"sni_hostname": "other"},
    )
    (sent,), original = sink.requests, response.request
    framing = (b"content-length", b"transfer-encoding")
    assert sent is not original
    assert (sent.method, sent.url, sent.extensions) == (original.method, original.url, original.extensions)
    assert sent.extensions["timeout"]["read"] == 7.5
    assert [pair for pair in sent.headers.raw if pair[0].lower() not in framing] == [
        pair for pair in original.headers.raw if pair[0].lower() not in framing
    ]
    assert [name for name, _ in sent.headers.raw if name.lower() in framing] == [b"Content-Length"]


@libraries
@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_encoded_body_is_repaired_inside(library: ModuleType, name: str) -> None:
    """The content encoding stays, and so does its header."""
    sink = Sink(library)
    send(library, guard(sink.transport), content=encode_body(chat(), name), headers={"content-encoding": name})
    assert decode_body(sink.bodies[0], name, 1 << 20) == REPAIRED
    assert sink.requests[0].headers["content-encoding"] == name


def chunks(raw: bytes) -> Iterator[bytes]:
    yield from (raw[start : start + 20] for start in range(0, len(raw), 20))


async def achunks(raw: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks(raw):
        yield chunk


@libraries
@sides
@pytest.mark.parametrize("arguments", [CLIP, "{}"])
def test_streamed_body_is_checked(library: ModuleType, provider: Provider, arguments: str, *, is_async: bool) -> None:
    """A body that is streamed from the host is read, checked and sent, repaired or not."""
    transport = guard()
    raw = chat(arguments)
    content = achunks(raw) if is_async else chunks(raw)
    response = send(library, transport, is_async=is_async, url=f"{provider.url}/chat/completions", content=content)
    assert response.status_code == 200
    assert provider.seen[0].raw == (REPAIRED if arguments == CLIP else raw)
    assert transport.counts.checked == 1


@libraries
def test_body_without_a_length_is_checked(library: ModuleType) -> None:
    """A request made by hand may have a stream and no framing header (HTTP/2 needs none)."""

    class Stream(library.SyncByteStream):  # type: ignore[name-defined,misc]
        def __iter__(self) -> Iterator[bytes]:
            return chunks(chat())

    sink = Sink(library)
    guard(sink.transport).handle_request(library.Request("POST", URL, stream=Stream()))
    assert sink.bodies == [REPAIRED]


@libraries
@sides
def test_streamed_body_over_the_limit_is_not_held(library: ModuleType, *, is_async: bool) -> None:
    """200 MB pass in pieces: at most the limit is in memory, and the request is counted."""
    piece, pieces, held = bytes(1 << 20), 200, []
    left = 0

    def count_piece() -> bytes:
        nonlocal left
        left += 1
        held.append(left - sent)
        return piece

    def produce() -> Iterator[bytes]:
        for _ in range(pieces):
            yield count_piece()

    async def aproduce() -> AsyncIterator[bytes]:
        for _ in range(pieces):
            yield count_piece()

    sent = 0

    class Inner(library.BaseTransport, library.AsyncBaseTransport):  # type: ignore[name-defined,misc]
        def handle_request(self, request: Any) -> Any:
            nonlocal sent
            for _ in request.stream:
                sent += 1
            return library.Response(200)

        async def handle_async_request(self, request: Any) -> Any:
            nonlocal sent
            async for _ in request.stream:
                sent += 1
            return library.Response(200)

    transport = guard(Inner(), max_body_bytes=4 << 20)
    send(library, transport, is_async=is_async, content=aproduce() if is_async else produce())
    assert sent == pieces
    assert max(held) == 5
    assert dict(transport.counts.unguarded) == {"too-large": 1}


@libraries
def test_body_of_200_megabytes_leaves_unread(library: ModuleType) -> None:
    """A declared length over the limit is enough to leave a body alone: it is not even read."""
    sink = Sink(library)
    transport = guard(sink.transport)
    response = send(library, transport, content=io.BytesIO(bytes(200_000_000)))
    assert sink.requests[0] is response.request
    assert len(sink.bodies[0]) == 200_000_000
    assert dict(transport.counts.unguarded) == {"too-large": 1}


@libraries
@sides
def test_multipart_and_other_paths_pass_untouched(library: ModuleType, *, is_async: bool) -> None:
    """Uploads and requests without a conversation are counted, and the very request goes on."""
    sink = Sink(library)
    transport = guard(sink.transport)
    responses = [
        send(library, transport, is_async=is_async, files={"file": b"x"}),
        send(library, transport, is_async=is_async, url="http://127.0.0.1/v1/files", files={"file": b"x"}),
        send(library, transport, is_async=is_async, url="http://127.0.0.1/v1/embeddings", json={"input": "x"}),
        send(library, transport, is_async=is_async, method="GET", url="http://127.0.0.1/v1/responses"),
        send(library, transport, is_async=is_async, method="POST", url="http://127.0.0.1/v1/responses"),
        send(library, transport, is_async=is_async, method="GET", url="http://127.0.0.1/v1/models"),
    ]
    assert [sent is response.request for sent, response in zip(sink.requests, responses, strict=True)] == [True] * 6
    counts = transport.counts
    assert (counts.requests, counts.checked) == (6, 0)
    assert dict(counts.unguarded) == {"multipart": 2, "other-path": 1}


@libraries
@pytest.mark.parametrize(
    ("raw", "headers", "name"),
    [
        (b'{"messages": [', {}, "not-json"),
        (b'{"messages": ' + b"[" * 2000 + b"]" * 2000 + b"}", {}, "too-deep"),
        (chat(), {"content-encoding": "gzip"}, "encoding-broken"),
        (chat(), {"content-encoding": "compress"}, "encoding-unknown"),
    ],
)
def test_unreadable_body_is_forwarded_and_counted(
    library: ModuleType, raw: bytes, headers: dict[str, str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be checked is never silent: a counter and a WARNING."""
    sink = Sink(library)
    transport = guard(sink.transport)
    with caplog.at_level(logging.WARNING, "latchguard"):
        send(library, transport, content=raw, headers=headers)
    assert sink.bodies == [raw]
    assert dict(transport.counts.unguarded) == {name: 1}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@libraries
@sides
def test_fault_of_the_check_costs_no_request(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """Where the check itself raises, the request leaves as it came and is counted."""
    monkeypatch.setattr(door, "harden_json", lambda *_, **__: 1 / 0)
    sink = Sink(library)
    transport = guard(sink.transport)
    send(library, transport, is_async=is_async, content=chat())
    assert sink.bodies == [chat()]
    assert dict(transport.counts.unguarded) == {"failed": 1}


@libraries
@sides
def test_observe_counts_and_changes_nothing(library: ModuleType, *, is_async: bool) -> None:
    """How the guard enters production: it tells what it would do, and raises nothing."""
    sink = Sink(library)
    transport = guard(sink.transport, mode="observe")
    strict = guard(sink.transport, mode="observe", on_unclean="raise", allow="lossless")
    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=k"}
    for each, headers in ((transport, {}), (transport, signed), (strict, {})):
        response = send(library, each, is_async=is_async, content=chat(), headers=headers)
        assert sink.requests[-1] is response.request
    counts = transport.counts
    assert dict(counts.findings) == {"args-invalid-json": 2}
    assert (counts.checked, counts.changed) == (2, 0)


@libraries
@sides
def test_unclean_request_is_not_sent_where_told_so(library: ModuleType, *, is_async: bool) -> None:
    """Under `on_unclean="raise"` a body whose findings stay sends nothing."""
    sink = Sink(library)
    transport = guard(sink.transport, allow="lossless", on_unclean="raise")
    with pytest.raises(UncleanRequestError) as caught:
        send(library, transport, is_async=is_async, content=chat())
    assert (caught.value.code, caught.value.url_path) == ("unclean-request", "/v1/chat/completions")
    assert [finding.rule for finding in caught.value.findings] == ["args-invalid-json"]
    assert sink.requests == []
    assert (transport.counts.checked, transport.counts.changed, transport.counts.refused) == (1, 0, 1)
    send(library, guard(sink.transport, allow="lossless"), is_async=is_async, content=chat())
    assert sink.bodies == [chat()]


@libraries
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("authorization", "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/bedrock/aws4_request, Signature=s"),
        ("content-digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"),
    ],
)
def test_signed_body_is_refused_rather_than_broken(library: ModuleType, header: str, value: str) -> None:
    """A signature over the body is made before the transport: a repair would break it, so the guard raises."""
    sink = Sink(library)
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/invoke"
    transport = guard(sink.transport)
    with pytest.raises(SignedBodyError) as caught:
        send(library, transport, url=url, content=chat(), headers={header: value})
    assert (caught.value.code, caught.value.header) == ("signed-body", header)
    assert sink.requests == []
    assert (transport.counts.changed, transport.counts.refused) == (0, 1)
    send(library, transport, url=url, content=chat("{}"), headers={header: value})
    assert sink.bodies == [chat("{}")]


@libraries
def test_bearer_token_is_no_signature(library: ModuleType) -> None:
    """Other credentials say nothing about the body."""
    sink = Sink(library)
    send(library, guard(sink.transport), content=chat(), headers={"authorization": "Bearer AWS4-HMAC-SHA256"})
    assert sink.bodies == [REPAIRED]


@libraries
def test_options_may_depend_on_the_request(library: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    """One guard serves several targets: profile, allow and session as functions of the request."""
    sink = Sink(library)
    transport = guard(
        sink.transport,
        profile=lambda request: "strict-args" if request.url.host == "vllm" else None,
        allow=lambda request: request.headers.get("x-allow", "lossy"),
        session=lambda request: request.headers.get("x-session"),
    )
    send(library, transport, content=chat("[1]"))
    send(library, transport, content=chat("[1]"), url="http://vllm/v1/chat/completions")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "latchguard"):
        send(library, transport, content=chat(), headers={"x-allow": "lossless", "x-session": "session-7"})
    assert sink.bodies == [chat("[1]"), chat('{"value":[1]}'), chat()]
    assert "session-7" in caplog.records[0].getMessage()


@libraries
def test_error_of_a_hosts_function_passes(library: ModuleType) -> None:
    """What the host's own function raises is the host's to see."""
    sink = Sink(library)
    with pytest.raises(KeyError):
        send(library, guard(sink.transport, session=lambda request: request.headers["x-none"]), content=chat())
    with pytest.raises(UnknownProfileError):
        send(library, guard(sink.transport, profile=lambda _: "none"), content=chat())
    assert sink.requests == []


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "off"},
        {"on_unclean": "drop"},
        {"allow": "detect"},
        {"profile": "no-such-profile"},
        {"max_body_bytes": 0},
        {"max_body_bytes": "64 MB"},
        {"transport": httpx2.Headers()},
        {"transport": "http://127.0.0.1"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_misuse_is_an_error_before_the_first_request(options: dict[str, Any]) -> None:
    """An option that does not exist is an error where the guard is made."""
    with pytest.raises(LatchguardError):
        guard(**options)


@libraries
def test_redirect_passes_the_guard_again(library: ModuleType) -> None:
    """A redirected request carries the original body, and is repaired like the first."""

    def answer(request: Any) -> Any:
        if request.url.path.startswith("/v1"):
            return library.Response(308, headers={"location": "/v2/chat/completions"})
        return library.Response(200)

    sink = Sink(library, answer)
    with library.Client(transport=guard(sink.transport), follow_redirects=True) as client:
        assert client.post(URL, content=chat()).status_code == 200
    assert sink.bodies == [REPAIRED, REPAIRED]
    assert [request.url.path for request in sink.requests] == ["/v1/chat/completions", "/v2/chat/completions"]


@libraries
def test_counters_are_exact_under_threads(library: ModuleType) -> None:
    """Eight threads share one guard; no count is lost."""
    sink = Sink(library)
    transport = guard(sink.transport)

    def work() -> None:
        with library.Client(transport=transport) as client:
            for _ in range(50):
                client.post(URL, content=chat())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = transport.counts
    assert (counts.requests, counts.checked, counts.changed) == (400, 400, 400)
    assert dict(counts.findings) == {"args-invalid-json": 400}


@libraries
def test_counters_are_exact_under_tasks(library: ModuleType) -> None:
    """A hundred tasks share one guard; no count is lost."""
    transport = guard(Sink(library).transport)

    async def scenario() -> None:
        async with library.AsyncClient(transport=transport) as client:
            await asyncio.gather(*(client.post(URL, content=chat()) for _ in range(100)))

    asyncio.run(scenario())
    assert (transport.counts.requests, transport.counts.changed) == (100, 100)


@libraries
def test_counts_are_a_snapshot(library: ModuleType) -> None:
    """What was read does not change, and cannot be changed."""
    transport = guard(Sink(library).transport)
    before = transport.counts
    send(library, transport, content=chat())
    assert (before.requests, transport.counts.requests) == (0, 1)
    assert repr(transport.counts) == (
        "Counts(requests=1, checked=1, changed=1, refused=0, "
        "findings={'args-invalid-json': 1}, failed={}, unguarded={})"
    )
    with pytest.raises(TypeError):
        transport.counts.findings["x"] = 1  # type: ignore[index]


@sides
def test_one_guard_serves_both_libraries(provider: Provider, *, is_async: bool) -> None:
    """Without a transport of its own the guard makes the default one of the library that a request comes from."""
    transport = guard()
    for library in (httpx, httpx2, httpx):
        url = f"{provider.url}/chat/completions"
        response = send(library, transport, is_async=is_async, url=url, content=chat())
        assert type(response).__module__ == library.__name__
    assert [seen.raw for seen in provider.seen] == [REPAIRED] * 3
    assert transport.counts.changed == 3


@libraries
@sides
def test_clients_lifetime_is_the_transports(library: ModuleType, *, is_async: bool) -> None:
    """Entering, leaving and closing reach the transport inside."""
    events: list[str] = []

    class Inner(library.BaseTransport, library.AsyncBaseTransport):  # type: ignore[name-defined,misc]
        def __enter__(self) -> Any:
            events.append("enter")
            return self

        def close(self) -> None:
            events.append("close")

        async def __aenter__(self) -> Any:
            events.append("enter")
            return self

        async def aclose(self) -> None:
            events.append("close")

        def handle_request(self, request: Any) -> Any:
            return library.Response(200)

        async def handle_async_request(self, request: Any) -> Any:
            return library.Response(200)

    send(library, guard(Inner()), is_async=is_async, content=chat())
    assert events == ["enter", "close"]
    events.clear()
    if is_async:
        asyncio.run(library.AsyncClient(transport=guard(Inner())).aclose())
    else:
        library.Client(transport=guard(Inner())).close()
    assert events == ["close"]


@libraries
def test_guard_is_a_transport_of_the_library_inside(library: ModuleType) -> None:
    """SDKs look at the class: google-genai picks its HTTP library by it."""
    made = guard(library.HTTPTransport())
    assert isinstance(made, Guard)
    assert isinstance(made, library.BaseTransport)
    made.close()


def test_transport_of_another_library_or_side_is_an_error() -> None:
    """A guard around a transport that cannot send this request says so."""
    with pytest.raises(InvalidValueError) as caught:
        send(httpx2, guard(httpx.HTTPTransport()), content=chat())
    assert caught.value.path == "transport"
    with pytest.raises(InvalidValueError):
        send(httpx, guard(httpx.AsyncHTTPTransport()), content=chat())
    with pytest.raises(InvalidValueError):
        guard().handle_request(object())


def test_module_loads_neither_library() -> None:
    """Importing the integration needs no httpx: the host's request brings it."""
    code = (
        "import sys, latchguard.integrations.httpx as module; module.guard();"
        "print(sorted({'httpx', 'httpx2'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.fixture
def rule_that_raises() -> Iterator[str]:
    """Put a fault into a rule of the pairing area; give its slug."""
    (rule,) = [rule for rule in RULES if rule.slug == "unanswered-call"]
    check = rule.check

    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault in a rule")

    object.__setattr__(rule, "check", broken)
    yield rule.slug
    object.__setattr__(rule, "check", check)


@libraries
@sides
def test_rule_that_raises_costs_neither_request_nor_arguments_check(
    library: ModuleType, rule_that_raises: str, *, is_async: bool
) -> None:
    """The rule is left out for that body and counted; the arguments are repaired all the same."""
    sink = Sink(library)
    transport = guard(sink.transport)
    body = json.loads(chat())
    del body["messages"][2]  # the result: the rule that raises would fire
    send(library, transport, is_async=is_async, json=body)
    call = json.loads(sink.bodies[0])["messages"][1]["tool_calls"][0]
    assert call["function"]["arguments"] == latchguard.PLACEHOLDER_ARGUMENTS
    counts = transport.counts
    assert (counts.checked, counts.changed) == (1, 1)
    assert dict(counts.failed) == {rule_that_raises: 1}
    assert dict(counts.findings) == {"args-invalid-json": 1}
    assert dict(counts.unguarded) == {}
