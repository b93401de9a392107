"""The official SDKs against a strict provider, with and without the guard."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as gemini

from latchguard.integrations.httpx import UncleanRequestError, guard
from tests.integrations import calls
from tests.integrations.calls import ANTHROPIC_TOOL, CALLS, Call, open_client, settle
from tests.integrations.provider import Provider

REFUSALS = (openai.APIStatusError, anthropic.APIStatusError, genai_errors.APIError)


class Poison(NamedTuple):
    """A way in which a history is poisoned, and the rule that knows it."""

    name: str
    history: Callable[[Call], Any]
    rule: Callable[[Call], str]


POISONS = (
    Poison("arguments", lambda call: call.history(call.poison), lambda call: call.rule),
    Poison("unanswered", lambda call: call.history(call.good, answered=False), lambda _: "unanswered-call"),
)


def _matrix() -> Iterator[Any]:
    for call in CALLS:
        for stream in call.streams:
            for is_async in (False, True):
                name = "-".join((call.name, "stream" if stream else "whole", "async" if is_async else "sync"))
                yield pytest.param(call, stream, is_async, id=name)


matrix = pytest.mark.parametrize(("call", "stream", "is_async"), list(_matrix()))
poisons = pytest.mark.parametrize("poison", POISONS, ids=lambda poison: poison.name)


def run(
    call: Call, provider: Provider, history: Any, *, transport: Any, stream: bool, is_async: bool, retries: int = 0
) -> str:
    async def scenario() -> str:
        async with open_client(call.client, provider.url, transport, is_async=is_async, retries=retries) as client:
            return await call.run(client, history, stream=stream)

    return asyncio.run(scenario())


@matrix
@poisons
def test_poisoned_history_fails_without_the_guard(
    call: Call, poison: Poison, provider: Provider, *, stream: bool, is_async: bool
) -> None:
    """The provider is strict: what the guard repairs, it refuses."""
    with pytest.raises(REFUSALS):
        run(call, provider, poison.history(call), transport=None, stream=stream, is_async=is_async)
    assert provider.seen[0].complaints != []


@matrix
@poisons
def test_poisoned_history_succeeds_with_the_guard(
    call: Call, poison: Poison, provider: Provider, *, stream: bool, is_async: bool
) -> None:
    """The same call succeeds through the guard, which counts what it did."""
    transport = guard()
    history = poison.history(call)
    assert run(call, provider, history, transport=transport, stream=stream, is_async=is_async) == "ok"
    assert [seen.complaints for seen in provider.seen] == [[]]
    counts = transport.counts
    assert (counts.requests, counts.checked, counts.changed) == (1, 1, 1)
    assert dict(counts.findings) == {poison.rule(call): 1}
    assert (dict(counts.failed), dict(counts.unguarded)) == ({}, {})


@matrix
def test_valid_body_arrives_byte_for_byte(call: Call, provider: Provider, *, stream: bool, is_async: bool) -> None:
    """A body without a fault arrives as it does without the guard."""
    transport = guard()
    for each in (None, transport):
        history = call.history(call.good)
        assert run(call, provider, history, transport=each, stream=stream, is_async=is_async) == "ok"
    without, with_guard = provider.seen
    assert with_guard.raw == without.raw
    assert with_guard.headers == without.headers
    assert transport.counts.changed == 0


@pytest.mark.parametrize("status", [500, 429])
@matrix
def test_retry_passes_the_guard_again(
    call: Call, provider: Provider, status: int, *, stream: bool, is_async: bool
) -> None:
    """A retried request carries the poisoned body again, and leaves repaired to the same bytes."""
    provider.faults = [status]
    transport = guard()
    history = call.history(call.poison)
    assert run(call, provider, history, transport=transport, stream=stream, is_async=is_async, retries=1) == "ok"
    first, second = provider.seen
    assert first.raw == second.raw
    assert (transport.counts.requests, transport.counts.changed) == (2, 2)


def begin(kind: str) -> list[Any]:
    return [gemini.UserContent("go") if kind == "genai" else {"role": "user", "content": "go"}]


async def chat_round(client: Any, history: list[Any]) -> bool:
    message = (await settle(client.chat.completions.create(model="m", messages=history))).choices[0].message
    history.append(message.model_dump(exclude_none=True))
    history += [
        {"role": "tool", "tool_call_id": call.id, "content": "the arguments did not parse"}
        for call in message.tool_calls or ()
    ]
    return bool(message.tool_calls)


async def responses_round(client: Any, history: list[Any]) -> bool:
    output = (await settle(client.responses.create(model="m", input=history))).output
    history += output
    calls = [item for item in output if item.type == "function_call"]
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "no JSON"} for call in calls]
    return bool(calls)


async def messages_round(client: Any, history: list[Any]) -> bool:
    content = (
        await settle(client.messages.create(model="m", max_tokens=9, messages=history, tools=[ANTHROPIC_TOOL]))
    ).content
    history.append({"role": "assistant", "content": content})
    calls = [block for block in content if block.type == "tool_use"]
    if calls:
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "no object"} for call in calls]
        history.append({"role": "user", "content": results})
    return bool(calls)


async def gemini_round(client: Any, history: list[Any]) -> bool:
    answer = await settle(client.models.generate_content(model="m", contents=history))
    history.append(answer.candidates[0].content)
    if answer.function_calls:  # of two calls at once, a host that runs tools one by one lost the second
        result = gemini.FunctionResponse(name="run", response={"output": "done"})
        history.append(gemini.Content(role="user", parts=[gemini.Part(function_response=result)]))
    return bool(answer.function_calls)


TRUNCATED = '{"cmd": "rm -rf build/'
# A client, one round of its plain loop, and what the model asks for that poisons the history.
LOOPS = [
    pytest.param("openai", chat_round, TRUNCATED, id="chat"),
    pytest.param("openai", responses_round, TRUNCATED, id="responses"),
    pytest.param("anthropic", messages_round, TRUNCATED, id="messages"),
    pytest.param("genai", gemini_round, [{"cmd": "ls"}, {"cmd": "pwd"}], id="generate_content"),
]


# The SDK of Anthropic warns of the text in place of an object, and sends it.
sends_with_warning = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


@sends_with_warning
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("kind", "one_round", "asked"), LOOPS)
def test_tool_loop_passes_the_same_door_in_every_round(
    kind: str, one_round: Callable[..., Any], asked: Any, provider: Provider, *, is_async: bool
) -> None:
    """What a model asks for poisons the history; each round resends it, and each leaves repaired."""
    transport = guard()
    provider.calls = [asked, asked]
    history = begin(kind)

    async def loop() -> list[bool]:
        async with open_client(kind, provider.url, transport, is_async=is_async) as client:
            return [await one_round(client, history) for _ in range(3)]

    assert asyncio.run(loop()) == [True, True, False]
    assert [seen.complaints for seen in provider.seen] == [[], [], []]
    counts = transport.counts
    assert (counts.requests, counts.checked, counts.changed) == (3, 3, 2)
    assert sum(counts.findings.values()) == 3  # the first is repaired in two rounds, the second in one


@sends_with_warning
@pytest.mark.parametrize(("kind", "one_round", "asked"), LOOPS)
def test_tool_loop_is_stuck_without_the_guard(
    kind: str, one_round: Callable[..., Any], asked: Any, provider: Provider
) -> None:
    """The same loop without the guard: the round after the first call is refused, and so would all later ones be."""
    provider.calls = [asked]
    history = begin(kind)

    async def loop() -> None:
        async with open_client(kind, provider.url, None, is_async=False) as client:
            assert await one_round(client, history)
            with pytest.raises(REFUSALS):
                await one_round(client, history)

    asyncio.run(loop())


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_openai_takes_the_older_library_too(provider: Provider, *, is_async: bool) -> None:
    """An `httpx` client that a host still has: the same guard."""
    http: Any = (httpx.AsyncClient if is_async else httpx.Client)(transport=guard())
    client: Any = (openai.AsyncOpenAI if is_async else openai.OpenAI)(
        api_key="k", base_url=provider.url, http_client=http
    )

    async def scenario() -> str:
        text = await calls.chat(client, calls.chat_history(calls.CLIP), stream=False)
        await settle(client.close())
        return text

    assert asyncio.run(scenario()) == "ok"


@pytest.mark.parametrize("library", [httpx, httpx2], ids=lambda library: library.__name__)
def test_genai_takes_a_guard_around_a_transport_of_either_library(provider: Provider, library: Any) -> None:
    """The SDK picks its HTTP library by the class of the transport: a guard is of the class of what it guards."""
    transport = guard(library.HTTPTransport(retries=1))
    options = gemini.HttpOptions(base_url=provider.url, client_args={"transport": transport})
    client = genai.Client(api_key="k", http_options=options)
    answer = client.models.generate_content(model="m", contents=calls.gemini_history({"cmd": "ls"}))
    client.close()
    assert answer.text == "ok"
    assert transport.counts.checked == 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("openai", UncleanRequestError),
        ("anthropic", anthropic.APIConnectionError),
        ("genai", UncleanRequestError),
    ],
)
def test_refusal_reaches_the_caller_through_the_sdk(kind: str, expected: type[Exception], provider: Provider) -> None:
    """Anthropic's SDK takes any exception of a transport for a broken connection; ours is its cause."""
    call = next(call for call in CALLS if call.client == kind)
    with pytest.raises(expected) as caught:
        run(
            call,
            provider,
            call.history(call.poison),
            transport=guard(allow="lossless", on_unclean="raise"),
            stream=False,
            is_async=False,
        )
    error = caught.value.__cause__ if kind == "anthropic" else caught.value
    assert isinstance(error, UncleanRequestError)
    assert provider.seen == []
