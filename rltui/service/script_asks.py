"""What the job of a script asks of Slurm: the user's words, else the script's ``#SBATCH`` lines, else what it needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from rltui.check.findings import Finding
from rltui.check.run import Report
from rltui.check.script import check_script_text
from rltui.cluster.slurm.nodelist import NodeListError, expand
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import find_gpu
from rltui.importers.read import Imported, import_text
from rltui.importers.slurm_lines import SlurmJob, read_slurm
from rltui.layout.diff import change_lines, diff
from rltui.layout.roles import Hardware
from rltui.layout.scalars import CPU, SbatchOption
from rltui.layout.settings import Container, Slurm
from rltui.onnode.preflight import capacity
from rltui.runs.script import GPU_OPTIONS, is_own
from rltui.runs.script_job import ScriptJob
from rltui.service.script_changes import LAYOUT_SECTIONS, changed_section, problems_of, typed

if TYPE_CHECKING:
    from rltui.cluster.profile import Profile
    from rltui.service.wishes import Wishes


CPUS_PER_GPU = 4
"""CPU cores for each GPU where nobody says how many the node has; verl's workers take three."""

_SIZE = re.compile(r"(\d+)([KMGT]?)B?\Z", re.IGNORECASE)
_GIB = {"K": 1 / 2**20, "": 1 / 2**10, "M": 1 / 2**10, "G": 1.0, "T": 2.0**10}

_OURS = frozenset(
    # the run has its own for these, or they say what the hardware says
    {"job-name", "output", "error", "open-mode", "comment", "nodes", "ntasks", "ntasks-per-node", "ntasks-per-gpu"}
    | {"ntasks-per-socket", "ntasks-per-core", "overcommit"}
    | {"gres", "gpus", "gpus-per-node", "gpus-per-task", *GPU_OPTIONS, "parsable", "quiet", "verbose", "wait"}
    | {"cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu", "chdir", "requeue", "no-requeue"}
    | {"partition", "account", "qos", "time", "constraint", "exclude", "exclusive", "reservation", "licenses"}
    | {"container-image", "container-mounts", "container-writable", "container-mount-home", "no-container-entrypoint"}
    | {"no-container-remap-root"}
)

_LEFT_OUT = {
    "signal": "before the time limit it gets SIGTERM, slurm.signal_lead_s before",
    "array": "a run is one job",
    "export": "its environment is that of your login, and the profile's env",
    "clusters": "the profile says where",
    "wrap": "the script is what runs",
    "get-user-env": "",
    "uid": "",
    "gid": "",
    "time-min": "the run is planned for its time limit",
    "test-only": "",
    "oversubscribe": "",
    "container": "slurm.container says what the script runs in",
    "container-name": "each step has a container of its own",
    "container-workdir": "the script runs in its own folder",
}
"""Options that a run cannot have, and why, where it does not go without saying."""


class Asked(Struct, frozen=True, kw_only=True):
    """What a script's lines ask for, as a job has it.

    Attributes:
        slurm: Its settings.
        cpus_per_node: CPU cores of each node; 0: they do not say.
        folder: Where it is to run; empty: they do not say.
        notes: What was taken over and what was not, a line each.
    """

    slurm: Slurm
    cpus_per_node: int = 0
    folder: str = ""
    notes: tuple[str, ...] = ()


def asked_by_lines(text: str, settings: Sequence[str] = ()) -> Asked:
    """What the ``#SBATCH`` lines of a script ask for, under the user's ``slurm.key=value`` words."""
    lines = read_slurm(text)
    found = {key.removeprefix("slurm."): value for key, value in lines.settings.items()}
    cpus = _cpus_per_node(lines)
    left: dict[str, str] = {}
    found |= _places(lines.options, left) | _memory(lines, cpus, left)
    if found.get("exclusive") and lines.options.get("mem") == "0":  # which an exclusive job has
        left.pop("mem", None)
    found |= _container(lines.options, left)
    found["options"] = _others(lines.options, left)
    before = msgspec.convert(found, Slurm)
    folder = lines.options.get("chdir", "")
    return Asked(
        slurm=changed_section(before, "slurm", settings),
        cpus_per_node=cpus,
        folder=folder if folder.startswith("/") and "$" not in folder else "",
        notes=tuple(_notes(found, cpus, left, settings)),
    )


def _places(options: dict[str, str], left: dict[str, str]) -> dict[str, Any]:
    """Where the job may run, and how."""
    found: dict[str, Any] = {}
    found |= {name: value for name in ("constraint", "reservation", "licenses") if (value := options.get(name))}
    if exclude := options.get("exclude"):
        try:
            found["exclude"] = list(expand(exclude))
        except NodeListError:
            left["exclude"] = "it is no list of nodes"
    if "exclusive" in options:
        if options["exclusive"]:
            left["exclusive"] = "slurm.exclusive=true takes whole nodes"
        else:
            found["exclusive"] = True
    if "requeue" in options or "no-requeue" in options:
        found["requeue"] = "no-requeue" not in options
    return found


