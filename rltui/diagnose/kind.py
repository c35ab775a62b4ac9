"""What a kind of error is: one row of the tables in ``kinds.py`` and ``kinds_around.py``."""

from __future__ import annotations

from typing import NamedTuple

PROGRAM = "program_failed"

REFUSES = r"(?:Value|Assertion|Runtime|Type|NotImplemented)Error|Exception"


RAN_OUT = (
    r"\b(?:exhausted|not enough|insufficient|r[au]ns? out|out of|exceeded by|no (?:free|idle|spare)|is full|"
    r"only (?:[\d.]+ ?\w* )?(?:\w+ )?(?:left|free|available|remain\w*)|(?:has|holds?|contains?|have) only \d|"
    r"all \d* ?\w+ are (?:dead|busy|in use|taken)|after waiting|after \d+ (?:re\w+|attempts|tries|s|sec\w*)\b)"
)
"""What is said of something that ran out while the program worked, whatever setting would help: nothing is wrong with
the settings that it was started with."""


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
