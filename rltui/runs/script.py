"""The Slurm job script of an attempt, rendered from ``templates/job.sbatch.j2``."""

from __future__ import annotations

import datetime
import functools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

import rltui
from rltui.cluster.cluster import Attempt
from rltui.cluster.profile import Profile, container_of, in_partition, job_variables, outer_python
from rltui.errors import RltuiError, UsageError
from rltui.layout.secret_words import SECRET_VALUE
from rltui.layout.time_limit import time_limit_s
from rltui.onnode import container, rundir
from rltui.runs import quoting
from rltui.runs.script_job import ScriptJob, Work

if TYPE_CHECKING:
    import jinja2

    from rltui.cluster.jobs import AllocationShare

AnyWork = TypeVar("AnyWork", bound="Work")

TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE = "job.sbatch.j2"

SLURM_OUTPUT = "slurm-%j.out"
"""Output of the script itself, in the attempt's directory; the trainer's is in ``out.log``."""

SHORTEST_LEAD_S = 60
"""Slurm may send the warning up to a minute early (sbatch(1), --signal)."""

GPU_OPTIONS = frozenset(
    {"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "ntasks-per-gpu", "cpus-per-gpu", "mem-per-gpu"}
    | {"tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task"}
)
"""Options of sbatch that say how many GPUs, or what goes with each of them."""

OWN_OPTIONS = frozenset(
    # who and where
    {"job-name", "comment", "partition", "account", "qos", "constraint", "exclude", "time", "uid", "gid"}
    # how much
    | {"nodes", "ntasks", "ntasks-per-node", "exclusive", "cpus-per-task", "mem", "mem-per-cpu"}
    | {"gres", *GPU_OPTIONS}
    # how
    | {"output", "error", "open-mode", "signal", "requeue", "no-requeue", "array", "export", "chdir"}
    | {"wrap", "parsable", "wait", "test-only", "clusters"}
)
"""Options of sbatch that the script sets itself, or that would break what it relies on."""


def render_script(layout: Work, profile: Profile, attempt: Attempt, share: AllocationShare | None = None) -> str:
    """The job script of ``attempt``, exactly as it is to be handed to sbatch, or to srun in an allocation.

    Args:
        layout: The layout as resolved.
        profile: The cluster; what the layout's ``slurm`` section leaves empty comes from here.
        attempt: Run id, number, uuid and the absolute paths on the cluster.
        share: What it gets of an allocation that is there; None: it is a job of its own.

    Raises:
        RltuiError: A value cannot stand in a script (line break in a directive, NUL, a secret in a plain variable).
    """
    profile = in_partition(profile, layout.slurm.partition)
    script: str = _template().render(attempt=attempt, job=_job(layout, profile, attempt, share))
    if SECRET_VALUE.search(script):
        raise RltuiError(
            f"The job script for cluster {profile.name} would hold something that looks like a secret; "
            "Slurm keeps scripts and shows them.",
            "Put secrets into a file on the cluster, chmod 600, and set env_file to its path.",
        )
    return script


@functools.cache
def _template() -> jinja2.Template:
    """The script's template; to compile it takes longer than all else of a review, which each keystroke asks for."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        # a name that is missing has to fail: an option without its value may mean something else to sbatch
        undefined=jinja2.StrictUndefined,
        # that is for HTML; the filters below quote for bash and for sbatch
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        bash=quoting.bash_quote,
        bash_path=quoting.bash_path,
        directive=quoting.directive_value,
        comment=quoting.comment_text,
    )
    return environment.get_template(TEMPLATE)


def preview_script(layout: Work, profile: Profile) -> str:
    """The script that a launch would submit, with placeholders for what only a launch decides (uuid, paths).

    Raises:
        RltuiError: As for ``render_script``.
    """
    root = profile.run_root or "~/.local/share/rltui/runs"
    run_id = f"{layout.name[:48]}-XXXX"
    path = rundir.attempt_folder(f"{root}/{run_id}", 1)
    attempt = Attempt(run_id=run_id, number=1, uuid="UUID", path=path, code=f"{root}/.code/DIGEST")
    return render_script(layout, profile, attempt)


def _job(layout: Work, profile: Profile, attempt: Attempt, share: AllocationShare | None) -> dict[str, Any]:
    """What the template shows, by name."""
    slurm = layout.slurm
    return {
        "version": rltui.__version__,
        "share": share,
        "name": f"{layout.name[:48]}-{attempt.uuid[:8]}",
        "nodes": layout.hardware.nodes,
        "umask": "027" if profile.run_root_group else "077",
        "components": [
            _component(part, there) for part, there in zip(components(layout), profiles(layout, profile), strict=True)
        ],
        "time": slurm.time,
        "exclude": ",".join(excluded_nodes(layout, profile)),
        "output": quoting.file_pattern(attempt.path, SLURM_OUTPUT),
        "signal_lead_s": signal_lead_s(layout) if share is None else lead_in(share, layout),
        "requeue": slurm.requeue,
        "options": [_own(option) for option in slurm.options],
        "login_shell": needs_login_shell(layout, profile),
        "setup_lines": [_line(line) for line in profile.setup_lines],
        "variables": [(quoting.variable_name(name), value) for name, value in job_variables(profile).items()],
        "container": _container(layout, profile, attempt.path),
        "python": outer_python(slurm, profile),
    }


def _component(layout: Work, profile: Profile) -> dict[str, Any]:
    """What is asked for of one kind of node."""
    slurm, hardware, exclusive = layout.slurm, layout.hardware, is_exclusive(layout, profile)
    return {
        "nodes": hardware.nodes,
        "exclusive": exclusive,
        "cpus_per_node": 0 if exclusive else hardware.ray_cpus_per_node,
        # an exclusive job gets all CPUs of its nodes, but only the memory that it asks for: 0 stands for all of it
        "memory": f"{slurm.mem_gib}G" if slurm.mem_gib else "0" if exclusive else "",
        "gres": "" if hardware.on_cpu else f"{profile.gres}:{hardware.gpus_per_node}",
        "places": [
            (option, value)
            for option in ("partition", "account", "qos", "constraint", "reservation", "licenses")
            if (value := getattr(slurm, option) or getattr(profile, option, ""))
        ],
    }


def components(layout: AnyWork) -> list[AnyWork]:
    """``layout`` itself, and for each further kind of node one whose ``hardware`` and ``slurm`` are that kind's."""
    found = [layout]
    for part, kind in zip(layout.hardware.parts[1:], layout.hardware.more.values(), strict=True):
        slurm = replace(
            layout.slurm,
            partition=kind.partition or layout.slurm.partition,
            constraint=kind.constraint,
            mem_gib=kind.mem_gib,
            licenses="",  # they are the whole job's, so the first component holds them
        )
        found.append(replace(layout, hardware=part, slurm=slurm))
    return found


def profiles(layout: Work, profile: Profile) -> list[Profile]:
    """The cluster as it is for each of ``components``: in that one's partition, with its GPUs' name."""
    found = [in_partition(profile, layout.slurm.partition)]
    for kind in layout.hardware.more.values():
        partition = kind.partition or layout.slurm.partition or profile.partition
        there = in_partition(profile, partition)
        if partition not in profile.partitions and (partition != profile.partition or kind.gpu not in ("", there.gpu)):
            # what the profile says of its nodes is not about these
            there = replace(there, gpu="", gpus_per_node=0, cpus_per_node=0, memory_gib=0.0)
        found.append(replace(there, gres=kind.gres or there.gres))
    return found


def is_exclusive(layout: Work, profile: Profile) -> bool:
    """Whether the job takes whole nodes: as the layout says, else where it would use all of their GPUs anyway."""
    if layout.slurm.exclusive is not None:
        return layout.slurm.exclusive
    return not layout.hardware.on_cpu and layout.hardware.gpus_per_node >= profile.gpus_per_node


def signal_lead_s(layout: Work) -> int:
    """Seconds before the time limit at which Slurm warns.

    Of a short job at most a fifth: Slurm sends a warning that is longer than what is left of the job at its start.
    """
    limit_s = time_limit_s(layout.slurm.time)
    lead_s = layout.slurm.signal_lead_s
    return lead_s if limit_s is None or math.isinf(limit_s) else min(lead_s, max(SHORTEST_LEAD_S, int(limit_s // 5)))


def lead_in(share: AllocationShare, layout: Work) -> int:
    """The same for a run in an allocation, which ends when that does, whatever the layout asks for."""
    lead_s = layout.slurm.signal_lead_s
    return min(lead_s, max(SHORTEST_LEAD_S, int(share.left_s) // 5)) if share.left_s else lead_s


def needs_login_shell(layout: Work, profile: Profile) -> bool:
    """Whether the script calls what only a login shell has, such as ``module``."""
    return bool(profile.setup_lines) or (isinstance(layout, ScriptJob) and layout.loads_modules)


def excluded_nodes(layout: Work, profile: Profile, today: str = "") -> list[str]:
    """Nodes that the job keeps away from: the layout's, and the profile's bad nodes whose time is not over.

    Args:
        layout: The layout.
        profile: The cluster.
        today: The day, ``2026-11-20``; empty: today.
    """
    today = today or datetime.date.today().isoformat()
    bad = [node.node for node in profile.bad_nodes if node.is_avoided(today)]
    return list(dict.fromkeys([*layout.slurm.exclude, *bad]))


def _container(layout: Work, profile: Profile, attempt_path: str) -> dict[str, str]:
    """What the job's nodes are told of its container, ``RLTUI_CONTAINER``; empty: it has none.

    Raises:
        UsageError: No image is named, or a folder of the run cannot be mounted.
    """
    found = container_of(layout.slurm, profile)
    if found is None:
        return {}
    if not found.image:
        raise UsageError(
            f"A container of {found.runtime} needs an image.", "Set slurm.container.image, or the profile's."
        )
    if ":" in attempt_path or "," in attempt_path:
        raise UsageError(
            f"{attempt_path} cannot be mounted into a container: it has a colon or a comma.",
            "Set run_root of the cluster's profile to another folder.",
        )
    words = {name: getattr(found, name) for name in ("runtime", "image", "mounts", "options")}
    gpus = 0 if layout.hardware.on_cpu else layout.hardware.gpus_per_node
    told = {**words, "python": profile.python, "gpus": gpus, "names": sorted(profile.env)}
    return {container.VARIABLE: json.dumps(told)}


def is_own(option: str) -> bool:
    """Whether the script sets this option of sbatch itself, so that no layout may."""
    return option.removeprefix("--").partition("=")[0] in OWN_OPTIONS


def instead_of(option: str) -> str:
    """What says it in the place of an option that no layout may set."""
    name = option.removeprefix("--").partition("=")[0]
    if name == "clusters":
        return "a profile is one cluster, and --cluster chooses it"
    if name == "gres" or name in GPU_OPTIONS:
        return "hardware.gpus_per_node and cpus_per_node say it, gres of the profile what GPUs are called"
    return "the layout's own key, or the cluster's profile, says it"


def _own(option: str) -> str:
    """A further option of the layout, as it stands in the script.

    Raises:
        UsageError: The script sets this option itself.
    """
    name, equals, value = option.removeprefix("--").partition("=")
    if is_own(option):
        raise UsageError(
            f"slurm.options: --{name} is set by rltui: {instead_of(option)}.", "Take it out of slurm.options."
        )
    return f"--{name}{equals}{quoting.directive_value(value, option) if equals else ''}"


def _line(line: str) -> str:
    """A set-up line of the profile; it is shell on purpose, so only what no script can hold is refused."""
    quoting.bash_quote(line, "a set-up line")
    return line.replace("\r\n", "\n").replace("\r", "\n")
