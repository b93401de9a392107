"""Messages in the protocol's form, made with dice. Pools are small: equal messages must be common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from unicodedata import normalize

from latchguard.testing.dice import Dice
from latchguard.testing.protocol import Json

__all__ = ["SHAPES", "make_clip", "make_history", "make_message", "make_near", "make_text"]

_TEXTS: Final = (
    "done",
    "",
    "a\nb",
    "na\u00efve caf\u00e9",
    "cafe\u0301",
    "\u4f60\u597d \U0001f600",
    "\u202eright to left\u2028",
    " trailing ",
    "nul \x00 inside",
    '{"looks": "like arguments"}',
    "x" * 700,
    "done 2",
    "DONE",
)
_LONE: Final = ("half \ud83d", "\ude00 half")
_ARGUMENTS: Final = ('{"path": "a"}', "{}", '{"n": 1e400, "n": 2}', "", '"text"', '{"path": "a"} ')

# name -> the (role, kind) of each message that it adds, joined by one call id
SHAPES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "pair": (("assistant", "tool-call"), ("tool", "tool-result")),
    "user": (("user", "text"),),
    "assistant": (("assistant", "text"),),
    "call": (("assistant", "tool-call"),),
    "reasoning": (("assistant", "reasoning"),),
    "media": (("user", "other"),),
    "developer": (("developer", "text"),),
}


def make_text(dice: Dice, kind: str = "text", *, lone_surrogates: bool = False) -> str:
    """Give a text for a message of *kind*: from the pool, now and then any Unicode at all."""
    if kind == "tool-call":
        return dice.pick(_ARGUMENTS)
    if dice.once_in(12):
        units = [dice.below(256) * 256 + dice.below(256) for _ in range(3)]
        return "".join(chr(unit) for unit in units if lone_surrogates or not 0xD800 <= unit < 0xE000)  # noqa: PLR2004
    return dice.pick(_TEXTS + (_LONE if lone_surrogates else ()))


def make_clip(dice: Dice, original: str) -> str:
    """Give a text that a clip or view of *original* may have; few per original, so that twins can look alike."""
    head = original[:8]
    return dice.pick((f"[clip] {head}", f"[clip 2] {head}", f'<acp ref="1">{head}', f"[clip 3] {head}", "", original))


def make_near(dice: Dice, text: str) -> str:
    """Give another text, which a kernel that trims, folds, normalises or cuts would take for *text*."""
    composed, decomposed = normalize("NFC", text), normalize("NFD", text)
    near = (*(decomposed, composed) * 3, f"{text} ", f"{text}\n", f" {text}", text.swapcase(), f"{text}.", text[:-1])
    return dice.pick([other for other in near if other != text])


def make_message(message_id: str, role: str, kind: str, text: str, call_id: str | None = None) -> Json:
    """Give one message in the protocol's form."""
    joined = call_id if kind in ("tool-call", "tool-result") else None
    name = "run" if kind == "tool-call" else None
    return {"id": message_id, "role": role, "kind": kind, "text": text, "tool_name": name, "tool_call_id": joined}


def make_history(dice: Dice, size: int, *, lone_surrogates: bool = False) -> list[Json]:
    """Give at most *size* messages."""
    made: list[Json] = []
    for number in range(dice.below(size + 1)):
        for role, kind in SHAPES[dice.pick(tuple(SHAPES))]:
            text = make_text(dice, kind, lone_surrogates=lone_surrogates)
            made.append(make_message(f"h{len(made) + 1}", role, kind, text, f"call{number % 3}"))
    return made[:size]
