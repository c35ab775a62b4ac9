"""Commands that run inside the job's container: the words before them, their environment, and how they are found.

Slurm's commands, the driver, agents, samplers and guards stay outside, with the node's own python. Ray, the trainer, a
script of another system and the check of its python run inside. All runtimes share network, process ids and /tmp with
the node, so addresses, Ray's sockets and the attempt's mark mean the same on both sides.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from rltui.onnode import environment as variables
from rltui.onnode import processes, rundir

VARIABLE = "RLTUI_CONTAINER"
"""Where the job script says what the container is, as JSON."""

MARK = "RLTUI_INSIDE"
"""Carried by what the runtime started, but not by the runtime's own process beside it; the value is the attempt's."""

PROGRAMS = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "pyxis": "srun",
    "docker": "docker",
    "podman": "podman",
}

PASSED_PREFIXES = (
    *("RLTUI_", "RAY_", "NCCL_", "GLOO_", "MASTER_", "PET_", "TORCH", "VLLM_", "HF_", "TRANSFORMERS_", "WANDB"),
    *("SLURM", "OMP_", "FI_", "UCX_"),
)
PASSED = frozenset(
    {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONNOUSERSITE", "SPT_NOENV", "TMPDIR", "CUDA_VISIBLE_DEVICES", "HOME"}
    | {"AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT", "NODE_RANK", "NNODES"}
)
"""Variables that hold inside whatever the image sets; with them go those of the profile and of the user's own file."""

OF_THE_IMAGE = frozenset({"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"})
"""Variables that tell where the outer system has its files, and would be wrong inside."""

START_S = 600.0
"""How long the nodes' check may take: it is the first to start the image, which may have to be fetched and unpacked."""

INFINIBAND = "/dev/infiniband"
HELP_TIMEOUT_S = 20
_ENTER = "import sys; sys.path.insert(0, sys.argv[1]); from rltui.onnode.container import main; main(sys.argv[2:])"


class Container(NamedTuple):
    """A container as the job script tells of it.

    Attributes:
        runtime: One of ``PROGRAMS``.
        image: A path, or a name that the runtime can fetch.
        mounts: ``SOURCE:TARGET[:FLAGS]`` each, beside what every attempt needs.
        options: Further words for the runtime, before the image.
        python: The interpreter inside.
        gpus: GPUs of each node that the job has.
        names: Variables of the profile, which hold inside too.
    """

    runtime: str
    image: str
    mounts: Tuple[str, ...] = ()
    options: Tuple[str, ...] = ()
    python: str = "python3"
    gpus: int = 0
    names: Tuple[str, ...] = ()


class ContainerError(OSError):
    """A command cannot be run inside; the text says why."""


