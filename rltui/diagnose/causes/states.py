"""Lines that are no cause, but that causes of several families take into account."""

from __future__ import annotations

from rltui.diagnose.first_exception import STATE as FIRST_EXCEPTION
from rltui.diagnose.first_exception import WORDINGS as FIRST_EXCEPTION_WORDINGS
from rltui.diagnose.guesses import STATE as HINT
from rltui.diagnose.guesses import WORDINGS as HINT_WORDINGS
from rltui.diagnose.progress import STATES as PROGRESS
from rltui.diagnose.wording import Wording

STATES = {
    FIRST_EXCEPTION: FIRST_EXCEPTION_WORDINGS,
    HINT: HINT_WORDINGS,
    **PROGRESS,
    "failed_end": (
        Wording(
            anchor="exit",
            words=("exit", "exited", "exits"),
            pattern=r"(?i)exited with exit code [1-9]|exit(?:ed|s)?(?: with)?(?: status| code)?[ :=]+(?:-?[1-9]\d*)\b",
        ),
        Wording(anchor="returned non-zero exit status"),
        Wording(anchor="outcome", pattern=r"^outcome: (?:failed|lost)"),
    ),
}
