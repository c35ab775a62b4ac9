"""Launching a run of another system: its own script, unchanged, as the job of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from rltui.check.findings import Finding
from rltui.check.live_rules.cluster_rules import nodes_over_profile, time_over_profile
from rltui.cluster.profile import Profile, in_partition
from rltui.dialects.load import load_dialects, named, recognised
from rltui.dialects.schema import Checkpoints, Dialect
from rltui.errors import RltuiError, UsageError
from rltui.importers.shell_children import read_beside
from rltui.importers.shell_run import read_shell
from rltui.importers.slurm_lines import read_slurm
from rltui.layout.origins import AT_LAUNCH, FREEST_PARTITION, changed
from rltui.onnode import rundir
from rltui.onnode.preflight import capacity, missing_gpus
from rltui.paths import with_home
from rltui.runs.script_job import ENDINGS, LARGEST, ScriptJob
from rltui.service.allocations import share_of
from rltui.service.context import Context
from rltui.service.eligible import freest_partition
from rltui.service.login_facts import ask_cluster
from rltui.service.script_asks import asked_by_lines, hardware_of, import_of, report_of, with_arguments
from rltui.service.script_changes import changed_section, problems_of
from rltui.service.submit import Launched, submit_new
from rltui.service.wishes import KEYS, Wishes, read_wishes

_STARTS_OTHERS = re.compile(r"^[^#\n]*\b(?:srun|mpirun|mpiexec|pdsh|clush|ssh|deepspeed)\b", re.MULTILINE)
"""Commands by which a script starts the other nodes itself; ``deepspeed`` does so by its own host file."""

_IS_ONE_OF_MANY = re.compile(
    r"^[^#\n]*(?:\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b|\baccelerate launch\b"
    r"|\$\{?(?:NODE_RANK|MACHINE_RANK|SLURM_NODEID|SLURM_PROCID)\b)",
    re.MULTILINE,
)
"""What starts the processes of one node, or asks which node it is on."""

_STARTS_RAY = re.compile(r"^[^#\n]*\bray start\b", re.MULTILINE)
_JOINS_RAY = re.compile(r"^[^#\n]*\bray start\b[^\n]*--address", re.MULTILINE)

_LOADS_MODULES = re.compile(r"^\s*(?:module|ml)\s", re.MULTILINE)

_PASSES_ON = re.compile(r"""\$[@*]|\$\{[@*][}:]""")


class Prepared(Struct, frozen=True, kw_only=True):
    """A script as it would be launched.

    Attributes:
        job: The job.
        text: The script, byte for byte.
        notes: What was recognised, taken and assumed, a line each.
        problems: Why it cannot work as asked, a line each; these stand in the way of a launch.
        findings: What a check says of it: warnings, as the script is not ours.
        drawing: The nodes × GPUs picture of what the importer read.
        arithmetic: Its arithmetic in words.
        origins: The settings that the user's words gave, and which word.
    """

    job: ScriptJob
    text: bytes
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    drawing: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()
    origins: dict[str, str] = {}


def prepare(source: str, wishes: Wishes, profile: Profile) -> Prepared:
    """Read the script ``source`` and say what a launch on ``profile`` would run. Nothing of it is executed.

    Raises:
        UsageError: It cannot be read, or nobody says how many GPUs it takes.
    """
    path = Path(source)
    return prepare_text(read_script(path), path, wishes, profile)


def prepare_text(text: bytes, path: Path, wishes: Wishes, profile: Profile) -> Prepared:
    """``prepare`` for a script that was read already; ``path`` says where it stands.

    Raises:
        UsageError: Nobody says how many GPUs it takes.
    """
    shown = text.decode("utf-8", "replace")
    dialect, notes = _dialect(shown, wishes.dialect)
    read = with_arguments(shown, path, wishes.words)
    imported, problem = import_of(read, path)
    asked = asked_by_lines(shown, wishes.settings)
    place = in_partition(profile, asked.slurm.partition)
    lines = read_slurm(shown)
    hardware, hardware_note = hardware_of(lines, asked, wishes, imported, place)
    starts_ray = bool(_STARTS_RAY.search(shown))
    needs_ray = dialect.needs_ray and not starts_ray
    on_each_node = not needs_ray and _starts_one_node(shown) if wishes.on_each_node is None else wishes.on_each_node
    asked_folder = asked.folder if profile.scheduler == "slurm" else ""
    folder = folder_there(wishes.folder or asked_folder, profile)
    job = ScriptJob(
        name=run_name(wishes.name or lines.options.get("job-name", "") or path.stem),
        dialect=dialect,
        script=f"script{path.suffix if path.suffix in ENDINGS else ''}",
        source=str(path.absolute()),
        words=wishes.words,
        folder=folder,
        passes_words=passes_words(shown, path),
        checkpoints=checkpoint_folder(shown, path, folder, wishes.words, dialect.checkpoints),
        on_each_node=on_each_node and hardware.nodes > 1,
        starts_ray=starts_ray,
        needed_gpus=imported.needed_gpus if imported is not None else None,
        pythonpath=os.environ.get("PYTHONPATH", "") if _starts_from_this_shell(profile) else "",
        loads_modules=loads_modules(shown),
        hardware=changed_section(hardware, "hardware", wishes.settings),
        slurm=asked.slurm,
    )
    report = report_of(read, path, job.hardware)
    return Prepared(
        job=job,
        text=text,
        notes=(
            *notes,
            hardware_note,
            *(asked.notes if profile.scheduler == "slurm" else ()),
            *_node_notes(shown, hardware.nodes, needs_ray, on_each_node),
            *_folder_notes(job, profile),
            *_checkpoint_notes(job),
            *([f"what it asks for is not known: {problem}"] if problem else ()),
        ),
        problems=(*problems_of(job), *_beyond_this_machine(job, profile)),
        findings=tuple(one for one in report.findings if one.severity in ("error", "warning")) if report else (),
        drawing=report.drawing if report else (),
        arithmetic=report.arithmetic_lines if report else (),
        origins=origins_of(wishes),
    )


def folder_there(asked: str, profile: Profile) -> str:
    """The folder in which a script runs, from ``/`` or, on another host, from ``~``; empty: the home there.

    Args:
        asked: What the user or the script says; what is relative is meant from here, on another host from the home.
        profile: The cluster.
    """
    if not profile.host:
        return str(with_home(asked).absolute())
    return asked if not asked or asked.startswith(("/", "~")) else f"~/{os.path.normpath(asked)}"


def _folder_notes(job: ScriptJob, profile: Profile) -> Sequence[str]:
    """Where it runs if nobody says so: what it reads beside itself lies here, and is not there."""
    if job.folder or not profile.host:
        return ()
    return (f"runs in your home on {profile.name}; only the script is copied there: --folder names that of your code",)


def origins_of(wishes: Wishes) -> dict[str, str]:
    """The settings that the user gave beside a script, by key, and with which word."""
    given = {name: value for name, value in structs.asdict(wishes).items() if name in KEYS and value not in (None, "")}
    options = {KEYS[name]: f"--{name.replace('_', '-')} at launch" for name in given}
    return changed(options, wishes.settings, AT_LAUNCH)


def _beyond_this_machine(job: ScriptJob, profile: Profile) -> Sequence[str]:
    """Why this machine cannot run it: its attempt would find the same, and end, before the script begins."""
    here = profile.scheduler == "local" and not job.hardware.on_cpu
    return missing_gpus(job.hardware.gpus_per_node, capacity().gpus) if here else ()


def launch_script(
    context: Context,
    prepared: Prepared,
    *,
    anyway: bool = False,
    unchecked: bool = False,
    after_job: str = "",
    sweep: str = "",
    into: str = "",
) -> Launched:
    """Make a run of the script and submit its first attempt.

    Args:
        context: Where.
        prepared: The script as it was read.
        anyway: Launch it although its roles need more than it gets.
        unchecked: Do not ask the cluster first whether it could run it.
        after_job: Id of a Slurm job that must have ended, however, before this one starts.
        sweep: What all runs of its sweep have in common.
        into: Id of a running job of the user's that it is to run in; empty: a job is submitted.

    Raises:
        RltuiError: It cannot work as asked, the run directory cannot be written, or the submission failed.
    """
    if prepared.problems and not anyway:
        hint = "--nodes and --gpus-per-node say what it gets; --anyway launches it as it is."
        raise RltuiError(f"Not launched: {prepared.problems[0]}", hint)
    job = prepared.job if into else in_freest_partition(context, prepared.job)
    chosen = {"slurm.partition": FREEST_PARTITION} if job.slurm.partition != prepared.job.slurm.partition else {}
    if not unchecked and not into:
        ask_cluster(context, job, is_new=True)
    share = share_of(context, into, job) if into else None
    origins = prepared.origins | chosen
    return submit_new(context, job, text=prepared.text, after_job=after_job, share=share, sweep=sweep, origins=origins)


def in_freest_partition(context: Context, job: ScriptJob) -> ScriptJob:
    """``job`` in that of the profile's partitions that takes it, by card, time and nodes, and has most of them free."""
    profile, hardware = context.cluster.profile, job.hardware

    def fits(name: str) -> bool:
        there = in_partition(profile, name)
        is_over = time_over_profile(there, job.slurm.time) or nodes_over_profile(there, hardware.nodes)
        return not is_over and (hardware.on_cpu or there.gpu in ("", hardware.gpu))

    name = freest_partition(context.cluster, job, fits)
    return structs.replace(job, slurm=structs.replace(job.slurm, partition=name)) if name else job


