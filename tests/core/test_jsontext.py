import inspect
import json
import math
import random
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.core.errors import InvalidValueError
from latchguard.core.jsontext import (
    MAX_DEPTH,
    Verdict,
    _is_shallow,
    check_json,
    dump_json,
    escape_controls,
    load_exact,
    load_json,
)
from tests.support.node import run_node

VALID = [
    "null", "true", "false", "0", "-0", "1", "-1", "1.5", "1e5", "1E+5", "1e-5", "0.0", "-0.0e0", "1e400", "-1e400",
    "1e-400", "9" * 400, "-" + "9" * 400, "1" * 5000, "0." + "1" * 5000, "18446744073709551616", '""', '"a"',
    r'"\""', r'"\\"', r'"\/"', r'"\b\f\n\r\t"', r'"A"', r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00\ud800"',
    r'"\uD83D"', '"\ud800"', '"\ud83d\ude00"', '"\x7f"', '"\x80"', '"\u2028\u2029"', '"\ufeff"', r'"\u0000"', "[]",
    "{}", "[ ]", "{ }", " [] ", "\t\n\r []\t\n\r ", "[1,2]", "[[],{}]", '{"a":1}', '{"a":{"b":[1,{"c":null}]}}',
    '{"a":1,"a":2}', '{"":0}', '{"__proto__":1}', '{"a" : 1 , "b" : 2}', '["\\ud800", 1e400]', '{"\\ud800":1}',
    "[" * 1000 + "]" * 1000, '{"a":' * 999 + "1" + "}" * 999, "[" + ",".join(["[]"] * 2000) + "]",
    '["\\ud800",' + ",".join(["[]"] * 2000) + "]", '["' + "[" * 3000 + '"]',
]  # fmt: skip

INVALID = [
    "", " ", "NaN", "Infinity", "-Infinity", "nan", "None", "True", "undefined", "nul", "nulll", "truefalse", "01",
    "-01", "00", "-", "+1", ".5", "1.", "1.e5", "1e", "1e+", "0x10", "1_000", "1 2", "--1", "\u0661", "'a'", '"', '"a',
    'a"', r'"\x41"', r'"\a"', r'"\u12"', r'"\u12G4"', r'"\u"', '"\\', '"\n"', '"\t"', '"\x00"', '"\x1f"', '"\\\n"',
    "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1}", "{", "}", "{]", '{"a"}', '{"a":}', '{"a":1,}',
    '{,"a":1}', '{"a" 1}', "{a:1}", "{'a':1}", "{1:1}", '{"a":1 "b":2}', '{"a":1:2}', '{"a",1}', "[1:2]", "[]]", "{}{}",
    "[][]", '{"a":1}x', '"a""b"', "\ufeff{}", "{}\ufeff", "\x00", "{}\x00", "\x0b[]", "\x0c[]", "\xa0[]", "\u2028[]",
    "[]\u3000", "// c\n{}", "/**/{}", "#{}", "{}//", '["\\ud800",]', '{"a":[1,2}', "[" * 500, "\ud800", "[nan]",
    '{"a":NaN}', "1,2", ",", ":", '{"a":1]', "]" * 1001, "[" * 1000 + "]" * 999 + "}",
]  # fmt: skip

TOO_DEEP = ["[" * 1001 + "]" * 1001, '{"a":' * 1001 + "1" + "}" * 1001, "[" * 1001, "[" * 100_000, '["\\ud800",' * 1001]

JUDGE = """
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const judged = texts.map((text) => { try { JSON.parse(text); return true; } catch { return false; } });
process.stdout.write(JSON.stringify(judged));
"""


def judged_by_node(texts: list[str]) -> list[bool]:
    verdicts: list[bool] = json.loads(run_node(JUDGE, json.dumps(texts)))
    return verdicts


@pytest.mark.parametrize("text", VALID, ids=lambda text: ascii(text[:24]))
def test_valid(text: str) -> None:
    """What `JSON.parse` takes."""
    assert check_json(text) is Verdict.VALID


@pytest.mark.parametrize("text", INVALID, ids=lambda text: ascii(text[:24]))
def test_invalid(text: str) -> None:
    """What `JSON.parse` rejects."""
    assert check_json(text) is Verdict.INVALID


