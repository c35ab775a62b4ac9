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
    return None if block is None else _read(block[1])


def split_tool_calls(answer: str) -> tuple[str, list[ToolCall]]:
    """What an answer says beside its calls, and these; a call that cannot be read stays a part of what it says."""
    calls = [(block, _read(block[1])) for block in _BLOCK.finditer(answer)]
    readable = [(block, call) for block, call in calls if not call.error]
    ends = [0, *(block.end() for block, _ in readable)]
    starts = [*(block.start() for block, _ in readable), len(answer)]
    said = "".join(answer[end:start] for end, start in zip(ends, starts, strict=True))
    return said.strip() if readable else said, [call for _, call in readable]


def _read(text: str) -> ToolCall:
    try:
        found = json.loads(text)
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