def _cpus_per_node(lines: SlurmJob) -> int:
    """CPU cores that the lines ask for on each node; 0 where they do not say."""
    per_task, per_gpu = (_count(lines.options.get(name)) for name in ("cpus-per-task", "cpus-per-gpu"))
    if per_gpu and lines.gpus_per_node:
        return per_gpu * lines.gpus_per_node
    tasks = _count(lines.options.get("ntasks-per-node"))
    if not tasks:
        tasks = -(-_count(lines.options.get("ntasks")) // (lines.nodes or 1))
    return per_task * max(1, tasks)


def _memory(lines: SlurmJob, cpus: int, left: dict[str, str]) -> dict[str, Any]:
    """Memory of each node; one for each CPU or GPU becomes one for the node, which is what the job asks for."""
    counts = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": lines.gpus_per_node or 0}
    name = next((one for one in counts if one in lines.options), "")
    if not name:
        return {}
    size = _SIZE.match(lines.options[name])
    gib = float(size[1]) * _GIB[size[2].upper()] * counts[name] if size else 0.0
    if not gib:
        left[name] = "slurm.exclusive=true takes all of a node, slurm.mem_gib says how much"
        return {}
    return {"mem_gib": max(1, round(gib))}


def _container(options: dict[str, str], left: dict[str, str]) -> dict[str, Any]:
    """The container of pyxis that the lines name: the script is to run inside, and the job around it outside."""
    if "container-image" not in options:
        return {}
    image, mounts = options["container-image"], [one for one in options.get("container-mounts", "").split(",") if one]
    told = {"runtime": "pyxis", "image": image, "mounts": mounts}
    try:
        msgspec.convert(told, Container)
        is_plain = "$" not in image + "".join(mounts)  # Slurm replaces no variables in such lines
    except msgspec.ValidationError:
        is_plain = False
    if not is_plain:
        left["container-image"] = "slurm.container.image and slurm.container.mounts say it in plain paths"
        return {}
    return {"container": told}


def _others(options: dict[str, str], left: dict[str, str]) -> list[str]:
    """Options that stand in the job as they are."""
    taken: list[str] = []
    for name, value in options.items():
        if name in _OURS:
            continue
        option = f"--{name}={value}" if value else f"--{name}"
        why = _LEFT_OUT.get(name)
        if name == "dependency" and "singleton" in value:
            why = "each job of rltui has a name of its own"
        if why is None and not is_own(option) and _is_option(option):
            taken.append(option)
        elif name not in left:
            left[name] = why or ""
    return taken


def _is_option(option: str) -> bool:
    try:
        msgspec.convert(option, SbatchOption)
    except msgspec.ValidationError:
        return False
    return True


def _notes(found: dict[str, Any], cpus: int, left: dict[str, str], settings: Sequence[str]) -> list[str]:
    """What holds of the lines, what the user's words stand over, and what is left out.

    Of the last only the names are said: an option such as ``--export`` may hold a secret.
    """
    given = {word.partition("=")[0].removeprefix("slurm.").partition(".")[0] for word in settings}
    taken = [f"{key} {_shown(value)}" for key, value in found.items() if value not in ([], None) and key not in given]
    if cpus:
        taken.append(f"{cpus} CPUs a node")
    over = [key for key in found if key in given and found[key] != []]
    notes = [f"from its #SBATCH lines: {', '.join(taken)}"] if taken else []
    notes += [f"your words stand over its #SBATCH lines: {', '.join(over)}"] if over else []
    notes += [f"its #SBATCH --{name} is left out{f': {why}' if why else ''}" for name, why in left.items()]
    return notes


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return str(value["image"])
    return " ".join(map(str, value)) if isinstance(value, list) else str(value).replace("True", "yes")


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 7 else 0


def hardware_of(
    lines: SlurmJob, asked: Asked, wishes: Wishes, imported: Imported | None, profile: Profile
) -> tuple[Hardware, str]:
    """What the job gets, and by whose word: the user's, else the script's ``#SBATCH`` lines, else what its roles need.

    Raises:
        UsageError: Nobody says how many GPUs it takes.
    """
    nodes = wishes.nodes or lines.nodes or 1
    declared = imported.declared_gpus or imported.needed_gpus if imported is not None else None
    per_node, source = wishes.gpus_per_node, "--gpus-per-node"
    if per_node is None:
        per_node, source = lines.gpus_per_node, "its #SBATCH lines"
    if per_node is None and declared:
        per_node, source = -(-declared // nodes), "what its roles need"
    if per_node is None and profile.scheduler == "local":
        per_node, source = capacity().gpus, "this machine"
    if per_node is None and lines.present:
        per_node, source = 0, "its #SBATCH lines, which ask for none"
    if per_node is None:
        raise UsageError("The script does not say how many GPUs it takes.", "Add --gpus-per-node N (0: none).")
    gpu = wishes.gpu or lines.gpu or profile.gpu or "GPU"
    count = f"{nodes} nodes with {{}} each" if nodes > 1 else "1 node with {}"
    note = f"{count.format(f'{per_node} GPU' + 's' * (per_node > 1) if per_node else 'no GPUs')}, by {source}"
    hardware = Hardware(nodes=nodes, gpus_per_node=per_node or 1, gpu=gpu if per_node else CPU)
    cpus = asked.cpus_per_node or _share_of_cpus(per_node, profile)
    if not per_node:
        cpus = min(asked.cpus_per_node or profile.cpus_per_node or 2, 64)
        hardware = structs.replace(hardware, gpus_per_node=cpus)
    return structs.replace(hardware, cpus_per_node=cpus), note


def _share_of_cpus(gpus: int, profile: Profile) -> int:
    """CPU cores that go with ``gpus`` of a node: as many as their share of its GPUs."""
    if not profile.gpus_per_node or not profile.cpus_per_node:
        return CPUS_PER_GPU * gpus
    return profile.cpus_per_node * min(gpus, profile.gpus_per_node) // profile.gpus_per_node


class Meaning(Struct, frozen=True):
    """A command as the importer reads it.

    Attributes:
        imported: What it asks for; None where that cannot be read.
        report: What a check says of it; None where nothing can be said.
    """

    imported: Imported | None
    report: Report | None

    def value_of(self, key: str) -> Any:
        """The value of a layout's key; None where the layout is not known."""
        found: Any = self.report.loaded.layout if self.report is not None and self.report.loaded is not None else None
        for name in key.split("."):
            found = getattr(found, name, None)
        return found


def with_arguments(text: str, path: Path, words: Sequence[str]) -> str:
    """A shell script as it reads with ``words`` behind its name; its lines keep their numbers."""
    if not words or path.suffix == ".py":
        return text
    given = f"set -- {shlex.join(words)}"
    return f"{given} {text}" if text.startswith("#") else f"{given}; {text}"


def import_of(text: str, path: Path) -> tuple[Imported | None, str]:
    """What a script asks for, and why that is not known; nothing of it is executed."""
    try:
        return import_text(text, path), ""
    except RltuiError as error:
        return None, error.message


def report_of(text: str, path: Path, hardware: Hardware) -> Report | None:
    """What a check says; None where nothing is trained on a card, or the script cannot be read."""
    if hardware.on_cpu or path.suffix == ".py":
        return None
    card = [f"hardware.gpu={hardware.gpu}"] if find_gpu(hardware.gpu) is not None else []
    report = check_script_text(text, path, given=card)
    return report if report.readable else None


def meaning_of(text: str, job: ScriptJob) -> Meaning:
    """What the script ``text`` means as ``job`` runs it."""
    path = Path(job.source)
    read = with_arguments(text, path, job.words)
    return Meaning(import_of(read, path)[0], report_of(read, path, job.hardware))


class Reading(Struct, frozen=True):
    """What a change of a script's words comes to.

    Attributes:
        job: The job with what is known now of the GPUs that it needs.
        lines: Keys of its layout that change, a ``-`` and a ``+`` line each.
        findings: What a check says that it did not say before.
    """

    job: ScriptJob
    lines: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def read_again(text: str, before: ScriptJob, after: ScriptJob, overrides: Sequence[str]) -> Reading:
    """Read the command that ``after`` runs, and hold it against that of ``before``.

    Args:
        text: The script.
        before: The job of the attempt before.
        after: The job with the change.
        overrides: The change, as it was asked for.

    Raises:
        UsageError: A word does not change what it claims, or the roles need more GPUs than there are.
    """
    if after.words == before.words:
        return Reading(after)
    old, new = meaning_of(text, before), meaning_of(text, after)
    for word in overrides:
        _require_effect(after, word, old, new)
    if new.imported is not None:
        after = structs.replace(after, needed_gpus=new.imported.needed_gpus)
    problems = problems_of(after)
    if problems and problems != problems_of(before):
        raise UsageError(f"With {' '.join(after.words[len(before.words) :])} {problems[0]}")
    if old.report is None or new.report is None or old.report.loaded is None or new.report.loaded is None:
        return Reading(after)
    lines = change_lines(diff(old.report.loaded.layout, new.report.loaded.layout))
    known = {(finding.code, finding.message) for finding in old.report.findings}
    told = [one for one in new.report.findings if (one.code, one.message) not in known and one.severity != "note"]
    return Reading(after, tuple(lines), tuple(told))


def _require_effect(job: ScriptJob, word: str, old: Meaning, new: Meaning) -> None:
    """Refuse a word that the command does not heed: the script says the same thing again behind its arguments."""
    said, equals, value = word.partition("=")
    layouts = said if said.partition(".")[0] in LAYOUT_SECTIONS else ""
    key = layouts or next((key for key, own in job.dialect.words.items() if own == said), "")
    if not key or not equals:
        return
    before, now, wanted = old.value_of(key), new.value_of(key), typed(value)
    if now is not None and now == before and now != wanted:
        own = job.dialect.words.get(key, said)
        raise UsageError(
            f"{own}={value} would change nothing: the command still means {key}={now}.",
            f"{Path(job.source).name} says {own} again behind its arguments, or does not hand them to what trains.",
        )