@pytest.mark.parametrize("text", [text for text in VALID if len(text) < 900], ids=lambda text: ascii(text[:24]))
@pytest.mark.parametrize("around", ["[1e400,?]", '{"a":1e400,"b":?,"c":{}}', "[[],[?],1e400]"])
def test_valid_where_the_fast_path_gives_up(text: str, around: str) -> None:
    """Beside a number that orjson rejects the exact judge has the word, and says the same."""
    assert check_json(around.replace("?", text)) is Verdict.VALID


def test_long_texts_are_told_shallow_by_the_fast_path() -> None:
    """To the level: the exact judge, ten times slower, is asked only where it may be too deep."""
    assert _is_shallow("[" * MAX_DEPTH + "]" * MAX_DEPTH) is True
    assert _is_shallow("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) is False


def test_verdicts_are_part_of_what_errors_say() -> None:
    """Their spelling."""
    assert list(Verdict) == ["valid", "invalid", "too-deep"]


@pytest.mark.parametrize("text", TOO_DEEP, ids=lambda text: ascii(text[:24]))
def test_too_deep(text: str) -> None:
    """Nesting beyond 1,000 levels has a verdict of its own, whether or not it would end well."""
    assert check_json(text) is Verdict.TOO_DEEP


def test_node_agrees_on_every_edge() -> None:
    """JavaScript's own judgement of the lists above."""
    assert judged_by_node(VALID + INVALID) == [True] * len(VALID) + [False] * len(INVALID)


def test_orjson_is_no_judge() -> None:
    """The limits of the fast path that the rest is there for: if these change, the fast path may be simpler."""

    def takes(text: str) -> bool:
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        return True

    assert [text[:24] for text in VALID if not takes(text)] != []
    assert [takes("[" * depth + "]" * depth) for depth in (1024, 1025)] == [True, False]


TOKENS = ['"', "\\", "{", "}", "[", "]", ",", ":", "1", "0", "-", ".", "e", "true", "null", "NaN", " ", "\n", "\t", "a"]
TOKENS += ['"a"', "\x00", "\ufeff", "\\u", "d83d", "\\ud800", "\ud800", "\u2028", "[]", "{}", '{"a":1}', "1e400"]


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_what_loads_is_what_is_valid(text: str) -> None:
    """Valid text loads, any other raises; Python's own strict reader agrees on what is valid."""
    verdict = check_json(text)
    try:
        load_json(text)
        loads = True
    except ValueError:
        loads = False
    assert loads == (verdict is Verdict.VALID)

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text, parse_constant=refuse)
        strict = not text.startswith("\ufeff")
    except ValueError:
        strict = False
    assert strict == loads


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_node_agrees_on_random_texts(seed: int) -> None:
    """50,000 strings of JSON's pieces per seed: no disagreement."""
    rng = random.Random(seed)  # noqa: S311  # a test's choice
    texts = ["".join(rng.choices(TOKENS, k=rng.randint(1, 10))) for _ in range(50_000)]
    ours = [check_json(text) is Verdict.VALID for text in texts]
    assert ours == judged_by_node(texts)
    assert sum(ours) > 500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1,2.5,null,true]", [1, 2.5, None, True]),
        ('{"a":1,"a":2}', {"a": 2}),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("9" * 400, math.inf),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775809", float(-(2**63))),
        (r'"\ud83d\ude00"', "\U0001f600"),
        ('["\\ud800", 18446744073709551615]', ["\ud800", 2**64 - 1]),
        ('["\\ud800", -9223372036854775808]', ["\ud800", -(2**63)]),
        ('["\\ud800", -9223372036854775809]', ["\ud800", float(-(2**63))]),
        ('["\\ud800", 18446744073709551616]', ["\ud800", float(2**64)]),
        ('["\\ud800", 100000000000000000000]', ["\ud800", 1e20]),
        ('["\\ud800", 1e400]', ["\ud800", math.inf]),
    ],
)
def test_load(text: str, value: Any) -> None:
    """The value as JavaScript reads it, integers exact within 64 bits, doubles beyond; in one way or the other."""
    loaded = load_json(text)
    assert loaded == value
    assert json.dumps(loaded) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1,2.5]", [1, 2.5]),
        ('["12345678901234567890123"]', ["12345678901234567890123"]),
        ("18446744073709551616", 2**64),
        ("-9223372036854775809", -(2**63) - 1),
        ('{"\ud800":1234567890123456789012}', {"\ud800": 1234567890123456789012}),
        ("9" * 4300, 10**4300 - 1),
        ("9" * 4301, math.inf),
    ],
    ids=range(7),
)
def test_load_exact(text: str, value: Any) -> None:
    """Integers of any length that Python converts keep their digits."""
    assert load_exact(text) == value


