"""What a line says of a run's progress: that it starts, or starts anew, makes steps, serves, goes on, or is done.

Steps of a log whose system is known are read in full by its dialect (``log_steps``); here any system's are, as far as
one line tells.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from rltui.diagnose.wording import Wording, worded

STARTED = "started"
ANSWERED = "failure_answered"
ALIVE = "alive_at_end"
SERVES = "server_up"

ANEW = "anew"
"""Field of an answer that starts a process again, or goes on from a checkpoint.

A job that is being ended says itself that it was requeued, so that word alone is no new start.
"""

MOST_STEPS = 5
"""So many of the last steps have to rise, where there are as many."""

_OF_STEPS = (
    r"(?=.{0,200}(?:loss|rewards?|scores?|grad_?norm|acc(?:uracy)?|lr|learning rate|tok(?:en)?s?|kl|entropy|mfu|ppl|"
    r"returns?|time)\b)"
)
"""Before what is measured of a step."""

_MEASURED = (
    rf"(?<!\*\*\* )\b(?:global[_ ]?)?(?:steps?|iter(?:ation)?s?)\b[\"']?[ :=#\[(]{{1,8}}(\d+){_OF_STEPS}",
    rf"\bepochs?\b[\"']?[ :=#\[(]{{1,8}}(\d+){_OF_STEPS}",
    r"'loss': .*'epoch': (\d+(?:\.\d+)?)",
)
_NUMBERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        *_MEASURED,
        # a progress bar without a name, or with one of training
        r"^\W*(?:(?:train\w*|epoch|progress|steps?)\b[\w :]{0,30})?\d+%\|.{0,80}\| *(\d+)/\d+ \[",
    )
)
"""What is counted in the lines of a run at work; the first of these that a line has tells its number."""

_NOT_FINITE = re.compile(r"(?i)[ :=(](?:nan|inf)\b(?! iterations: 0)")

_SERVES = re.compile(r"(?i)\bserver is (?:now )?(?:up|ready|healthy|fired up)|\buvicorn running on")

_ALL_PASSED = re.compile(r"^=+ (?:\d+ (?:passed|skipped|xfailed|deselected|warnings?),? ?)+ ?in [\d.]+s\b")

GOES_ON = re.compile(
    "|".join(_MEASURED) + r"|\{'loss': |\btraining (?:is |has )?(?:completed?|finished)\b|\bprogress: .{0,80}\d+/\d+|"
    r"application startup complete|\bretrying\b|\bsucceeded after \d",
    re.IGNORECASE,
)
"""What a process that goes on says soon below an exception. A progress bar is drawn once more by one that dies."""

STATES = {
    # what only a program says that begins: transformers, vLLM, W&B, Ray, verl and others
    STARTED: (
        Wording(
            anchor="",
            words=("resuming", "shards", "tracking", "syncing", "instance", "existing", "scratch"),
            pattern=r"(?i)\bresuming (?:training )?from|\bcheckpoint shards: +0%|wandb: (?:tracking|syncing) run|"
            r"\bstarted a local ray instance|\bconnecting to existing ray cluster|\btraining from scratch",
        ),
    ),
    ANSWERED: worded(
        (
            "",
            r"(?i)(?P<anew>\bresum(?:ed|es|ing|e from)\b|\brestart(?:ed|s|ing)?\b|\brelaunch(?:ed|ing)?\b|"
            r"\bloading (?:\w+ )?(?:from )?(?:checkpoint|snapshot)\b(?! shards)|\brestor(?:ed|ing)\b|"
            r"\battempts? left\b|^=+ .*\bpassed\b|\bport active\b)|"
            r"\bre-?queue[ds]?\b|\bretry(?:ing|able)?\b|\brecover(?:ed|ing|s)\b|\breconnect(?:ed|ing)?\b|"
            r"\bfall(?:s|ing)? back\b|"
            r"\bskip(?:s|ped|ping)\b|\btrying (?:again|batch size)\b|"
            r"\binstead\b|\busing (?:port )?\d{4,5}\b|\bserver is (?:now )?(?:up|ready|healthy)\b",
            "retry retrying retryable resume resumed resumes resuming restart restarted restarts restarting requeue "
            "requeued requeues queue queued queues relaunch relaunched relaunching recovered recovering recovers "
            "reconnect reconnected reconnecting back skips skipped skipping restored restoring attempts attempt "
            "trying instead using active server loading passed",
        ),
    ),
    "training_done": (
        Wording(
            anchor="",
            words=("metrics", "complete", "completed", "finished", "done"),
            pattern=r"(?i)\bfinal validation metrics\b|\btraining (?:run )?(?:is |has )?(?:been )?(?:completed?|"
            r"finished|done)\b",
            unless=r"(?i)\bnot\b|before|until|error|fail",
        ),
    ),
}


def sign_of_life(lines: Sequence[str]) -> int | None:
    """Return the index of the line at which the run is seen at work, if ``lines`` end so; None: they do not.

    Steps in a row, each with a greater number and finite values: the last ones of more; or tests that all passed.
    """
    steps: list[tuple[int, tuple[int, float]]] = []
    for index in range(len(lines) - 1, -1, -1):
        if _ALL_PASSED.search(lines[index]):
            return index
        number = _number(lines[index])
        if number is not None:
            steps.append((index, number))
        if len(steps) == MOST_STEPS:
            break
    kinds = {kind for _, (kind, _) in steps}
    values = [value for _, (_, value) in steps]
    is_rising = all(before < after for after, before in itertools.pairwise(values))
    return steps[1][0] if len(steps) > 1 and len(kinds) == 1 and is_rising else None


def serves(lines: Sequence[str]) -> int | None:
    """Return the index of the last line by which a server is up; None where there is none."""
    return next((index for index in range(len(lines) - 1, -1, -1) if _SERVES.search(lines[index])), None)


def _number(text: str) -> tuple[int, float] | None:
    """Which of ``_NUMBERS`` a line has, and its value; None where it has none, or values that are not finite."""
    if _NOT_FINITE.search(text):
        return None
    found = ((kind, match) for kind, pattern in enumerate(_NUMBERS) if (match := pattern.search(text)))
    return next(((kind, float(match[1])) for kind, match in found), None)