def read(environment: Optional[Dict[str, str]] = None) -> Optional[Container]:
    """The container that ``environment`` (this process's by default) tells of; None: there is none.

    Raises:
        ContainerError: What stands there is no container.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    if not text:
        return None
    try:
        told = json.loads(text)
        lists = {name: tuple(told[name]) for name in ("mounts", "options", "names")}
        found = Container(told["runtime"], told["image"], python=told["python"], gpus=told["gpus"], **lists)
    except (ValueError, TypeError, KeyError) as error:
        raise ContainerError("%s holds no container: %s" % (VARIABLE, error)) from error
    if found.runtime not in PROGRAMS:
        raise ContainerError("%s: there is no runtime %r" % (VARIABLE, found.runtime))
    return found


def enter(
    argv: Sequence[str],
    environment: Dict[str, str],
    folder: str,
    attempt: str,
    names: Sequence[str] = (),
    mark: str = "",
) -> Tuple[List[str], Dict[str, str]]:
    """Command and environment that run ``argv`` inside the container of ``environment``; as they are without one.

    Args:
        argv: The command as it is inside.
        environment: What it is to see.
        folder: Its working directory, which is mounted.
        attempt: The attempt's directory.
        names: Further variables that hold whatever the image sets.
        mark: Value of ``MARK`` for what runs inside; empty: none.

    Raises:
        ContainerError: A path cannot be mounted.
    """
    container = read(environment)
    if container is None:
        return list(argv), environment
    environment = {**environment, "PYTHONNOUSERSITE": "1"}  # packages in ~/.local are another python's
    del environment[VARIABLE]  # what is inside enters nothing further
    held = _held_names(container, environment, attempt, names)
    mounts = _mounts(container, environment, folder, attempt)
    words, known = _RECIPES[container.runtime](container, environment, folder, held, mounts)
    return [*words, *(["env", "%s=%s" % (MARK, mark)] if mark else []), *argv], known


def enter_on_each_node(argv: Sequence[str], folder: str, attempt: str, code: str, mark: str) -> List[str]:
    """A command that makes ``enter``'s on the node where it runs, and becomes it: cards and devices are each node's."""
    if read() is None:
        return list(argv)
    return [sys.executable, "-c", _ENTER, code, attempt, folder, mark, *argv]


def main(words: Sequence[str]) -> None:
    """Become the command that runs ``words[3:]`` inside; before that: attempt, folder, mark."""
    attempt, folder, mark, *argv = words
    command, environment = enter(argv, dict(os.environ), folder, attempt, mark=mark)
    os.execvpe(command[0], command, environment)


def entered(mark: str) -> List[processes.Process]:
    """The processes on this node that were started inside with ``mark``, without their children."""
    found = dict(processes.AttemptScanner(mark, MARK).scan())
    return [
        processes.Process(pid, stat.start_time, processes.title(pid))
        for pid, stat in found.items()
        if stat.parent not in found and stat.state not in "ZX"
    ]


def ask_to_end(process: "subprocess.Popen[bytes]", mark: str, environment: Dict[str, str]) -> None:
    """Send SIGTERM to ``process``, or to what it started inside: not every runtime hands a signal on."""
    inside = entered(mark) if read(environment) is not None else []
    for one in inside:
        processes.send(one.pid, one.start_time, signal.SIGTERM)
    if not inside:
        process.terminate()


def problems(container: Container) -> List[str]:
    """Why nothing can run in ``container`` on this node, a sentence each."""
    found = []
    program = PROGRAMS[container.runtime]
    if shutil.which(program) is None:
        found.append("%s is not on the PATH of the job; the profile's setup_lines may load it" % program)
    elif container.runtime == "pyxis":
        told = processes.said_by([program, "--help"], HELP_TIMEOUT_S) or ""
        if "--container-image" not in told:
            found.append("srun here has no --container-image: the pyxis plugin is not installed")
    if container.image.startswith(("/", "~/")) and not os.path.exists(os.path.expanduser(container.image)):
        found.append("the image %s is not there" % container.image)
    return found


def _held_names(container: Container, environment: Dict[str, str], attempt: str, names: Sequence[str]) -> List[str]:
    """Variables of ``environment`` that hold inside, whatever the image sets."""
    wanted = {*PASSED, *container.names, *names, *variables.own_names(attempt, environment)} - OF_THE_IMAGE
    return sorted(name for name in environment if name in wanted or name.startswith(PASSED_PREFIXES))


def _mounts(container: Container, environment: Dict[str, str], folder: str, attempt: str) -> List[str]:
    """What is mounted, as ``SOURCE:TARGET[:FLAGS]``: what the attempt needs at the same path, then the user's own."""
    attempt = os.path.abspath(attempt)
    paths = {os.path.dirname(rundir.run_of(attempt)), folder, os.path.expanduser("~"), "/tmp", "/dev/shm"}
    paths |= {tempfile.gettempdir(), environment.get("TMPDIR") or "/tmp"}
    paths |= {path for path in environment.get("PYTHONPATH", "").split(":") if path.startswith("/")}
    own = sorted(path for path in paths if os.path.isdir(path))
    for path in own:
        if ":" in path or "," in path:
            raise ContainerError("%s cannot be mounted into a container: its name has a colon or a comma" % path)
    return ["%s:%s" % (path, path) for path in own] + [_expanded(mount) for mount in container.mounts]


