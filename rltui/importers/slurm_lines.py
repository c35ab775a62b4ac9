"""``#SBATCH`` lines: what a job asks of Slurm."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from rltui.importers.values import HOLE, product, quotient, to_int

_LINE = re.compile(r"^#SBATCH[ \t]+(.*?)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OPTION = re.compile(
    r"(?:^|(?<=\s))(--[a-z][a-z0-9_-]*|-[A-Za-z])(?:=\s*|\s+(?!-)|(?=[^\s-]))?(\"[^\"]*\"|'[^']*'|\S*)"
)
_SHORT = {
    "-N": "nodes", "-G": "gpus", "-n": "ntasks", "-p": "partition", "-A": "account", "-q": "qos", "-t": "time",
    "-x": "exclude", "-J": "job-name", "-c": "cpus-per-task", "-C": "constraint", "-D": "chdir", "-L": "licenses",
    "-w": "nodelist", "-d": "dependency", "-b": "begin", "-o": "output", "-e": "error", "-s": "oversubscribe",
    "-m": "distribution", "-M": "clusters", "-a": "array", "-H": "hold", "-k": "no-kill", "-S": "core-spec",
    "-B": "extra-node-info", "-Q": "quiet", "-v": "verbose", "-W": "wait", "-O": "overcommit",
    "--tasks-per-node": "ntasks-per-node",
}  # fmt: skip
_TIME = re.compile(r"(?:\d+-)?\d{1,3}(?::\d{2}){0,2}\Z")
_GRES = re.compile(r"gpu(?::(?P<kind>[A-Za-z][\w.-]*))?(?::(?P<count>\d+))?(?:\(.*\))?\Z")


_MOST_GPUS = 64


class SlurmJob(Struct, frozen=True, kw_only=True):
    """What the lines ask for; None where they do not say.

    Attributes:
        present: Whether there are any.
        nodes: Nodes.
        gpus_per_node: GPUs of each.
        gpu: Their kind.
        settings: What stands for them in a layout, by key.
        options: All of them by their long names, as they stand there; empty: without a value.
    """

    present: bool = False
    nodes: int | None = None
    gpus_per_node: int | None = None
    gpu: str = ""
    settings: dict[str, Any] = {}
    options: dict[str, str] = {}

    @property
    def gpus(self) -> int | None:
        """GPUs on all nodes together; None where the script does not say."""
        return product(self.nodes, self.gpus_per_node)

    def machine(self, own: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
        """Nodes and GPUs a node: those that the lines count, else a training's ``own``."""
        return own if self.gpus is None else (self.nodes, self.gpus_per_node)

    @property
    def environ(self) -> dict[str, str]:
        """Variables that Slurm sets in the job; those by which its tasks differ are not known."""
        found = dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID"), HOLE) if self.present else {}
        if self.nodes is not None:
            found |= {name: str(self.nodes) for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")}
        if self.gpus_per_node is not None:
            found |= {name: str(self.gpus_per_node) for name in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")}
            found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(min(self.gpus_per_node, _MOST_GPUS))))
        return found


def read_slurm(text: str) -> SlurmJob:
    """Read the ``#SBATCH`` lines of a script; later lines win."""
    options: dict[str, str] = {}
    for line in _LINE.findall(text):
        for flag, value in _OPTION.findall(_COMMENT.sub("", line)):
            options[_SHORT.get(flag, flag.lstrip("-"))] = value.strip("\"'")
    if not options:
        return SlurmJob()
    nodes = to_int(options["nodes"].split("-")[-1]) if "nodes" in options else _nodes_of_tasks(options)
    kind, per_node = _per_node(options, nodes)
    settings = _settings(options)
    return SlurmJob(present=True, nodes=nodes, gpus_per_node=per_node, gpu=kind, settings=settings, options=options)


def _nodes_of_tasks(options: dict[str, str]) -> int | None:
    """Nodes where only tasks are counted: as many as hold all of them, one where nothing more is said."""
    if not {"ntasks", "ntasks-per-node"} <= options.keys():
        return 1
    tasks, each = to_int(options["ntasks"]), to_int(options["ntasks-per-node"])
    return -(-tasks // each) if tasks and each else None


def _per_node(options: dict[str, str], nodes: int | None) -> tuple[str, int | None]:
    """Kind and number of the GPUs of each node, by the first option that tells."""
    for names, of_node in (
        (("gpus-per-node", "gres", "tres-per-node"), lambda count: count),
        (("gpus", "tres-per-job"), lambda count: quotient(count, nodes)),
        (("gpus-per-socket", "tres-per-socket"), lambda count: product(count, _sockets(options))),
        (("gpus-per-task", "tres-per-task"), lambda count: product(count, _tasks(options, nodes))),
    ):
        for name in names:
            kind, count = _gpu_count(options.get(name, ""))
            if count is not None:
                return kind, of_node(count)
    return "", None


def _sockets(options: dict[str, str]) -> int | None:
    """Sockets of each node: Slurm wants them said beside GPUs for each socket (``--extra-node-info`` begins so)."""
    said = options.get("sockets-per-node") or options.get("extra-node-info", "").partition(":")[0]
    return to_int(said) if said else None


def _tasks(options: dict[str, str], nodes: int | None) -> int | None:
    """Tasks of each node; Slurm wants them said beside GPUs for each task."""
    if per_node := options.get("ntasks-per-node"):
        return to_int(per_node)
    return quotient(to_int(options["ntasks"]), nodes) if "ntasks" in options else None


def _gpu_count(text: str) -> tuple[str, int | None]:
    """Kind and count in ``8``, ``h100:8``, ``gpu:h100:8`` or ``gres/gpu:h100=8``; of a list only the part for GPUs."""
    for part in (re.sub(r"^gres[/:]", "", one).replace("=", ":") for one in text.split(",")):
        if part.partition(":")[0] in ("cpu", "mem", "node", "billing", "energy") or "/" in part:
            continue
        if part.isdigit():
            return "", int(part)
        match = _GRES.match(part if part.startswith("gpu") else f"gpu:{part}")
        if match and (match["kind"] or match["count"]):
            bare = part.startswith("gpu") and not match["count"]
            return match["kind"] or "", 1 if bare else to_int(match["count"])
        if part == "gpu":
            return "", 1
    return "", None


def _settings(options: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("partition", "account", "qos"):
        value = options.get(name, "")
        if value and re.fullmatch(r"[\w.,@-]+", value):
            found[f"slurm.{name}"] = value
    time = options.get("time", "")
    if _TIME.match(time):
        found["slurm.time"] = time
    return found
