"""Lines that are no cause, but that causes take into account."""

from __future__ import annotations

from rltui.diagnose.signs import Sign

SIGNS = (
    Sign(
        cause="failed_end",
        anchor="exit",
        words=("exit", "exited", "exits"),
        pattern=r"(?i)exited with exit code [1-9]|exit(?:ed|s)?(?: with)?(?: status| code)?[ :=]+(?:-?[1-9]\d*)\b",
    ),
    Sign(
        cause="training_done",
        anchor="",
        words=("metrics", "complete", "completed", "finished", "done"),
        pattern=r"(?i)\bfinal validation metrics\b|\btraining (?:run )?(?:is |has )?(?:been )?(?:completed?|"
        r"finished|done)\b",
        unless=r"(?i)\bnot\b|before|until|error|fail",
    ),
    Sign(cause="failed_end", anchor="returned non-zero exit status"),
    Sign(cause="failed_end", anchor="outcome", pattern=r"^outcome: (?:failed|lost)"),
)
