"""JSON documents from somewhere else, read within limits."""

from typing import Any

import pytest

from latchguard.core.jsontext import Verdict
from latchguard.sources import reading
from latchguard.sources.errors import SourceError
from latchguard.sources.limits import Limits
from latchguard.sources.reading import read_json


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b' {"a": [1, 2.5, null, true, "x"]} \n', {"a": [1, 2.5, None, True, "x"]}),
        (b"\xef\xbb\xbf5", 5),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'"\\ud800"', "\ud800"),
        (b"1e400", float("inf")),
        (b"[" * 1000 + b"]" * 1000, None),
    ],
)
def test_what_javascript_parses_is_read(body: bytes, value: Any) -> None:
    """A byte-order mark, duplicate keys, lone halves, huge numbers and 1,000 levels are read."""
    found = read_json(body, Limits())
    assert value is None or found == value


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[1,2", "half-written"),
        (b'{"a":"\\', "half-written"),
        (b'{"a":"]}', "half-written"),
        (b"[1,2]]", "no-json"),
        (b'{"a":1}}', "no-json"),
        (b"[1,]", "no-json"),
        (b"tru", "no-json"),
        (b'"abc', "no-json"),
        (b"\x00" * 64, "no-json"),
        (b"[" * 1001 + b"]" * 1001, "too-deep"),
        (b'{"a":' * 1001 + b"1" + b"}" * 1001, "too-deep"),
    ],
)
def test_what_is_none_is_told_apart(body: bytes, code: str) -> None:
    """Cut off in the middle, no JSON, or too deep."""
    with pytest.raises(SourceError) as caught:
        read_json(body, Limits())
    assert caught.value.code == code


@pytest.mark.parametrize(("nodes", "fits"), [(4, True), (3, False)])
def test_values_are_counted_before_they_are_built(nodes: int, fits: bool) -> None:
    """Brackets and commas inside strings are none of them."""
    body = b'{"a": ["[,[,[,{", 2]}'
    if fits:
        assert read_json(body, Limits(nodes=nodes)) == {"a": ["[,[,[,{", 2]}
    else:
        with pytest.raises(SourceError) as caught:
            read_json(body, Limits(nodes=nodes))
        assert caught.value.code == "too-large"


def test_brackets_in_strings_are_no_levels() -> None:
    """Only real nesting counts against the limit."""
    body = b'["' + b"[" * 5000 + b'"]'
    assert read_json(body, Limits(depth=2)) == ["[" * 5000]


def test_what_cannot_be_nested_here_is_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the interpreter itself cannot nest that deep the document is too deep, not broken."""

    def refuse(_text: str) -> Any:
        raise ValueError(Verdict.TOO_DEEP)

    monkeypatch.setattr(reading, "load_json", refuse)
    with pytest.raises(SourceError) as caught:
        read_json(b'["\\ud800"]', Limits())
    assert caught.value.code == "too-deep"
