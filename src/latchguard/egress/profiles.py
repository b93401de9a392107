"""Profiles: what a target demands beyond its wire. Data; each demand names its source, its date and its evidence.

1. A profile is a tuple of demands; a trait is a profile that is named after what it demands.
2. Several join with commas, in any order. Of two limits the stricter holds; demands that differ otherwise exclude
   each other.
3. What is neither documented nor in a case is not here: a profile without demands is a known name, no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from attrs import frozen

from latchguard.core.errors import InvalidValueError, ProfileConflictError, UnknownProfileError, cut

__all__ = ["PROFILES", "Demand", "Demands", "resolve_profile"]


@frozen
class Demand:
    """One thing that a target demands.

    Args:
        name: what rules ask for.
        value: True, or the limit, or the choice.
        source: where it is documented or was seen.
        date: as of when, year and month.
        evidence: the phrase of the document or error, or the case.
    """

    name: str
    value: Any
    source: str
    date: str
    evidence: str


Demands: TypeAlias = Mapping[str, Any]

_STRICT_ARGS: Final = (
    Demand(
        "args-object",
        value=True,
        source="QwenLM/Qwen3-Coder#444, mudler/LocalAI#10256 (a vLLM backend), sgl-project/sglang#28035",
        date="2025-07 to 2026-06",
        evidence="TypeError: Can only get item pairs from a mapping.",
    ),
)
_STRICT_REQUIRED: Final = (
    Demand(
        "args-required",
        value=True,
        source="JSON Schema 2020-12, validation vocabulary, section 6.5.3",
        date="2022-06",
        evidence="every item in the array is the name of a property in the instance",
    ),
)

_TURNS_APART: Final = Demand(
    "turns-apart",
    value=True,
    source="AstrBotDevs/AstrBot#7871, leookun/cursor-byok#307 (servers that speak the Messages API)",
    date="2026-11",
    evidence="tool_use without tool_result immediately after; cases 065 and 067",
)
_UNIQUE_CALL_IDS: Final = Demand(
    "unique-call-ids",
    value=True,
    source="can1357/oh-my-pi#2055",
    date="2026-06",
    evidence="tool call result does not follow tool call (2013); case 009",
)
_OPEN_TAIL: Final = Demand(
    "open-tail",
    value=True,
    source="OpenAI Agents SDK sessions, Claude Code transcripts: items are stored as they come",
    date="2026-11",
    evidence="a history at rest may end while a call runs",
)
_NO_PREFILL: Final = Demand(
    "prefill",
    value="refused",
    source="anomalyco/opencode#13768, vercel/ai#12296 (Claude Opus 4.6 and later)",
    date="2026-02",
    evidence="The conversation must end with a user message.",
)

_ID40: Final = Demand(
    "call-id-length",
    value=40,
    source="OpenAI, Chat Completions",
    date="2026-11",
    evidence="string too long. Expected a string with maximum length 40",
)
_NINE: Final = Demand(
    "call-id-form",
    value="[a-zA-Z0-9]{9}",
    source="Mistral, chat completions",
    date="2026-11",
    evidence="must be a-z, A-Z, 0-9, with a length of 9",
)
_ID_CHARSET: Final = Demand(
    "call-id-form",
    value="[a-zA-Z0-9_-]+",
    source="Anthropic, Messages; Amazon Bedrock, Converse",
    date="2026-11",
    evidence="tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
)
_PREFILL: Final = Demand(
    "prefill",
    value="allowed",
    source="langchain-ai/langchain#35072; Anthropic, prefill",
    date="2026-11",
    evidence="final assistant content cannot end with trailing whitespace",
)
_CONTENT_KEY: Final = Demand(
    "content-key",
    value=True,
    source="BerriAI/litellm#39268",
    date="2026-11",
    evidence="missing field content; case 024",
)
_CONTENT_TEXT: Final = Demand(
    "content-text",
    value=True,
    source="lmstudio-ai/lmstudio-bug-tracker#261",
    date="2026-11",
    evidence="'content' field must be a string or an array of objects",
)
_ROLES: Final = Demand(
    "roles-alternate",
    value=True,
    source="nesquena/hermes-webui#3276",
    date="2026-11",
    evidence="Conversation roles must alternate; case 028",
)
_TEXT_ONLY: Final = Demand(
    "text-only",
    value=True,
    source="nesquena/hermes-webui#2297",
    date="2026-11",
    evidence="case 027",
)
_NO_EMPTY_TEXT: Final = Demand(
    "no-empty-text",
    value=True,
    source="Anthropic, Messages, and servers modelled on it",
    date="2026-11",
    evidence="text content blocks must be non-empty",
)
_RESULT_TEXT: Final = Demand(
    "result-text",
    value=True,
    source="NousResearch/hermes-agent#55093 (Amazon Bedrock)",
    date="2026-11",
    evidence="text content blocks must be non-empty; case 073",
)
_NO_REASONING_CONTENT: Final = Demand(
    "reasoning-content",
    value="refused",
    source="BerriAI/litellm#30835",
    date="2026-11",
    evidence="case 029",
)
_REASONING_CONTENT: Final = Demand(
    "reasoning-content",
    value="required",
    source="DeepSeek, thinking mode with tools",
    date="2026-11",
    evidence="Missing `reasoning_content` field in the assistant message at message index",
)
_REASONING_PER_ITEM: Final = Demand(
    "reasoning-per-item",
    value=True,
    source="openai/openai-agents-python#3574 (Azure OpenAI)",
    date="2026-11",
    evidence="was provided without its required 'reasoning' item; case 046",
)
_SIGNED_STEPS: Final = Demand(
    "signed-steps",
    value=True,
    source="ai.google.dev, thought signatures; thClaws/thClaws#65",
    date="2026-11",
    evidence="Function call is missing a thought_signature in functionCall parts.",
)
_THINKING_BOUND: Final = Demand(
    "thinking-bound",
    value=True,
    source="platform.claude.com, preserved thinking",
    date="2026-11",
    evidence="The block is bound to a different conversation.",
)

PROFILES: Final[Mapping[str, tuple[Demand, ...]]] = MappingProxyType(
    {
        "openai": (),
        "openai-chat-id40": (_ID40,),
        "azure-openai": (_REASONING_PER_ITEM,),
        "anthropic": (_ID_CHARSET,),
        "anthropic-prefill": (_PREFILL,),
        "anthropic-no-prefill": (_NO_PREFILL,),
        "anthropic-prefix-bound": (_THINKING_BOUND,),
        "anthropic-compat-strict": (_TURNS_APART,),
        "bedrock": (_ID_CHARSET, _RESULT_TEXT),
        "gemini": (),
        "gemini-3": (_SIGNED_STEPS,),
        "mistral": (_NINE, _NO_REASONING_CONTENT),
        "deepseek-thinking": (_REASONING_CONTENT,),
        "strict-args": _STRICT_ARGS,
        "strict-required": _STRICT_REQUIRED,
        "strict-ids": (_UNIQUE_CALL_IDS,),
        "strict-content": (_CONTENT_KEY,),
        "strict-template": (_ROLES,),
        "strict-empty-text": (_NO_EMPTY_TEXT,),
        "no-null-content": (_CONTENT_TEXT,),
        "text-only": (_TEXT_ONLY,),
        "stored": (_OPEN_TAIL,),
        "postgres-jsonb": (),
    }
)


def resolve_profile(profile: str | None) -> Demands:
    """Give all demands of *profile*, names joined with commas, as name -> value.

    Raises:
        InvalidValueError: *profile* is neither a string nor None.
        UnknownProfileError: a name is not in `PROFILES`.
        ProfileConflictError: two demands exclude each other.

    Guarantees:
        Pure; the order of the names does not matter.
    """
    if profile is None:
        return _NOTHING
    if not isinstance(profile, str):
        raise InvalidValueError("profile", "profile names joined with commas, or None", cut(profile))
    return _resolve(profile)


_NOTHING: Final[Demands] = MappingProxyType({})


@lru_cache(maxsize=64)
def _resolve(profile: str) -> Demands:
    demands: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for name in sorted({part.strip() for part in profile.split(",")}):
        if name not in PROFILES:
            raise UnknownProfileError(name, tuple(PROFILES))
        for demand in PROFILES[name]:
            value = demands.setdefault(demand.name, demand.value)
            owner = owners.setdefault(demand.name, name)
            if value == demand.value:
                continue
            if type(value) is not int or type(demand.value) is not int:
                raise ProfileConflictError(owner, name, demand.name)
            demands[demand.name] = min(value, demand.value)
    return MappingProxyType(demands)
