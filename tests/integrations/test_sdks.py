"""The official SDKs against a strict provider, with and without the guard."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors as genai_errors

from latchguard.integrations.httpx import guard
from tests.integrations.calls import CALLS, Call, open_client
from tests.integrations.provider import Provider

REFUSALS = (openai.APIStatusError, anthropic.APIStatusError, genai_errors.APIError)


def _matrix() -> Iterator[Any]:
    for call in CALLS:
        for stream in call.streams:
            for is_async in (False, True):
                name = "-".join((call.name, "stream" if stream else "whole", "async" if is_async else "sync"))
                yield pytest.param(call, stream, is_async, id=name)


MATRIX = list(_matrix())


def run(
    call: Call, provider: Provider, arguments: Any, *, transport: Any, stream: bool, is_async: bool, retries: int = 0
) -> str:
    async def scenario() -> str:
        async with open_client(call.client, provider.url, transport, is_async=is_async, retries=retries) as client:
            return await call.run(client, call.history(arguments), stream=stream)

    return asyncio.run(scenario())


@pytest.mark.parametrize(("call", "stream", "is_async"), MATRIX)
def test_poisoned_history_fails_without_the_guard(
    call: Call, provider: Provider, *, stream: bool, is_async: bool
) -> None:
    """The provider is strict: what the guard repairs, it refuses."""
    with pytest.raises(REFUSALS):
        run(call, provider, call.poison, transport=None, stream=stream, is_async=is_async)
    assert provider.seen[0].complaints != []


@pytest.mark.parametrize(("call", "stream", "is_async"), MATRIX)
def test_poisoned_history_succeeds_with_the_guard(
    call: Call, provider: Provider, *, stream: bool, is_async: bool
) -> None:
    """The same call succeeds through the guard, which counts what it did."""
    transport = guard()
    assert run(call, provider, call.poison, transport=transport, stream=stream, is_async=is_async) == "ok"
    assert [seen.complaints for seen in provider.seen] == [[]]
    counts = transport.counts
    assert (counts.requests, counts.checked, counts.changed) == (1, 1, 1)
    assert dict(counts.findings) == {call.rule: 1}
    assert dict(counts.unguarded) == {}


@pytest.mark.parametrize(("call", "stream", "is_async"), MATRIX)
def test_valid_body_arrives_byte_for_byte(call: Call, provider: Provider, *, stream: bool, is_async: bool) -> None:
    """A body without a fault arrives as it does without the guard."""
    transport = guard()
    for each in (None, transport):
        assert run(call, provider, call.good, transport=each, stream=stream, is_async=is_async) == "ok"
    without, with_guard = provider.seen
    assert with_guard.raw == without.raw
    assert with_guard.headers == without.headers
    assert transport.counts.changed == 0


@pytest.mark.parametrize("status", [500, 429])
@pytest.mark.parametrize(("call", "stream", "is_async"), MATRIX)
def test_retry_passes_the_guard_again(
    call: Call, provider: Provider, status: int, *, stream: bool, is_async: bool
) -> None:
    """A retried request carries the poisoned body again, and leaves repaired to the same bytes."""
    provider.faults = [status]
    transport = guard()
    assert run(call, provider, call.poison, transport=transport, stream=stream, is_async=is_async, retries=1) == "ok"
    first, second = provider.seen
    assert first.raw == second.raw
    assert (transport.counts.requests, transport.counts.changed) == (2, 2)
