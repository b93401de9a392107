"""The request bodies of the case files, by case id."""

import json
from pathlib import Path
from typing import Any

from latchguard.core.findings import Wire

_FILES = sorted((Path(__file__).parent.parent / "cases").glob("*.json"))


def load_cases() -> dict[str, tuple[Wire, Any]]:
    """Give case id -> (wire, body) for every case whose request is a body of a wire."""
    cases = {}
    for file in _FILES:
        case = json.loads(file.read_text())
        if case["wire"] in set(Wire):
            request = case["request"]
            cases[case["id"]] = (Wire(case["wire"]), request.get("body", request))
    return cases


CASES = load_cases()