def _expanded(mount: str) -> str:
    source, _, rest = mount.partition(":")
    source = os.path.expanduser(source)
    return "%s:%s" % (source, rest or source)


def _apptainer(
    container: Container, environment: Dict[str, str], folder: str, names: Sequence[str], mounts: Sequence[str]
) -> Tuple[List[str], Dict[str, str]]:
    words = [PROGRAMS[container.runtime], "exec"]
    if container.gpus and not any(one in container.options for one in ("--rocm", "--nvccli")):
        words.append("--nv")
    for mount in mounts:
        words += ["--bind", mount]
    # what the image sets wins over a plain variable, but not over one with this prefix
    prefix = "%sENV_" % container.runtime.upper()
    held = {prefix + name: environment[name] for name in names if name != "HOME"}  # it has a word of its own for that
    image = os.path.expanduser(container.image)
    return [*words, "--pwd", folder, *container.options, image], {**environment, **held}


def _pyxis(
    container: Container, environment: Dict[str, str], folder: str, names: Sequence[str], mounts: Sequence[str]
) -> Tuple[List[str], Dict[str, str]]:
    # a launch on the login node loads this file too, and starts no step
    from rltui.onnode.allocation import step_command, without_step_options
    from rltui.onnode.node_network import host

    cpus = environment.get("SLURM_CPUS_ON_NODE", "")
    words = step_command([host()], int(cpus) if cpus.isdigit() else 1)
    words += ["--container-image=%s" % os.path.expanduser(container.image), "--container-mounts=%s" % ",".join(mounts)]
    words += ["--container-workdir=%s" % folder, "--container-writable", "--no-container-remap-root"]
    words += ["--no-container-entrypoint", "--container-env=%s" % ",".join(names), *container.options]
    return words, without_step_options(environment)


def _docker(
    container: Container, environment: Dict[str, str], folder: str, names: Sequence[str], mounts: Sequence[str]
) -> Tuple[List[str], Dict[str, str]]:
    is_podman = container.runtime == "podman"
    # --ipc=host: a container's own /dev/shm has 64 MiB, and Ray's objects and NCCL's buffers lie there
    # --entrypoint=: what an image starts by itself may print, or never come to the command
    words = [container.runtime, "run", "--rm", "--net=host", "--ipc=host", "--pid=host", "--entrypoint="]
    if is_podman:
        # rootless podman makes its user root inside, and SELinux keeps a container off the node's folders
        words += ["--userns=keep-id", "--ulimit=host", "--security-opt=label=disable"]
    else:
        # docker runs as root, and root would own the run's files; RDMA pins more memory than memlock usually allows
        words += ["--user=%d:%d" % (os.getuid(), os.getgid()), "--ulimit=memlock=-1"]
    words += _cards(is_podman, environment) if container.gpus else []
    if os.path.isdir(INFINIBAND):
        words += ["--device=%s" % INFINIBAND, "--cap-add=IPC_LOCK"]
    for mount in mounts:
        words += ["-v", mount]
    for name in names:
        if name != "CUDA_VISIBLE_DEVICES":  # inside are the job's cards alone, counted from 0
            words += ["--env", name]  # without its value: that comes from our environment, and stands in no list
    return [*words, "--workdir=%s" % folder, *container.options, container.image], environment


def _cards(is_podman: bool, environment: Dict[str, str]) -> List[str]:
    """The job's cards by the node's numbers: these daemons are outside what Slurm lets the job see."""
    given = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    numbers = [number for number in given.split(",") if number.isdigit()]
    if is_podman:
        return ["--device=nvidia.com/gpu=%s" % number for number in numbers or ["all"]]
    # docker reads the value as CSV: without the inner quotes each comma begins another option
    return ["--gpus=%s" % ('"device=%s"' % ",".join(numbers) if numbers else "all")]


_RECIPES = {
    "apptainer": _apptainer,
    "singularity": _apptainer,
    "pyxis": _pyxis,
    "docker": _docker,
    "podman": _docker,
}
