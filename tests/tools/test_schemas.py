"""Gemini's schema types as JSON Schema's."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchguard.tools import to_json_schema


def test_types_are_lower_case_in_every_schema_node() -> None:
    """The whole tree is turned; all other keys and their order stay."""
    schema = {
        "type": "OBJECT",
        "description": "STRING",
        "properties": {
            "type": {"type": "STRING", "enum": ["STRING", "OBJECT"], "format": "enum"},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER", "nullable": True}},
            "either": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}, {"type": "NULL"}]},
        },
        "required": ["type"],
    }
    expected = {
        "type": "object",
        "description": "STRING",
        "properties": {
            "type": {"type": "string", "enum": ["STRING", "OBJECT"], "format": "enum"},
            "list": {"type": "array", "items": {"type": "integer", "nullable": True}},
            "either": {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["type"],
    }
    before = deepcopy(schema)
    found = to_json_schema(schema)
    assert found == expected
    assert list(found) == list(schema)
    assert schema == before


@pytest.mark.parametrize("key", ["default", "example", "examples", "enum", "const", "x-data"])
@pytest.mark.parametrize("data", [{"type": "OBJECT"}, {"a": {"type": "STRING"}}, [{"type": "OBJECT"}]])
def test_a_type_inside_data_is_left_alone(key: str, data: Any) -> None:
    """What is no schema node is never looked into, whether it looks like one, like several by name or like a list."""
    schema = {"type": "object", key: data}
    assert to_json_schema(schema) is schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "TYPE_UNSPECIFIED", "description": "d"}, {"description": "d"}),
        ({"items": {"type": "TYPE_UNSPECIFIED"}}, {"items": {}}),
        ({"type": ["STRING", "NULL"]}, {"type": ["string", "null"]}),
        ({"type": ["TYPE_UNSPECIFIED"]}, {}),
        ({"type": "String"}, {"type": "string"}),
        ({"properties": {"type": {"type": "OBJECT"}}}, {"properties": {"type": {"type": "object"}}}),
        ({"additionalProperties": {"type": "STRING"}}, {"additionalProperties": {"type": "string"}}),
        ({"$defs": {"A": {"type": "STRING"}}}, {"$defs": {"A": {"type": "string"}}}),
        ({"items": [{"type": "STRING"}]}, {"items": [{"type": "string"}]}),
        (
            {"properties": {"a": {"type": "STRING"}, "b": True}},
            {"properties": {"a": {"type": "string"}, "b": True}},
        ),
    ],
)
def test_edges(schema: Any, expected: Any) -> None:
    """Unspecified types go, lists of types and of schemas are turned."""
    assert to_json_schema(schema) == expected


STRING = {"type": "STRING"}


@pytest.mark.parametrize(
    "places",
    [
        dict.fromkeys(
            ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"), STRING
        ),
        {key: [STRING] for key in ("anyOf", "allOf", "oneOf", "prefixItems")},
        {key: {"a": STRING} for key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")},
    ],
)
def test_every_place_of_a_schema_is_known(places: dict[str, Any]) -> None:
    """A schema stands under one of these keys, in a list, or by name."""
    for key, held in places.items():
        assert json.dumps(to_json_schema({key: held})) == json.dumps({key: held}).replace("STRING", "string")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "CUSTOM"},
        {"type": 5},
        {"properties": {"type": "OBJECT"}},
        {"properties": ["OBJECT"], "items": "STRING", "anyOf": {"type": 1}},
        True,
        None,
        "OBJECT",
        [],
    ],
)
def test_what_needs_no_change_is_the_same_object(schema: Any) -> None:
    """Valid schemas, foreign types and values of wrong types come back as they are."""
    assert to_json_schema(schema) is schema


def test_depth_does_not_matter() -> None:
    """A schema nested deeper than the stack is turned."""
    schema: Any = {"type": "STRING"}
    for _ in range(5000):
        schema = {"type": "ARRAY", "items": schema}
    found = to_json_schema(schema)
    for _ in range(5000):
        assert found["type"] == "array"
        found = found["items"]
    assert found == {"type": "string"}


SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(["STRING", "object", "TYPE_UNSPECIFIED", 5])}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["OBJECT", "ARRAY", "array"]),
            "properties": st.dictionaries(st.sampled_from(["type", "a", "items"]), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "default": inner,
        },
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_twice_is_once(schema: Any) -> None:
    """A turned schema needs no turning."""
    turned = to_json_schema(schema)
    assert to_json_schema(turned) is turned
