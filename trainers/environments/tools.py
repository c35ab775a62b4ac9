"""The calls of tools in a model's answer, in the form of Qwen's and Hermes' chat templates."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        name: Of the tool; empty where the call cannot be read.
        arguments: By name.
        error: What to tell the model where the call cannot be read.
    """

    name: str
    arguments: dict[str, Any]
    error: str = ""


def parse_tool_call(answer: str) -> ToolCall | None:
    """The first ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` of an answer; None where there is none.

    Never raises: a call that cannot be read says why in ``error``, in words that are meant for the model.
    """
    block = _BLOCK.search(answer)
    if block is None:
        return None
    try:
        found = json.loads(block[1])
    except (ValueError, RecursionError) as error:
        return _unreadable(f"it is not JSON: {error}")
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not found["name"]:
        return _unreadable('it needs a "name"')
    arguments = found.get("arguments", {})
    if not isinstance(arguments, dict):
        return _unreadable('"arguments" must be an object')
    return ToolCall(found["name"], arguments)


def _unreadable(why: str) -> ToolCall:
    form = '<tool_call>{"name": "…", "arguments": {…}}</tool_call>'
    return ToolCall("", {}, f"The tool call cannot be read: {why}. Write {form}.")
