"""What can go wrong when Slurm is asked or told something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.errors import ClusterError, RltuiError

if TYPE_CHECKING:
    from rltui.cluster.slurm.replies import Trouble


class SlurmRefusedError(RltuiError):
    """Slurm said no to a change: certainly nothing was done."""


class SlurmUnansweredError(ClusterError):
    """Slurm did not answer, or nobody can tell what its answer means.

    Attributes:
        trouble: Why, for programs.
    """

    def __init__(self, trouble: Trouble, message: str = "") -> None:
        super().__init__(message or f"Slurm does not answer: {trouble.sentence}.", trouble.hint)
        self.trouble = trouble
