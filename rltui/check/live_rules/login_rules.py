"""What the login node says of this very job: sbatch's own test, the profile's python, its file of secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.live_subject import LiveSubject, live_rule
from rltui.check.rule import Trouble
from rltui.cluster.profile import merged_container

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
    """The profile's set-up lines fail on the login node, or its python is not there or lacks packages of the trainers.

    Compute nodes mostly see the same disk and modules. A set-up line that works only there is left out here if it
    begins with `[ -z "$SLURM_JOB_ID" ] ||`; `--unchecked` submits without any of these checks.
    """
    if subject.facts and subject.facts.python_problem:
        yield Trouble(subject.facts.python_problem, f"{subject.profile.name}.python")


@live_rule("S633", "error")
def env_file_is_refused(subject: LiveSubject) -> Iterator[Trouble]:
    """The file of secrets is missing, somebody else's, or open to others: every job would refuse it and fail."""
    if subject.facts and subject.facts.env_file_problem:
        yield Trouble(subject.facts.env_file_problem, f"{subject.profile.name}.env_file")


@live_rule("S634", "error")
def container_cannot_start(subject: LiveSubject) -> Iterator[Trouble]:
    """The container's image is not on the login node, or the python that stays outside is missing or too old.

    Compute nodes mostly see the same disk. Where they do not, `--unchecked` submits all the same.
    """
    if subject.facts and subject.facts.container_problem:
        yield Trouble(subject.facts.container_problem, "slurm.container")


@live_rule("S635", "warning")
def container_runtime_is_elsewhere(subject: LiveSubject) -> Iterator[Trouble]:
    """The container's runtime is not on the login node; some sites have it on compute nodes only.

    The node check names a node without it before Ray starts; `setup_lines` of the profile may load it.
    """
    if subject.facts and subject.facts.container_warning:
        yield Trouble(subject.facts.container_warning, "slurm.container.runtime")


@live_rule("S636", "error")
def container_is_not_whole(subject: LiveSubject) -> Iterator[Trouble]:
    """A container needs a runtime and an image, from the layout or the cluster's profile, and Slurm to start it."""
    container = merged_container(subject.layout.slurm, subject.profile)
    if container.runtime == "none" or not (container.runtime or container.image):
        return
    if not subject.on_slurm:
        yield Trouble(
            f"{subject.profile.name} is no Slurm cluster: the run would not be in the container",
            "slurm.container",
            ("slurm.container.runtime=none",),
        )
    elif not container.image:
        yield Trouble(f"{container.runtime} is to start a container, and no image is named", "slurm.container.image")
    elif not container.runtime:
        yield Trouble(f"{container.image} is named, and nothing that starts it", "slurm.container.runtime")
