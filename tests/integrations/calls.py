"""Plain calls of the official SDKs: one function per endpoint, the same for sync and async clients."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types as gemini

CLIP = "Summary of the work so far: the build is green [...] and the tests pass."


async def settle(value: Any) -> Any:
    """Give what a sync call gave, or what an async call will give."""
    return await value if inspect.isawaitable(value) else value


async def drain(events: Any) -> list[Any]:
    """Read a stream to its end."""
    return [event async for event in events] if hasattr(events, "__aiter__") else list(events)


@asynccontextmanager
async def open_client(kind: str, url: str, transport: Any, *, is_async: bool, retries: int = 0) -> AsyncIterator[Any]:
    """Make the SDK's client as its users make it; *transport* None is the SDK without a guard."""
    if kind == "genai":
        arguments = {} if transport is None else {"transport": transport}
        options = gemini.HttpOptions(
            base_url=url,
            client_args=arguments,
            async_client_args=arguments or {"transport": httpx2.AsyncHTTPTransport()},
            retry_options=gemini.HttpRetryOptions(attempts=retries + 1, initial_delay=0.001, max_delay=0.01),
        )
        client = genai.Client(api_key="k", http_options=options)
        try:
            yield client.aio if is_async else client
        finally:
            client.close()
            await client.aio.aclose()
        return
    http = (httpx2.AsyncClient if is_async else httpx2.Client)(transport=transport)
    name = "AsyncOpenAI" if kind == "openai" else "AsyncAnthropic"
    module: Any = openai if kind == "openai" else anthropic
    made = getattr(module, name if is_async else name.removeprefix("Async"))(
        api_key="k", base_url=url, http_client=http, max_retries=retries
    )
    try:
        yield made
    finally:
        await settle(made.close())


async def chat(client: Any, messages: Any, *, stream: bool) -> str:
    answer = await settle(client.chat.completions.create(model="m", messages=messages, stream=stream))
    if stream:
        return "".join(event.choices[0].delta.content or "" for event in await drain(answer))
    return str(answer.choices[0].message.content)


async def responses(client: Any, messages: Any, *, stream: bool) -> str:
    answer = await settle(client.responses.create(model="m", input=messages, stream=stream))
    if stream:
        return "".join(getattr(event, "delta", "") for event in await drain(answer))
    return str(answer.output_text)


async def messages(client: Any, messages: Any, *, stream: bool) -> str:
    answer = await settle(
        client.messages.create(model="m", max_tokens=9, messages=messages, tools=[ANTHROPIC_TOOL], stream=stream)
    )
    if stream:
        events = await drain(answer)
        return "".join(event.delta.text for event in events if event.type == "content_block_delta")
    return str(answer.content[0].text)


async def count_tokens(client: Any, messages: Any, *, stream: bool) -> str:
    answer = await settle(client.messages.count_tokens(model="m", messages=messages, tools=[ANTHROPIC_TOOL]))
    return "ok" if answer.input_tokens == 7 else "wrong"


async def generate_content(client: Any, messages: Any, *, stream: bool) -> str:
    if stream:
        events = await settle(client.models.generate_content_stream(model="m", contents=messages))
        return "".join(event.text for event in await drain(events))
    return str((await settle(client.models.generate_content(model="m", contents=messages))).text)


ANTHROPIC_TOOL = {"name": "run", "description": "Run a command", "input_schema": {"type": "object"}}


# Histories of one call of a tool; not *answered* is what a killed tool leaves behind.


def chat_history(arguments: Any, *, answered: bool = True) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        *([result] if answered else []),
        {"role": "user", "content": "and now?"},
    ]


def responses_history(arguments: Any, *, answered: bool = True) -> list[dict[str, Any]]:
    result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    return [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "call_1", "name": "run", "arguments": arguments},
        *([result] if answered else []),
        {"role": "user", "content": "and now?"},
    ]


def messages_history(arguments: Any, *, answered: bool = True) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": arguments}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [*([result] if answered else []), {"type": "text", "text": "and now?"}]},
    ]


def gemini_history(arguments: Any, *, answered: bool = True) -> list[gemini.Content]:
    """A persistence layer restores trusted records with `model_construct`, which checks nothing."""
    call = gemini.FunctionCall.model_construct(name="run", args=arguments)
    result = gemini.Part(function_response=gemini.FunctionResponse(name="run", response={"output": "done"}))
    return [
        gemini.Content(role="user", parts=[gemini.Part(text="go")]),
        gemini.Content.model_construct(role="model", parts=[gemini.Part.model_construct(function_call=call)]),
        gemini.Content(role="user", parts=[*([result] if answered else []), gemini.Part(text="and now?")]),
    ]


class Call(NamedTuple):
    """An SDK's endpoint: how to call it, a history that any provider takes, and one that none takes."""

    name: str
    client: str
    run: Callable[..., Awaitable[str]]
    history: Callable[..., Any]
    good: Any
    poison: Any
    rule: str
    streams: tuple[bool, ...] = (False, True)


CALLS = (
    Call("chat", "openai", chat, chat_history, '{"cmd": "ls",  "n": 1.10}', CLIP, "args-invalid-json"),
    Call("responses", "openai", responses, responses_history, '{"cmd": "ls"}', CLIP, "args-invalid-json"),
    Call("messages", "anthropic", messages, messages_history, {"cmd": "ls"}, CLIP, "input-not-object"),
    Call(
        "count_tokens", "anthropic", count_tokens, messages_history, {"cmd": "ls"}, CLIP, "input-not-object", (False,)
    ),
    Call("generate_content", "genai", generate_content, gemini_history, {"cmd": "ls"}, CLIP, "input-not-object"),
)
