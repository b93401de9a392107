"""Tool-call arguments: the JSON object that a model passed, however often it was encoded."""

from __future__ import annotations

from typing import Any, Final, Literal

from latchguard.core.errors import ArgumentsError, cut
from latchguard.core.jsontext import load_json

__all__ = ["PLACEHOLDER_ARGUMENTS", "decode_arguments"]

# Stands for arguments that were no JSON. Constant, so that the provider's prefix cache holds; not `{}`, which is a
# legal call; an object, so that every server takes it.
PLACEHOLDER_ARGUMENTS: Final = '{"_latchguard":"the arguments of this call were not valid JSON and have been removed"}'


def decode_arguments(
    raw: object, *, max_depth: int = 4, non_object: Literal["wrap", "raise"] = "wrap"
) -> dict[str, Any] | None:
    """Give the object that tool-call arguments hold.

    Args:
        raw: arguments as they came: an object, JSON text, JSON text in JSON strings, None.
        max_depth: how many times to parse at most, the first included; at least 1.
        non_object: what to do with a value that is no object (text that is no JSON counts as one): `wrap` gives
            `{"value": value}`, `raise` raises.

    Returns:
        The object; the very one that was given where *raw* is a dict. None for None and for `""`.

    Raises:
        ArgumentsError: *non_object* is `raise` and there is no object; or *max_depth* or *non_object* is invalid.

    Guarantees:
        Pure; never raises anything else, whatever *raw* holds.
    """
    if not isinstance(max_depth, int) or max_depth < 1 or non_object not in ("wrap", "raise"):
        found = f"max_depth={cut(max_depth)}, non_object={cut(non_object)}"
        raise ArgumentsError("max_depth >= 1 and non_object 'wrap' or 'raise'", found)
    if raw is None or (isinstance(raw, str) and not raw):
        return None
    value = raw
    for _ in range(max_depth):
        if not isinstance(value, str):
            break
        try:
            value = load_json(value)
        except ValueError:
            break
    if isinstance(value, dict):
        return value
    if non_object == "raise":
        raise ArgumentsError("a JSON object", cut(raw))
    return {"value": value}
