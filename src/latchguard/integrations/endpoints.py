"""Which requests carry a conversation: told by the end of the path, never by the host.

Hosts say nothing: gateways, regional and private deployments serve the same paths under any name and prefix. Paths
are those that the official SDKs (openai, anthropic, google-genai, and their Azure, Bedrock and Vertex clients) call.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from latchguard.core.findings import Wire

__all__ = ["ENDPOINTS", "Endpoint", "find_endpoint"]


@frozen
class Endpoint:
    """One kind of request.

    Args:
        suffix: what its path ends with; `*` stands for one segment.
        wire: of its bodies; None where the same path serves several, and the body's shape tells.
        items: the body is `{"items": [...]}`, Responses items that are added to a conversation.
        batch: the body is `{"requests": [{"params": request}, ...]}`.
        supported: False for formats that no wire of latchguard covers.
    """

    suffix: str
    wire: Wire | None
    items: bool = False
    batch: bool = False
    supported: bool = True


ENDPOINTS: Final = (
    Endpoint("/chat/completions", Wire.OPENAI_CHAT),
    Endpoint("/responses", Wire.OPENAI_RESPONSES),
    Endpoint("/responses/compact", Wire.OPENAI_RESPONSES),
    Endpoint("/responses/input_tokens", Wire.OPENAI_RESPONSES),
    Endpoint("/conversations", Wire.OPENAI_RESPONSES, items=True),
    Endpoint("/conversations/*/items", Wire.OPENAI_RESPONSES, items=True),
    Endpoint("/messages", Wire.ANTHROPIC),
    Endpoint("/messages/count_tokens", Wire.ANTHROPIC),
    Endpoint("/messages/batches", Wire.ANTHROPIC, batch=True),
    Endpoint(":generateContent", Wire.GEMINI),
    Endpoint(":streamGenerateContent", Wire.GEMINI),
    Endpoint(":countTokens", Wire.GEMINI),
    Endpoint(":rawPredict", None),  # Vertex: the publisher's own format
    Endpoint(":streamRawPredict", None),
    Endpoint("/invoke", None),  # Bedrock: the model's own format
    Endpoint("/invoke-with-response-stream", None),
    Endpoint("/converse", None, supported=False),
    Endpoint("/converse-stream", None, supported=False),
)

_SUFFIXES: Final = "|".join(f"({re.escape(endpoint.suffix)})" for endpoint in ENDPOINTS).replace(r"\*", "[^/]+")
_PATTERN: Final = re.compile(f"(?:{_SUFFIXES})/?$")


def find_endpoint(path: str) -> Endpoint | None:
    """Give the endpoint that *path* (of a URL, without query) ends with; None where it is none."""
    match = _PATTERN.search(path)
    return ENDPOINTS[match.lastindex - 1] if match and match.lastindex else None