def _starts_from_this_shell(profile: Profile) -> bool:
    """Whether the script would have this shell's variables without rltui too: here, and by ``sbatch`` typed here."""
    return profile.scheduler == "local" or (profile.scheduler == "slurm" and not profile.host)


def launch_words(context: Context, source: str, words: Sequence[str]) -> Launched:
    """Launch the script ``source`` with what stands behind it in ``rltui launch --script``.

    Raises:
        RltuiError: As for ``read_wishes``, ``prepare`` and ``launch_script``.
    """
    wishes = read_wishes(words)
    return launch_script(context, prepare(source, wishes, context.cluster.profile), anyway=wishes.anyway)


def checkpoint_folder(text: str, path: Path, folder: str, words: Sequence[str], marks: Checkpoints) -> str:
    """The folder of a script's checkpoints as its commands name it; empty where they do not, or only a shell knows."""
    values = command_values(text, path, folder, words)
    for place in marks.places:
        named_parts = re.findall(r"\{([^}]+)\}", place)
        if all(one_spelling(part) in values for part in named_parts):
            found = re.sub(r"\{([^}]+)\}", lambda match: values[one_spelling(match[1])], place)
            return "" if "\0" in found else found
    return ""


def command_values(text: str, path: Path, folder: str, words: Sequence[str]) -> dict[str, str]:
    """What the commands of a script set, and the words behind it, by option; the last of each counts."""
    try:
        commands = [] if path.suffix == ".py" else _commands(text, path, folder)
    except RltuiError:
        commands = []
    values: dict[str, str] = {}
    for command in (*commands, list(words)):
        values.update(_values(command))
    return values


