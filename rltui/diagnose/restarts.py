"""A job that Slurm requeued writes on in the same log (``--open-mode=append``, submitit).

What ended an earlier start, and what that one said, is not what ended the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.diagnose.wording import Wording

if TYPE_CHECKING:
    from rltui.diagnose.matches import Matches

STATE = "started"

REQUEUED = ("slurm_preempted", "slurm_node_fail")
"""After these Slurm starts a job again; after a time limit it does not."""

LEAST_LINES = 300
"""A job that is being ended still writes: so many lines later it has started again, if something says so."""

WORDINGS = (
    Wording(
        anchor="",
        words=("resuming", "shards", "tracking", "syncing", "instance", "existing", "scratch"),
        pattern=r"(?i)\bresuming (?:training )?from|\bcheckpoint shards: +0%|wandb: (?:tracking|syncing) run|"
        r"\bstarted a local ray instance|\bconnecting to existing ray cluster|\btraining from scratch",
    ),
)
"""What only a program says that begins: transformers, vLLM, W&B, Ray, verl and others."""


def forget_earlier_starts(matches: Matches, last_lines: Sequence[int]) -> None:
    """Leave out what each source said before its last start, where Slurm had ended the job before that.

    Args:
        matches: What was seen.
        last_lines: The place of each source's last line among all lines.
    """
    ends = [match for cause in REQUEUED for match in matches.of(cause)]
    for source in {match.source for match in ends}:
        ended = [one.order for one in ends if one.source == source and last_lines[source] - one.order >= LEAST_LINES]
        starts = [one.order for one in matches.of(STATE) if one.source == source]
        last = max((start for start in starts if any(end < start for end in ended)), default=0)
        if last:
            matches.forget(source, last)
