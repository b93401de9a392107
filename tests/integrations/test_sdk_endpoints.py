"""Every endpoint that carries a conversation, as the official SDKs call it; and Bedrock, where bodies are signed."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic import AnthropicBedrock, AnthropicVertex
from google import genai
from google.genai import types as gemini

from latchguard import PLACEHOLDER_ARGUMENTS, harden
from latchguard.integrations.httpx import Guard, SignedBodyError, guard
from tests.integrations.calls import (
    ANTHROPIC_TOOL,
    CLIP,
    chat_history,
    gemini_history,
    messages_history,
    responses_history,
)


class Exit:
    """A client whose requests end here: what left, and the guard that it passed."""

    def __init__(self) -> None:
        self.sent: list[httpx2.Request] = []
        self.guard: Guard = guard(httpx2.MockTransport(self._take))
        self.client = httpx2.Client(transport=self.guard)

    def _take(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        return httpx2.Response(200, json={})


def openai_client(out: Exit) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", http_client=out.client)


def anthropic_client(out: Exit) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", http_client=out.client)


def azure(out: Exit) -> Any:
    client = openai.AzureOpenAI(
        api_key="k", api_version="2026-01-01", azure_endpoint="https://a.example", http_client=out.client
    )
    return client.chat.completions.create(model="m", messages=CHAT)


def vertex(out: Exit, *, stream: bool = False) -> Any:
    client = AnthropicVertex(project_id="p", region="r", access_token="t", http_client=out.client)  # noqa: S106
    return client.messages.create(**MESSAGE, stream=stream)


def count_tokens(out: Exit) -> Any:
    options = gemini.HttpOptions(client_args={"transport": out.guard})
    client = genai.Client(api_key="k", http_options=options)
    return client.models.count_tokens(model="m", contents=gemini_history(CLIP))


CHAT: Any = chat_history(CLIP)
ITEMS: Any = responses_history(CLIP)
MESSAGE: Any = {
    "model": "m",
    "max_tokens": 9,
    "messages": messages_history(CLIP),
    "tools": [ANTHROPIC_TOOL],
}
# The end of the path that the SDK calls, and a call of it with a poisoned history.
SDK_CALLS: dict[str, Callable[[Exit], Any]] = {
    "/responses/compact": lambda out: openai_client(out).responses.compact(model="m", input=ITEMS),
    "/responses/input_tokens": lambda out: openai_client(out).responses.input_tokens.count(model="m", input=ITEMS),
    "/conversations": lambda out: openai_client(out).conversations.create(items=ITEMS),
    "/conversations/conv_1/items": lambda out: openai_client(out).conversations.items.create("conv_1", items=ITEMS),
    "/openai/deployments/m/chat/completions": azure,
    "/messages/batches": lambda out: anthropic_client(out).messages.batches.create(
        requests=[{"custom_id": "a", "params": MESSAGE}]
    ),
    "/models/m:rawPredict": vertex,
    "/models/m:streamRawPredict": lambda out: vertex(out, stream=True),
    ":countTokens": count_tokens,
}


@pytest.mark.parametrize("path", SDK_CALLS)
def test_sdk_call_passes_the_door(path: str) -> None:
    """The path that the SDK really calls is an endpoint, and its poisoned body leaves repaired."""
    out = Exit()
    SDK_CALLS[path](out)
    assert out.sent[0].url.path.endswith(path)
    assert (out.guard.counts.checked, out.guard.counts.changed) == (1, 1)
    body = out.sent[0].content.decode()
    assert CLIP not in body
    assert json.loads(PLACEHOLDER_ARGUMENTS)["_latchguard"] in body


def sign(*, data: bytes, **request: Any) -> dict[str, str]:
    """Stand for AWS: the signature covers the bytes of the body."""
    return {"authorization": f"AWS4-HMAC-SHA256 Credential=k, Signature={hashlib.sha256(data).hexdigest()}"}


def bedrock(out: Exit, monkeypatch: pytest.MonkeyPatch, **options: Any) -> AnthropicBedrock:
    monkeypatch.setattr("anthropic.lib.bedrock._client.get_auth_headers", sign)
    return AnthropicBedrock(
        aws_region="us-east-1",
        aws_access_key="k",
        aws_secret_key="s",  # noqa: S106
        http_client=out.client,
        **options,
    )


def test_signed_bedrock_body_is_refused_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anthropic's Bedrock client signs before the transport: a repair there would break the signature."""
    out = Exit()
    with pytest.raises(anthropic.APIConnectionError) as caught:
        bedrock(out, monkeypatch, max_retries=0).messages.create(**MESSAGE)
    assert isinstance(caught.value.__cause__, SignedBodyError)
    assert out.sent == []


def test_middleware_hardens_before_bedrock_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern of the docs: what leaves is repaired, and the signature fits it."""

    def harden_request(request: Any, call_next: Callable[[Any], Any]) -> Any:
        body = request.json
        if isinstance(body, dict) and "messages" in body:
            request = request.copy(body=harden(body, "anthropic").body)
        return call_next(request)

    out = Exit()
    bedrock(out, monkeypatch, middleware=[harden_request]).messages.create(**MESSAGE)
    (sent,) = out.sent
    assert sent.url.path == "/model/m/invoke"
    assert CLIP not in sent.content.decode()
    assert sent.headers["authorization"] == sign(data=sent.content)["authorization"]
    assert (out.guard.counts.checked, out.guard.counts.changed) == (1, 0)
