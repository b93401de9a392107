"""Toolsets, schemas and names of tools, as every wire takes them."""

from latchguard.tools.names import NameStream, ToolNames
from latchguard.tools.schemas import to_json_schema
from latchguard.tools.toolsets import dedupe_toolsets

__all__ = ["NameStream", "ToolNames", "dedupe_toolsets", "to_json_schema"]
