"""The JSON Schema of layouts, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from rltui.layout.base import BASE
from rltui.layout.schema import Layout

_PARTIAL = "Partial"


def json_schema() -> dict[str, Any]:
    """The schema; a layout with ``base`` may leave out what is required of one without."""
    whole = _for_editors(msgspec.json.schema(Layout))
    definitions = whole["$defs"]
    partial = {f"{_PARTIAL}{name}": _relaxed(definition) for name, definition in definitions.items()}
    partial[f"{_PARTIAL}Layout"]["properties"][BASE] = {
        "type": "string",
        "description": "The layout that this one is laid over: a preset's name, or a path relative to this file.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rltui layout",
        "if": {"type": "object", "required": [BASE]},
        "then": {"$ref": f"#/$defs/{_PARTIAL}Layout"},
        "else": {"$ref": "#/$defs/Layout"},
        "$defs": {**definitions, **partial},
    }


def _for_editors(value: Any) -> Any:
    r"""``value`` with patterns as JavaScript reads them, which knows no ``\Z``."""
    if isinstance(value, list):
        return [_for_editors(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.replace(r"\Z", "$") if key == "pattern" and isinstance(item, str) else _for_editors(item)
        for key, item in value.items()
    }


def _relaxed(value: Any) -> Any:
    """``value`` without ``required``, its references leading to the partial definitions."""
    if isinstance(value, list):
        return [_relaxed(item) for item in value]
    if not isinstance(value, dict):
        return value
    relaxed = {key: _relaxed(item) for key, item in value.items() if key != "required"}
    if isinstance(value.get("$ref"), str):
        relaxed["$ref"] = value["$ref"].replace("#/$defs/", f"#/$defs/{_PARTIAL}")
    return relaxed
