"""What can be chosen from a list: data only, for views and screens."""

from __future__ import annotations

from typing import NamedTuple


class PickItem(NamedTuple):
    """One line to choose.

    Attributes:
        id: What comes back when it is chosen.
        label: What it is called.
        detail: What else is worth knowing.
        off: Why it cannot be chosen; empty where it can.
        key: The key that does the same without the list.
        urgent: Whether its detail is worth a look.
    """

    id: str
    label: str
    detail: str = ""
    off: str = ""
    key: str = ""
    urgent: bool = False
