"""One run: steps of a kernel from the empty state, each held against the laws and written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import Any, Final

from attrs import define, field

from latchguard.testing.errors import ProtocolError
from latchguard.testing.laws import violation
from latchguard.testing.model import Model
from latchguard.testing.protocol import CAPABILITIES, Json, Kernel, RestartableKernel, check_reply

__all__ = ["Run", "Step", "to_bytes"]

UNKNOWN_FIELD: Final = "latchguard.testing/unknown"
_UNKNOWN_VALUE: Final = {"kept": [1, None, "\u00e9"]}
# Ops that leave everything as it was when they are made twice.
_REPEATED: Final = frozenset(("append", "latch", "edit", "restamp"))


def to_bytes(value: Any) -> bytes:
    """Serialise JSON, keys in their order; lone surrogates become escapes."""
    return json.dumps(value, separators=(",", ":")).encode()


@define
class Step:
    """What was asked, and what came back: a line of a trace."""

    history: Sequence[Json]
    op: Json
    reply: Json | None = None


@define
class Run:
    """Drives one kernel and holds every reply against the laws.

    Args:
        kernel: the kernel under test; restarted first if it is impure.
        repeats: whether each write is made twice, to see that the second changes nothing.
    """

    kernel: Kernel
    repeats: bool = True
    capabilities: frozenset[str] = field(init=False)
    model: Model = field(init=False)
    steps: list[Step] = field(init=False, factory=list)
    asks: list[tuple[bytes, bytes, bytes]] = field(init=False, factory=list)
    _state: bytes = field(init=False, default=b"null")

    def __attrs_post_init__(self) -> None:
        self.capabilities = check_capabilities(self.kernel)
        self.model = Model(self.capabilities)
        if "impure" in self.capabilities and isinstance(self.kernel, RestartableKernel):
            self.kernel.restart()

    @property
    def state(self) -> bytes:
        """The state as the next step gets it."""
        return self._state

    def fork(self) -> Run:
        """Give a run that goes on from here on its own. For pure kernels."""
        other = copy(self)
        other.model = self.model.fork()
        other.steps, other.asks = list(self.steps), list(self.asks)
        return other

    def step(self, history: Sequence[Json], op: Json) -> Json:
        """Do one step and give the reply.

        Raises:
            Violation: the kernel broke a law.
            ProtocolError: the kernel does not speak the protocol.
        """
        done = Step(json.loads(to_bytes(history)), json.loads(to_bytes(op)))
        self.steps.append(done)
        self.asks.append((self._state, to_bytes(done.history), to_bytes(done.op)))
        reply = done.reply = self.ask(self._state, done.history, done.op)
        before, after = json.loads(self._state), reply["state"]
        self._check_unknown_field(before, after)
        fresh = before is None and (op.get("op") in ("resend", "reload") or _refused(reply))
        self.model.observe(done.history, done.op, reply, changed=before != after and not fresh)
        self._state = to_bytes(self._with_unknown_field(after))
        if self.repeats and op.get("op") in _REPEATED and not _refused(reply) and "crash" not in op:
            self._check_repeated(done, reply)
        return reply

    def ask(self, state: bytes, history: Sequence[Json], op: Json) -> Json:
        """Make the kernel do a step on copies, and check that it leaves them alone. Nothing is written down."""
        given = state, to_bytes(history), to_bytes(op)
        copies = [json.loads(raw) for raw in given]
        try:
            reply = self.kernel.step(*copies)
        except ProtocolError as error:
            error.asked = error.asked or given[2].decode()
            raise
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise violation("answers", str(op.get("op")), "a reply", found) from error
        for name, raw, left in zip(("state", "history", "op"), given, copies, strict=True):
            if to_bytes(left) != raw:
                raise violation("input-untouched", name, raw.decode(), to_bytes(left).decode())
        try:
            copied: Json = json.loads(to_bytes(reply))
        except (TypeError, ValueError) as error:
            raise ProtocolError("bad-reply", "a reply that is JSON", f"{type(error).__name__}: {error}") from error
        if problem := check_reply(copied):
            raise ProtocolError("bad-reply", problem, to_bytes(copied).decode()[:200])
        return copied

    def _check_repeated(self, done: Step, reply: Json) -> None:
        again = self.ask(self._state, done.history, done.op)
        if _refused(again):
            raise violation("idempotent", f"{done.op['op']}, made twice", "no change the second time", "a refusal")
        if self._with_unknown_field(again["state"]) != json.loads(self._state) or again["view"] != reply["view"]:
            raise violation("idempotent", f"{done.op['op']}, made twice", "no change the second time", "a change")

    def _with_unknown_field(self, state: Any) -> Any:
        if "unknown-fields" in self.capabilities and isinstance(state, dict):
            return {**state, UNKNOWN_FIELD: _UNKNOWN_VALUE}
        return state

    def _check_unknown_field(self, before: Any, after: Any) -> None:
        if "unknown-fields" not in self.capabilities:
            return
        if not isinstance(after, dict):
            raise violation("capabilities", "unknown-fields", "a state that is a JSON object", type(after).__name__)
        if isinstance(before, dict) and after.get(UNKNOWN_FIELD) != _UNKNOWN_VALUE:
            found = "kept" if UNKNOWN_FIELD in after else "gone"
            raise violation("unknown-fields-kept", UNKNOWN_FIELD, "the field as it was", found)
        if before is None and UNKNOWN_FIELD in after:
            raise violation("unknown-fields-kept", UNKNOWN_FIELD, "no such field", "the field")


def check_capabilities(kernel: Kernel) -> frozenset[str]:
    """Give what *kernel* declares.

    Raises:
        ProtocolError: it declares something that does not exist, or is impure and cannot be restarted.
    """
    declared = frozenset(kernel.capabilities)
    if unknown := declared - CAPABILITIES.keys():
        raise ProtocolError("bad-reply", f"capabilities of {', '.join(CAPABILITIES)}", ", ".join(sorted(unknown)))
    if "impure" in declared and not isinstance(kernel, RestartableKernel):
        raise ProtocolError("bad-reply", "an impure kernel with a method restart()", type(kernel).__name__)
    return declared


def _refused(reply: Json) -> bool:
    return any(event["event"] == "refused" for event in reply["events"])
