"""What the nodes, the login node and its storage are: cards, cores, Python, container, cache and disk."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rltui.check.arithmetic import resolve
from rltui.check.live_subject import LiveSubject, card_of, live_rule, some
from rltui.check.rule import Trouble, settled_by
from rltui.cluster.profile import merged_container
from rltui.layout.roles import SERVED
from rltui.memory.bars import size_words


@live_rule("H410", "error")
def another_card(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout is made for another card than the cluster has: memory and speed would not be those checked here."""
    wanted, has = card_of(subject.layout.hardware.gpu), card_of(subject.profile.gpu)
    if subject.layout.hardware.on_cpu or not wanted:
        return
    if has and wanted != has:
        yield settled_by(
            f"the layout is for {subject.layout.hardware.gpu}; {subject.profile.name} has {subject.profile.gpu}",
            "hardware.gpu",
            subject.profile.gpu,
        )
        return
    cards = {card_of(node.gpu) for node in subject.nodes if node.gpus}
    if cards and "" not in cards and wanted not in cards:
        where = f"partition {subject.partition.name}" if subject.partition else subject.profile.name
        yield Trouble(
            f"the layout is for {subject.layout.hardware.gpu}; {where} has {some(sorted(cards))}", "hardware.gpu"
        )


@live_rule("H411", "error")
def more_gpus_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout wants more GPUs of each node than the cluster's nodes have."""
    hardware = subject.layout.hardware
    if hardware.on_cpu:
        return
    counted = [node.gpus for node in subject.nodes]
    most = max(counted) if counted else subject.profile.gpus_per_node
    if (counted or most) and hardware.gpus_per_node > most:
        nodes = f"partition {subject.partition.name}" if subject.partition else subject.profile.name
        yield Trouble(f"{hardware.gpus_per_node} GPUs a node; nodes of {nodes} have {most}", "hardware.gpus_per_node")


@live_rule("H412", "error")
def more_cores_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout wants more CPU cores of each node than the cluster's nodes have."""
    cores = subject.layout.hardware.cpus_per_node
    counted = [node.cpus for node in subject.nodes if node.cpus]
    most = max(counted) if counted else subject.profile.cpus_per_node
    if most and cores > most:
        yield settled_by(
            f"{cores} cores a node; nodes of {subject.profile.name} have {most}", "hardware.cpus_per_node", most
        )


@live_rule("H413", "error")
def more_memory_than_a_node_has(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout counts on more host memory than the cluster's nodes have."""
    memory = subject.layout.hardware.memory_gib_per_node
    counted = [node.memory_gib for node in subject.nodes if node.memory_gib]
    most = max(counted) if counted else subject.profile.memory_gib
    if most and memory > most * 1.01:
        yield settled_by(
            f"{memory:g} GiB of host memory a node; nodes of {subject.profile.name} have {most:.0f}",
            "hardware.memory_gib_per_node",
            f"{most:.0f}",
        )


_GIB = 2**30
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@live_rule("D520", "error")
def not_in_the_cache(subject: LiveSubject) -> Iterator[Trouble]:
    """The nodes have no internet, and a model is not in their Hugging Face cache.

    Download it once from a machine that sees both the internet and the cache (`hf download NAME`).
    """
    cached = subject.facts.cached_models if subject.facts else None
    if not subject.profile.offline or cached is None:
        return
    there = {name.lower() for name in cached}
    for key, model in _models(subject):
        if model.lower() not in there:
            yield Trouble(f"{model} is not in the cache ({len(there)} models are), and nodes are offline", key)


@live_rule("D521", "error")
def no_room_for_checkpoints(subject: LiveSubject) -> Iterator[Trouble]:
    """The run's folder has no room for the checkpoints that are kept, and the one being written beside them."""
    free = subject.facts.run_root_free_gib if subject.facts else None
    numbers = resolve(subject.layout)
    if free is None or numbers.checkpoint_bytes is None:
        return
    held = min(subject.layout.checkpoint.keep + 1, numbers.checkpoints)
    one = numbers.checkpoint_bytes / _GIB
    if held * one > free:
        fits = int(free / one) - 1
        yield Trouble(
            f"{held} checkpoints of {size_words(one)} are {size_words(held * one)}; {size_words(free)} are free in the "
            "run root or left of a quota there",
            "checkpoint.keep",
            (f"checkpoint.keep={fits}",) if fits >= 1 else (),
        )


@live_rule("T710", "warning")
def tracking_without_a_network(subject: LiveSubject) -> Iterator[Trouble]:
    """W&B is online, and the nodes have no internet: every log call would time out.

    Offline runs are kept in the run directory; `wandb sync` uploads them from a machine with a network.
    """
    if subject.profile.offline and subject.layout.tracking.wandb == "online":
        yield settled_by(
            f"tracking.wandb is online, nodes of {subject.profile.name} are offline", "tracking.wandb", "offline"
        )


def _models(subject: LiveSubject) -> Iterator[tuple[str, str]]:
    """Key and name of each model that is loaded from the Hugging Face hub."""
    seen: set[str] = set()
    for role, found in subject.roles("learner", "reference", "critic", *SERVED):
        model = found.model
        if model and model not in seen and _HUB_NAME.fullmatch(model) and not model.startswith("builtin/"):
            seen.add(model)
            yield f"roles.{role}.model", model


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
