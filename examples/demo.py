"""`make demo`: a poisoned session goes in, a healthy one comes out, and the result is proven.

The sample was written by a context-compression proxy. Three clips were made for long tool results; then the messages
were renumbered and the clips stayed behind under their old numbers. Now each sits on a tool call.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from latchguard import Kind, Message, harden, replay
from latchguard.core.jsontext import Verdict, check_json
from latchguard.sources.bili import BiliSession, load_bili

SAMPLE = Path(__file__).with_name("poisoned.json")
OUT = Path("demo-out")


def main() -> int:
    """Run the demo in `demo-out/` of the current folder and give 0 where everything is proven."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    session = Path(shutil.copy(SAMPLE, OUT / "session.json"))

    heading("1. The poison: a proxy that stamps clips by number sends this")
    before = load_bili(session.read_bytes())
    poisoned = chat_body(stamped_by_ref(before))
    show_calls(poisoned, before)

    heading("2. The repair: latchguard repair --apply demo-out/session.json")
    command = [sys.executable, "-m", "latchguard", "repair", "--apply", "--backup-dir", str(OUT / "runs"), str(session)]
    if (status := subprocess.run(command, check=False).returncode) != 0:  # noqa: S603  # our own command
        return status

    heading("3. The proof: replay and egress of the repaired session")
    after = load_bili(session.read_bytes())
    replayed = replay(after.messages, after.state)
    body = chat_body(list(replayed.messages))
    show_calls(body, after)
    outcome = harden(body, "openai-chat")
    for applied in replayed.applied:
        holder = applied.holder
        print(f"clip {applied.latch.ref} shows on {holder.kind if holder else None} {holder.id if holder else None}")
    print(f"replay: {len(replayed.applied)} latches applied, {len(replayed.refused)} refused")
    print(f"egress: {len(outcome.findings)} findings, body unchanged: {outcome.body is body}")
    proven = outcome.clean and outcome.body is body and not replayed.refused
    print("\nProven: the repaired session is healthy." if proven else "\nNOT proven.")
    return int(not proven)


def stamped_by_ref(session: BiliSession) -> list[Message]:
    """Put each clip on whatever message holds its ref now, as the proxy does that asks for no identity."""
    clips = {latch.ref: latch.text for latch in session.state.latches}
    return [
        Message(one.id, one.role, one.kind, clips.get(session.state.refs.get(one.id, ""), one.text), one.tool_name,
                one.tool_call_id)
        for one in session.messages
    ]  # fmt: skip


def chat_body(messages: list[Message]) -> dict[str, Any]:
    """Build the request that a client of an OpenAI-style chat endpoint would send."""
    return {"model": "sample-model", "messages": [_entry(message) for message in messages]}


def _entry(message: Message) -> dict[str, Any]:
    if message.kind is Kind.TOOL_CALL:
        function = {"name": message.tool_name, "arguments": message.text}
        call = {"id": message.tool_call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if message.kind is Kind.TOOL_RESULT:
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
    return {"role": str(message.role), "content": message.text}


def show_calls(body: dict[str, Any], session: BiliSession) -> None:
    """Print the arguments of each tool call that holds the ref of a clip in the sample."""
    suspects = {latch["ref"] for latch in json.loads(SAMPLE.read_text())["payload"]["state"]["emergencyTruncateLatch"]}
    for entry, message in zip(body["messages"], session.messages, strict=True):
        ref = session.state.refs.get(message.id)
        if "tool_calls" in entry and ref in suspects:
            arguments = entry["tool_calls"][0]["function"]["arguments"]
            verdict = "valid JSON" if check_json(arguments) is Verdict.VALID else "NOT JSON"
            print(f"{ref}  {message.tool_name} {message.tool_call_id}  arguments ({verdict}): {arguments[:60]!r}")


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n== {text} ==\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
