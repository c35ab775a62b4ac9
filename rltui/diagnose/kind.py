"""What a kind of error is: one row of the tables in ``kinds.py`` and ``kinds_around.py``."""

from __future__ import annotations

from typing import NamedTuple

PROGRAM = "program_failed"

REFUSES = r"(?:Value|Assertion|Runtime|Type|NotImplemented)Error|Exception"


class Kind(NamedTuple):
    """One row: all that is given has to fit.

    Attributes:
        cause: Id of the cause that is meant.
        exceptions: Regular expression on the whole name of the exception's class, without its module; empty: any.
        message: Regular expression on what the exception says; case does not matter.
        parts: Parts of the run (keys of ``PARTS``) in which it is that cause; empty: all.
        frames: Regular expression on the frames (``path:line in function``, one a line).
        code: Regular expression on the source line of the innermost frame.
    """

    cause: str
    exceptions: str = ""
    message: str = ""
    parts: tuple[str, ...] = ()
    frames: str = ""
    code: str = ""
