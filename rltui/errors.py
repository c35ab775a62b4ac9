"""The one exception family of rltui: every error a user may see says what happened and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

UNCONFIRMED = "Nobody is there to confirm."
"""What a verb says that had to ask, and had no terminal to ask on."""


class RltuiError(Exception):
    """An error to be shown to the user as it is, without a traceback.

    Attributes:
        message: One sentence that names the cause.
        hint: The next step for the user, or an empty string.
        exit_code: What a headless verb exits with: 1 findings or failed run, 2 usage or unreadable input,
            3 cluster unreachable or outcome unknown.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message

    @property
    def in_one_line(self) -> str:
        """Cause and next step where there is one line for both."""
        return f"{self.message} {self.hint}".strip()


class UsageError(RltuiError):
    """The user's words or files cannot be understood."""

    exit_code = 2


class ClusterError(RltuiError):
    """A cluster cannot be reached, or the outcome of an action on it is unknown.

    Whatever asks a cluster raises it where the cluster is away; docstrings name it where it means more than that.
    """

    exit_code = 3


class MissingExtraError(RltuiError):
    """An optional part of rltui is not installed where it is needed."""

    exit_code = 2


def tried(call: Callable[[], Result]) -> tuple[Result | None, RltuiError | None]:
    """What ``call`` gave, or why it was refused: for many things of which one does not stand in the others' way."""
    try:
        return call(), None
    except RltuiError as error:
        return None, error
