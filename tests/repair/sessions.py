"""Build session files as the proxy writes them, for tests: small, exact, and wrong on purpose where asked."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures" / "bili"
NAMES = sorted(path.name.removesuffix(".expect.json") for path in FIXTURES.glob("*.expect.json"))
MARKER = "\n\n...[truncated for context space] — original ~1000 tokens]...\n\n"
OTHER_MARKER = "[acp: tool-result truncated, original ~12 tokens]"
ARGUMENTS = '{"command":"ls -la","timeout":30}'


def read_fixture(name: str) -> tuple[bytes, dict[str, Any]]:
    expected = json.loads((FIXTURES / f"{name}.expect.json").read_bytes())
    assert isinstance(expected, dict)
    return (FIXTURES / f"{name}.json").read_bytes(), expected


def long_text(seed: int, characters: int = 3000) -> str:
    """A text whose head and tail are those of no other seed."""
    words = [f"{seed}.{number} word" for number in range(characters // 8)]
    return "\n".join(words)[:characters]


def clip(text: str, marker: str = MARKER, head: int = 1000, tail: int = 1000) -> str:
    return text[:head] + marker + text[-tail:]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "contentType": "text", "text": text}


def result(text: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"role": "tool", "contentType": "tool-result", "text": text, "toolCallId": call_id}


def call(arguments: str = ARGUMENTS, call_id: str = "call_1", name: str = "bash") -> dict[str, Any]:
    return {
        "role": "assistant",
        "contentType": "tool-call",
        "text": arguments,
        "toolName": name,
        "toolCallId": call_id,
    }


def kernel_id(message: Mapping[str, Any]) -> str:
    fields = (message.get(key, "") for key in ("role", "contentType", "toolCallId", "toolName", "text"))
    return "h_" + sha256("|".join(fields).encode()).hexdigest()[:16]


def ref(number: int) -> str:
    return f"m{number:05d}"


def session(
    messages: Sequence[Mapping[str, Any]],
    *,
    clips: Any = (),
    views: Any = None,
    protected: Sequence[int] = (),
    flat: bool = False,
    record: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> bytes:
    """A session whose messages hold the refs m00001, m00002, ... in order; *protected* are positions."""
    stored: list[dict[str, Any]] = []
    by_raw: dict[str, str] = {}
    by_ref: dict[str, str] = {}
    for position, message in enumerate(messages):
        message_id = message.get("id") or kernel_id(message)
        twin = sum(other["id"].startswith(message_id) for other in stored)
        message_id = f"{message_id}_{twin}" if twin else message_id
        stored.append({"id": message_id, **message})
        by_raw[message_id] = "BLOCKED" if position in protected else ref(position + 1)
        if position not in protected:
            by_ref[ref(position + 1)] = message_id
    found = {
        "blocks": [],
        "messageRefs": {"byRaw": by_raw, "byRef": by_ref},
        "tokenSnapshot": {},
        "emergencyTruncateLatch": clips if isinstance(clips, dict) else list(clips),
        **({} if views is None else {"viewLatch": views}),
        **(state or {}),
    }
    body = {"version": 3, "id": "ses_test", "state": found, "messages": stored, "blockContents": {}, **(record or {})}
    document = body if flat else {"version": 3, "savedAt": 1, "id": "ses_test", "payload": body}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def state_of(raw: bytes) -> Any:
    document = json.loads(raw)
    return document.get("payload", document)["state"]


def messages_of(raw: bytes) -> Any:
    document = json.loads(raw)
    return document.get("payload", document)["messages"]
