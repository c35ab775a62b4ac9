"""Files of JSON lines, which others write to while a test reads them."""

from __future__ import annotations

import json
from typing import Any


def records(text: str) -> list[dict[str, Any]]:
    """The records of the lines that are whole: the last one may be under way."""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