@pytest.mark.parametrize("load", [load_json, load_exact])
@pytest.mark.parametrize("text", ["{", "[1,]", "NaN", "[" * 1001 + "]" * 1001])
def test_load_of_invalid_text(load: Callable[[str], Any], text: str) -> None:
    """The verdict is the error's content."""
    with pytest.raises(ValueError, match=check_json(text)):
        load(text)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_json, '["\\ud800",' + "[" * 900 + "]" * 900 + "]"),
        (load_exact, "[12345678901234567890123," + "[" * 900 + "]" * 900 + "]"),
    ],
    ids=["load_json", "load_exact"],
)
def test_load_deeper_than_the_stack_allows(load: Callable[[str], Any], text: str) -> None:
    """Where Python cannot nest that deep the verdict is the same as for too deep a text."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(300, len(inspect.stack(0)) + 120))
    try:
        with pytest.raises(ValueError, match="too-deep"):
            load(text)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"b":1,"a":[true,null,"é"]}'),
        (["\ud800", "é"], r'["\ud800","\u00e9"]'),
        ({"a": "\ud800", "b": []}, r'{"a":"\ud800","b":[]}'),
        ([2**64], "[18446744073709551616]"),
    ],
)
def test_dump(value: Any, raw: str) -> None:
    """Compact, keys in their order; what UTF-8 cannot hold is escaped."""
    assert dump_json(value) == raw.encode()


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [{1, 2}, ["\ud800", math.nan], deep(100_000)], ids=["set", "nan", "deep"])
def test_dump_of_what_json_cannot_hold(value: Any) -> None:
    """One error, whatever it was."""
    with pytest.raises(InvalidValueError) as caught:
        dump_json(value)
    assert (caught.value.path, caught.value.expected) == ("$", "a value that JSON can hold")


def test_dump_nested_beyond_the_fast_path() -> None:
    """300 levels are no trouble."""
    assert dump_json(deep(300)) == b"[" * 301 + b"]" * 301


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(), st.lists, max_leaves=9))
def test_dump_and_load_are_inverse(value: Any) -> None:
    """What was dumped loads as what it was."""
    assert load_json(dump_json(value).decode()) == value


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ('{"a":"x\ny"}', r'{"a":"x\ny"}'),
        ('"\b\f\n\r\t"', r'"\b\f\n\r\t"'),
        ('"\x00\x1f"', r'"\u0000\u001f"'),
        ('{"a\tb":1}', r'{"a\tb":1}'),
        ('[\n"a\nb"\n]', '[\n"a\\nb"\n]'),
        ('"a\\"\nb"', r'"a\"\nb"'),
    ],
)
def test_raw_controls_in_strings_are_escaped(text: str, repaired: str) -> None:
    """The one repair that loses nothing: every other byte stays, white space between values too."""
    assert escape_controls(text) == repaired
    assert judged_by_node([repaired]) == [True]


@pytest.mark.parametrize(
    "text", ['{"a":1}', "", "NaN", '{"a":"x\n', '{"a":"x\n",}', '"a\\\nb"', '"\n" "', "[\x0b1]", '"\\x\n"']
)
def test_no_other_fault_is_repaired(text: str) -> None:
    """Valid text needs none; a cut string, a comma, a control behind a backslash cannot be told from content."""
    assert escape_controls(text) is None


@given(st.text(st.sampled_from('a"\\\n\t\x00{}[]:,1'), max_size=12))
def test_repair_restores_what_was_written_raw(text: str) -> None:
    """A string whose controls were left raw comes back as the very string."""
    raw = json.dumps(text, ensure_ascii=False)
    for escape, control in (("\\n", "\n"), ("\\t", "\t"), ("\\u0000", "\0")):
        if "\\\\" not in raw:
            raw = raw.replace(escape, control)
    if raw != json.dumps(text, ensure_ascii=False):
        repaired = escape_controls(raw)
        assert repaired is not None
        assert json.loads(repaired) == text


def test_depth_is_the_documented_one() -> None:
    """1,000 levels, not one more."""
    assert MAX_DEPTH == 1000