def _commands(text: str, path: Path, folder: str) -> list[list[str]]:
    # the home of whoever runs it is the cluster's, where the relay and the nodes know what ~ is
    here = {"HOME": "~"} | ({"PWD": folder, "SLURM_SUBMIT_DIR": folder} if folder else {})
    reading = read_shell(text, {**read_slurm(text).environ, **here}, lambda name: read_beside(name, path))
    return [list(command.words) for command in reading.commands]


def _values(command: Sequence[str]) -> Mapping[str, str]:
    """``key=value``, ``--flag=value`` and ``--flag value`` of a command."""
    found: dict[str, str] = {}
    for index, word in enumerate(command):
        name, equals, value = word.lstrip("+").partition("=")
        if equals:
            found[one_spelling(name)] = value
        elif word.startswith("-") and index + 1 < len(command):
            found[one_spelling(word)] = command[index + 1]
    return found


def one_spelling(name: str) -> str:
    """An option by one of its spellings: many parsers take both ``--output-dir`` and ``--output_dir``."""
    return name.replace("_", "-") if name.startswith("--") else name


def read_script(path: Path) -> bytes:
    """The script at ``path``, byte for byte.

    Raises:
        UsageError: It is none, or cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is no file.", "Name the script that starts the training.")
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if len(text) > LARGEST or b"\0" in text or not text.strip():
        what = "is empty" if not text.strip() else "is no script"
        raise UsageError(f"{path} {what}.", "Name the script that starts the training.")
    return text


def _dialect(text: str, wanted: str) -> tuple[Dialect, tuple[str, ...]]:
    dialects = load_dialects()
    if wanted:
        return named(wanted, dialects), ()
    found = recognised(text, dialects.values())
    if not found:
        note = "no training system is recognised: steps are read where a line says 'step N', all else from the log"
        return dialects[rundir.GENERIC], (note,)
    others = f", though it also looks like {', '.join(one.name for one in found[1:])}" if len(found) > 1 else ""
    return found[0], (f"read as a script of {found[0].summary}{others} (--dialect NAME says otherwise)",)


def _starts_one_node(text: str) -> bool:
    """Whether a script starts the processes of the node that it is on, and of no other."""
    return bool(_IS_ONE_OF_MANY.search(text)) and not _STARTS_OTHERS.search(text)


def _checkpoint_notes(job: ScriptJob) -> Iterator[str]:
    """What stands in the way of going on from a checkpoint; nothing where rltui will find it, or never does."""
    if job.dialect.checkpoints.places and job.dialect.resume.possible and not job.checkpoints:
        needs = f"; to go on it needs {job.dialect.resume.demands}" if job.dialect.resume.demands else ""
        yield f"where it keeps its checkpoints is not known{needs}"


def _node_notes(text: str, nodes: int, needs_ray: bool, on_each_node: bool) -> Iterator[str]:
    """How a script on several nodes comes to all of them; nothing where it has one."""
    if nodes == 1:
        return
    if on_each_node:
        yield "started on each node, with NODE_RANK, MASTER_ADDR and MASTER_PORT (--on-first-node: on the first only)"
    elif needs_ray:
        yield f"started on the first node; RAY_ADDRESS is a Ray cluster of all {nodes}"
    else:
        yield "started on the first node, with MASTER_ADDR and MASTER_PORT (--on-each-node: on each)"
    if not on_each_node and _STARTS_RAY.search(text) and not _JOINS_RAY.search(text):
        yield "it starts a Ray head and nothing joins it: without its `ray start` it gets a Ray cluster of all nodes"


def passes_words(text: str, path: Path) -> bool:
    """Whether a script hands its arguments on to what trains, so that words can be appended."""
    return path.suffix == ".py" or bool(_PASSES_ON.search(text))


def loads_modules(text: str) -> bool:
    """Whether a script calls ``module``, a function that only login shells have."""
    return bool(_LOADS_MODULES.search(text))


def run_name(stem: str) -> str:
    """A run's name out of a file's or a job's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:48]
    return name or "script"
