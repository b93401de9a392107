"""The harness as the only judge of a mutant: the corpus of old failures, then random runs of the real core.

Nothing is shrunk, told or run in a new process, which would load the core without the mutant.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.mutation.mutants import Mutant

__all__ = ["REACHED", "conforms", "is_beyond"]

# What the harness reaches: the core that a `CoreKernel` is made of. The rest is no part of a kernel's contract.
REACHED: Final = ("binding", "identity", "latches", "message", "refs", "replaying", "restamping", "state")
RUNS: Final = 300
FEW_RUNS: Final = 10
STEPS: Final = 40

# Parts of mutants that no kernel can show, by module: `survivors.md` has the reasons. A few runs are enough to see
# which of those with such a part are found all the same; the others are counted apart.
BEYOND: Final[dict[str, tuple[str, ...]]] = {
    "binding": (),
    "identity": (
        "__attrs_post_init__",
        "Identity.of: raise",
        "'_identity', known)",
        "b'latchguard/1",
        "hash_fields: b'",
        "hash_fields: 8",
        "join_halves: text.encode()",
    ),
    "latches": (
        "check_hash",
        "_check_latch",
        "_join: raise",
        "__attrs_post_init__",
        "latch_order: ref_number(latch.ref) or 0",
        "latch_order: 0",
        "with_text: return message",
        ": ''  ->  'x'",
        "return Reason.FORBIDDEN_KIND",
    ),
    "message": ("__attrs_post_init__", "_check_fields", "to_member: raise", "Message: ''", "Role: 'system'"),
    "refs": (
        ": 4300",
        "len(ref) < MAX_DIGITS",
        "RefMap: 1  ->  2",
        "with_new: 1  ->  2",
        "RefMap.__len__",
        "RefMap.__eq__",
        "RefMap.__hash__",
        "by_ref.pop",
    ),
    "replaying": ("check_type",),
    "restamping": (
        "check_type",
        "key, extra in state.entry_extra",
        "_apply: key in refs",
        "in homes if old.ref != new.ref",
        "_apply: old.ref != new.ref",
        "_apply: rebound",
        "if (absent :=",
        "identities |= ",
        "number_refs: if key not in known",
        "number_refs: key not in known",
        "_Moved.__getitem__: raise",
        "_Moved.__len__",
        "type(message_id) is not str",
        "number > highest",
        "check_id",
        "_twins: found and",
    ),
    "state": (
        "__attrs_post_init__",
        "check_type(message",
        "check_id",
        "message_id, str, 'protected'",
        "InvalidValueError('protected'",
        "isinstance(protected, str)",
        ": 'a RefMap'",
        ": 'a mapping'",
        ": 'a tuple of",
        ": 'an integer'",
    ),
}


def is_beyond(module: str, mutant: Mutant) -> bool:
    """Say whether *mutant* changes nothing that a kernel could show."""
    return any(part in f"{mutant.function}: {mutant.change}" for part in BEYOND[module])


def conforms(runs: int = RUNS) -> bool:
    """Say whether the core, as this process loads it, keeps every law."""
    try:
        for check in _checks(runs):
            check()
    except Exception:  # noqa: BLE001  # a mutant may fail in any way; each is found
        return False
    return True


def _checks(runs: int) -> tuple[Callable[[], None], ...]:
    from latchguard.testing import CoreKernel  # noqa: PLC0415  # the mutant stands in first
    from latchguard.testing.checking import corpus_paths  # noqa: PLC0415
    from latchguard.testing.dice import TURN_BYTES, Dice  # noqa: PLC0415
    from latchguard.testing.host import Host  # noqa: PLC0415
    from latchguard.testing.run import Run  # noqa: PLC0415
    from latchguard.testing.traces import load_trace, replay_trace  # noqa: PLC0415

    def replay_corpus() -> None:
        for path in corpus_paths():
            header, steps = load_trace(path)
            run = Run(CoreKernel())
            if run.capabilities.issuperset(header.get("needs", ())):
                replay_trace(run, steps)

    def play() -> None:
        rng = Random(0)  # noqa: S311  # a seed is wanted here
        for _ in range(runs):
            host = Host(Run(CoreKernel()))
            for _ in range(STEPS):
                host.turn(Dice(rng.randbytes(TURN_BYTES)))

    return replay_corpus, play
