"""What a rule of the exit is: a value that names its trigger, and one function that judges one hit.

1. A walk over the body (`egress.triggers`) finds the hits of every trigger; a rule runs per hit, never per message.
2. A rule only looks: it answers with a `Fix`, what should change and what that costs. The engine applies.
3. Rules stand in one tuple per area file, in the order in which they run; nothing registers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from inspect import getdoc
from typing import Any, Final, NamedTuple, TypeAlias

from attrs import field, frozen

from latchguard.core.findings import Repair, Rule, Wire
from latchguard.core.jsonspans import Path
from latchguard.egress.draft import BodyEdit
from latchguard.egress.layout import declared_parameters
from latchguard.egress.profiles import Demands

__all__ = ["EgressRule", "Fix", "Hit", "Scene", "Trigger", "make_rule"]


class Trigger(StrEnum):
    """What the walk looks for."""

    SUSPECT_ARGUMENTS = "suspect-arguments"  # of a call on a string wire: anything but the plain text of an object
    SUSPECT_INPUT = "suspect-input"  # of a call on an object wire: anything but an object
    CALL = "call"  # every call whose arguments a rule may read
    REPEATED_CALL = "repeated-call"  # a later call with an id that an earlier one has
    KIND_MISMATCH = "kind-mismatch"  # a result of another type than its call's
    SPLIT_RESULTS = "split-results"  # a turn whose results stand in several messages
    MISPLACED_RESULTS = "misplaced-results"  # a turn whose results stand elsewhere
    REPEATED_RESULT = "repeated-result"  # a second result of an answered call
    ORPHAN = "orphan"  # a result without a call
    OPEN_CALLS = "open-calls"  # a turn with calls without a result
    LATE_RESULTS = "late-results"  # a turn with results after something else
    SERVER_TOOL = "server-tool"  # half of a pair that the provider made
    CALL_TURN = "call-turn"  # a call turn that nothing precedes
    CALL_ID = "call-id"  # every id that calls bear, with all its places
    EMPTY_NAME = "empty-name"  # a call without a name
    INVALID_NAME = "invalid-name"  # a name that the wire does not take
    REPEATED_TOOL = "repeated-tool"  # a declared tool with the name of an earlier one
    REPEATED_ITEM = "repeated-item"  # an item with the id of an earlier one
    UNSTORED_ITEM = "unstored-item"  # an item with an id that no server knows
    HALF = "half"  # a string or key with a raw surrogate half
    MISSING_CONTENT = "missing-content"  # a message without the key
    NULL_CONTENT = "null-content"  # a message whose content is null
    EMPTY_CALLS = "empty-calls"  # an empty list of calls
    OUTPUT = "output"  # a tool result that is neither text nor parts
    REASONING_CONTENT = "reasoning-content"  # an assistant message, where that field matters
    IMAGE = "image"  # every image block (Anthropic)
    IMAGE_PART = "image-part"  # every image, where none is taken
    TRAILING_SPACE = "trailing-space"  # a last assistant text that ends in white space
    EMPTY_TEXT = "empty-text"  # a blank text where none is taken
    SAME_ROLE = "same-role"  # a run of messages of one role
    SCHEMA = "schema"  # the parameter schema of every declared tool
    NO_TOOLS = "no-tools"  # a history with calls in a body without tools
    REASONING = "reasoning"  # every reasoning item (Responses)
    LONE_REASONING = "lone-reasoning"  # one that nothing of the model's follows
    LONE_FOLLOWER = "lone-follower"  # an assistant message with an id and no reasoning item right before it
    SIGNATURE = "signature"  # every part with a thought signature (Gemini)
    NESTED_SIGNATURE = "nested-signature"  # a signature inside a call
    UNSIGNED = "unsigned"  # the first call of a step in the current turn, without one
    ANSWER = "answer"  # every assistant message in blocks (Anthropic)
    THOUGHT = "thought"  # every thinking block (Anthropic)
    TRAILING_MODEL = "trailing-model"  # the model's turn at the end


class Hit(NamedTuple):
    """One place that a trigger found: its path, the value there, and the tool's name where it is a call's."""

    path: Path
    value: Any
    tool_name: str | None = None


@frozen
class Fix:
    """What a rule found at one hit.

    Args:
        path: the place, in the body as it is now.
        repair: what making *edits* costs; `detect` where there are none.
        edits: the repair, at places of the body as it is now.
        before: what stands there.
        after: what would stand there; None where nothing would.
        note: a sentence for a person.
        tool_name: the tool that the call names.
    """

    path: Path
    repair: Repair
    edits: tuple[BodyEdit, ...] = ()
    before: Any = None
    after: Any = None
    note: str = ""
    tool_name: str | None = None


@frozen
class Scene:
    """All that a rule may look at.

    Args:
        body: the body as it is now.
        wire: its wire.
        demands: what the profile demands.
        hits: what the walk found.
        error: the text of the error that came back for this body.
        recorded: assistant content blocks as they were received.
    """

    body: Any
    wire: Wire
    demands: Demands
    hits: Mapping[Trigger, Sequence[Hit]] = field(repr=False)
    error: str | None = None
    recorded: Any = None

    @cached_property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The parameter schemas of the declared tools, by name."""
        return declared_parameters(self.body, self.wire)


Check: TypeAlias = Callable[[Hit, Scene], Iterator[Fix]]


@frozen
class EgressRule(Rule):
    """A rule of the exit.

    Args:
        trigger: whose hits it judges.
        moves_prefix: what it makes of a message may depend on later ones; bytes before it stay.
        check: judges one hit; gives nothing where it finds no fault.
    """

    trigger: Trigger = field(kw_only=True)
    moves_prefix: bool = field(default=False, kw_only=True)
    check: Check = field(kw_only=True)


ALL_WIRES: Final = tuple(Wire)


def make_rule(  # noqa: PLR0913  # a rule has that many properties
    slug: str,
    trigger: Trigger,
    repair: Repair,
    check: Check,
    *,
    wires: Sequence[Wire] = ALL_WIRES,
    demand: str | None = None,
    errors: Sequence[str] = (),
    moves_prefix: bool = False,
) -> EgressRule:
    """Make a rule; its area is the module of *check*, its text the docstring of *check*."""
    area = check.__module__.rpartition(".")[2]
    doc = getdoc(check) or ""
    return EgressRule(
        slug,
        area,
        repair,
        doc,
        tuple(wires),
        demand,
        tuple(errors),
        trigger=trigger,
        check=check,
        moves_prefix=moves_prefix,
    )
