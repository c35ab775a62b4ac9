"""What the login node says of this very job: sbatch's own test, the profile's python, its file of secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.live_subject import LiveSubject, live_rule
from rltui.check.rule import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator


@live_rule("S631", "error")
def slurm_would_refuse(subject: LiveSubject) -> Iterator[Trouble]:
    """Slurm's own test of the job script (`sbatch --test-only`) says no.

    It knows what no profile does: quality of service, reservation, limits of the account, the site's own plug-ins.
    """
    if subject.facts and subject.facts.refusal:
        yield Trouble(f"Slurm would refuse it: {subject.facts.refusal}", "slurm")


@live_rule("S632", "error")
def python_cannot_train(subject: LiveSubject) -> Iterator[Trouble]:
    """The profile's python is not on the login node, or lacks packages of the trainers.

    Compute nodes mostly see the same disk. Where they do not, `--unchecked` submits all the same.
    """
    if subject.facts and subject.facts.python_problem:
        yield Trouble(subject.facts.python_problem, f"{subject.profile.name}.python")


@live_rule("S633", "error")
def env_file_is_refused(subject: LiveSubject) -> Iterator[Trouble]:
    """The file of secrets is missing, somebody else's, or open to others: every job would refuse it and fail."""
    if subject.facts and subject.facts.env_file_problem:
        yield Trouble(subject.facts.env_file_problem, f"{subject.profile.name}.env_file")
