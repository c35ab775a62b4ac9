"""``import_file``: whose launch script is this, and what does it ask for?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.importers import (
    areal,
    axolotl,
    configured,
    easyr1,
    llama_factory,
    nemo_rl,
    oat,
    open_instruct,
    openrlhf,
    prime_rl,
    rlinf,
    roll,
    skyrl,
    slime,
    swift,
    trinity,
    trl,
    trl_arguments,
    trl_python,
    verl,
)
from rltui.importers.arguments import from_mapping
from rltui.importers.config import interpolated, read_toml, read_yaml, toml_chain, with_defaults, with_hydra_defaults
from rltui.importers.facts import NO_FRAMEWORK, Facts
from rltui.importers.layout_of import Unmappable, layout_of
from rltui.importers.overrides import given, read_overrides
from rltui.importers.python_launcher import from_python
from rltui.importers.script import Script, bad_environments, launched, read_script, servers, strays, visible_gpus
from rltui.importers.source import read_source
from rltui.importers.tasks import Task, task_of
from rltui.importers.values import is_known, printable, product, total

# the generic launchers come last: they start the programs of the others too
SHELL_DIALECTS = (
    open_instruct, easyr1, verl, openrlhf, slime, skyrl, swift, llama_factory, oat, axolotl, configured, trl,
)  # fmt: skip
COUNT_SERVERS = frozenset({slime.NAME, swift.NAME, trl.NAME})
NUMBERS = ("trainer_gpus", "rollout_gpus", "rollout_tp", "rollout_engines", "declared_gpus")
MAX_NOTES = 400
MAX_PROGRAMS = 3


class Imported(Struct, frozen=True, kw_only=True):
    """A launch script as rltui reads it; None stands for not known.

    Attributes:
        dialect: Whose script it is.
        layout: A layout as plain values; None where none can be made.
        needed_gpus: GPUs that all roles take together.
        declared_gpus: GPUs that the script asks a scheduler or Ray for.
        trainer_gpus: GPUs that train the policy.
        rollout_gpus: GPUs of the engines; 0 where they ride on the trainer's, or there are none.
        rollout_tp: GPUs of one engine.
        rollout_engines: Number of engines.
        unmapped: What could not be mapped, is not known, or was assumed; one line each.
    """

    dialect: str
    layout: dict[str, Any] | None
    needed_gpus: int | None
    declared_gpus: int | None
    trainer_gpus: int | None
    rollout_gpus: int | None
    rollout_tp: int | None
    rollout_engines: int | None
    unmapped: tuple[str, ...]


def import_file(path: str | Path, overrides: Sequence[str] = (), text: str | None = None) -> Imported:
    """Read the launch script or configuration at ``path``; nothing in it is run, sourced or fetched.

    Args:
        path: The file.
        overrides: What the script leaves open, or is to be taken otherwise: ``hardware.gpus_per_node=8`` of the layout,
            ``NNODES=4`` of the script's environment. They count before the layout is judged complete.
        text: What it says, where it was read already.

    Raises:
        UsageError: Not readable, no training system that is known, or an override that is neither.
    """
    path = Path(path)
    try:
        return import_text(read_source(path) if text is None else text, path, overrides)
    except UsageError as error:
        place = "" if str(path) in error.message else f"{path}: "
        raise UsageError(printable(place + error.message), error.hint) from error


def import_text(text: str, path: Path, overrides: Sequence[str] = ()) -> Imported:
    """Read a launch script given as ``text``; ``path`` says where it stands, for files that it builds on.

    ``overrides`` are as for ``import_file``.

    Raises:
        UsageError: Not readable, or no training system that is known.
    """
    return imported(*read_facts(text, path, overrides), path)


def imported(facts: Facts, notes: Sequence[str], path: Path) -> Imported:
    """The layout and the numbers that follow from what a script says."""
    layout: dict[str, Any] | None = None
    assumed: list[str] = []
    try:
        layout, assumed = layout_of(facts, path.name)
    except Unmappable as reason:
        assumed = [str(reason)]
    return Imported(
        dialect=facts.dialect,
        layout=layout,
        needed_gpus=_sane(facts.needed_gpus) or None,
        declared_gpus=_sane(facts.declared_gpus) or None,
        trainer_gpus=_sane(facts.trainer_gpus) or None,
        rollout_gpus=_sane(facts.rollout_gpus),
        rollout_tp=_sane(facts.rollout_tp),
        rollout_engines=_sane(facts.rollout_engines),
        unmapped=_lines((*assumed, *notes, *facts.notes)),
    )


def _sane(number: int | None) -> int | None:
    """A count of GPUs, or None for what cannot be one."""
    return number if number is not None and 0 <= number <= 1_000_000 else None


def _lines(notes: Sequence[str]) -> tuple[str, ...]:
    """Remarks without repeats, holes written as ``?``, and not without end."""
    unique = list(dict.fromkeys(printable(note[:300]) for note in notes))
    if len(unique) <= MAX_NOTES:
        return tuple(unique)
    return (*unique[:MAX_NOTES], f"and {len(unique) - MAX_NOTES} more")


def read_facts(text: str, path: Path, overrides: Sequence[str] = ()) -> tuple[Facts, tuple[str, ...]]:
    """What a script given as ``text`` says, and remarks on how it was read; ``overrides`` are as for ``import_file``.

    Raises:
        UsageError: Not readable, or no training system that is known.
    """
    beside = read_overrides(overrides)
    facts, notes = _facts(text, path, beside.environ)
    return given(facts, beside.settings), notes


def _facts(text: str, path: Path, environ: Mapping[str, str]) -> tuple[Facts, tuple[str, ...]]:
    ending = path.suffix.lower()
    if ending == ".toml":
        return _from_toml(text, path), ()
    if ending in (".yaml", ".yml"):
        own = read_yaml(text, str(path))
        task = task_of(own)
        return (_from_yaml(own, path), ()) if task is None else _from_task(task, path, environ)
    if ending == ".py":
        found = from_python(text, path) if "execute_train" in text else []
        found = found or (trl_python.from_python(text, path) if trl_arguments.CONFIG in text else [])
        if found:
            return _agreed(found), ()
    if ending in (".py", ".json", ".ipynb", ".md", ".rst"):
        raise UsageError(
            f"{path} is a {ending} file; launch scripts (shell, Slurm) and YAML or TOML configurations are read.",
            "Name the script that starts the training.",
        )
    script = read_script(text, path, environ)
    return _from_script(script), script.reading.notes


def _from_toml(text: str, path: Path) -> Facts:
    values = read_toml(text, str(path))
    values, missing = toml_chain(values, path)
    if not prime_rl.is_config(values) and not missing:
        raise UsageError(f"{path}: no training system that is known writes such TOML.", _KNOWN)
    return prime_rl.from_config(values, missing)


_KNOWN = (
    "Known are open-instruct, verl, EasyR1, slime, miles, OpenRLHF, prime-rl, NeMo-RL, SkyRL, AReaL, ROLL, ms-swift, "
    "LLaMA-Factory, axolotl, oat, RLinf, Trinity-RFT, TRL and plain accelerate. Name the file that starts the training "
    "or its configuration. A job of any other framework runs unchanged (rltui launch --script FILE)."
)


def _from_task(task: Task, path: Path, environ: Mapping[str, str]) -> tuple[Facts, tuple[str, ...]]:
    """What the script of a scheduler's task starts, on the machine that the task asks for."""
    script = read_script(task.run, path, {**task.environ, **environ})
    facts = _from_script(script)
    if product(task.nodes, task.gpus_per_node) is not None:
        gpus = product(task.nodes, task.gpus_per_node)
        facts = replace(facts, nodes=task.nodes, gpus_per_node=task.gpus_per_node, declared_gpus=gpus)
    card = {"hardware.gpu": task.gpu} if task.gpu else {}
    return replace(facts, settings={**card, **facts.settings}), script.reading.notes


def _from_yaml(own: dict[str, Any], path: Path) -> Facts:
    whole, lacking = with_hydra_defaults(own, path)
    if rlinf.is_config(whole):  # before NeMo-RL's, whose recipes have a cluster as well
        return rlinf.from_config(interpolated(whole), lacking)
    if nemo_rl.is_recipe(own) or nemo_rl.builds_on(own, path.name):
        values, missing = with_defaults(own, path)
        return nemo_rl.from_config(interpolated(values), missing, path.name)
    if areal.is_config(own):
        return areal.from_config(interpolated(own))
    for system in (roll, trinity, axolotl):
        if system.is_config(own):
            known: Facts = system.from_config(interpolated(own))
            return known
    if verl.is_config(own):
        return verl.from_config(interpolated(own), read_script("", path, {}))
    if easyr1.is_config(own):
        return easyr1.from_config(interpolated(own))
    for dialect in (swift, open_instruct, llama_factory, trl):
        found: Facts | None = dialect.from_config(own)
        if found is not None:
            return found
    if "num_processes" in own and "distributed_type" in own:
        return _accelerate(own)
    raise UsageError(f"{path}: no training system that is known writes such YAML.", _KNOWN)


def _accelerate(values: dict[str, Any]) -> Facts:
    """An accelerate configuration: processes and machines, and nothing of what they train."""
    source = from_mapping(values)
    processes = source.integer("num_processes")
    nodes = source.integer("num_machines", default=1)
    per_node = processes // nodes if processes and nodes and processes % nodes == 0 else None
    return Facts(
        dialect="accelerate",
        algorithm="",
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=processes,
        trainer_gpus=processes,
        notes=("an accelerate configuration does not say what is trained",),
    )


def _from_script(script: Script) -> Facts:
    """What a script trains; of several jobs that it submits the first that trains."""
    count = len(script.reading.jobs)
    trains = [number for number in range(1, count + 1) if _trains(script.job(number))] if count > 1 else []
    if not trains or _trains(script.job(0)):
        return _of_commands(script)
    facts = _of_commands(script.job(trains[0], beside=trains[1:]))
    note = f"of {len(trains)} jobs that train, the first that is submitted is meant"
    return replace(facts, notes=(note, *facts.notes)) if trains[1:] else facts


def _trains(script: Script) -> bool:
    return bool(script.commands) and any(dialect.from_script(script) for dialect in SHELL_DIALECTS)


def _of_commands(script: Script) -> Facts:
    for dialect in SHELL_DIALECTS:
        found = dialect.from_script(script)
        if found:
            facts = _with_surroundings(_agreed(found), script, dialect.from_script)
            faults = bad_environments(script)
            started = launched(script)
            return replace(_with_card(facts, script), strays=strays(script), bad_environments=faults, launched=started)
    slurm = script.slurm
    if slurm.present:
        note = f"no training that is known is started here{_programs(script)}; only the #SBATCH lines are read"
        return Facts(
            dialect="slurm", algorithm=f"a job {NO_FRAMEWORK}",
            nodes=slurm.nodes, gpus_per_node=slurm.gpus_per_node,
            declared_gpus=slurm.gpus, notes=(note,),
        )  # fmt: skip
    raise UsageError(f"{script.path}: no training that is known is started here{_programs(script)}.", _KNOWN)


def _programs(script: Script) -> str:
    """What a script starts instead, for people to tell whether it is their training."""
    ends = (".py", ".sh", ".slurm", ".sbatch")
    names = (word.rsplit("/", 1)[-1] for command in script.commands for word in command.words if word.endswith(ends))
    found = [*dict.fromkeys(name for name in names if is_known(name))][:MAX_PROGRAMS]
    return f"; it starts {', '.join(found)}" if found else ""


def _with_surroundings(facts: Facts, script: Script, read: Callable[[Script], list[Facts]]) -> Facts:
    """What stands around the first training of a script: the devices that it sees, and servers beside it."""
    limited = any(visible_gpus(command) is not None for command in script.commands)
    served = facts.dialect not in COUNT_SERVERS and bool(servers(script))
    if not limited and not served:
        return facts
    ends = range(1, len(script.commands) + 1)
    first = bisect_left(ends, True, key=lambda end: bool(read(script.until(end))))
    facts = replace(facts, visible_gpus=visible_gpus(script.commands[first]))
    return _with_servers(facts, script, first) if served else facts


def _with_servers(facts: Facts, script: Script, first: int) -> Facts:
    """The GPUs of judges and other servers that run while the training does, where its dialect has no word for them.

    A server that is started after the training, such as one for an evaluation, takes no GPUs beside it; one in another
    branch may be another task's.
    """
    beside = servers(script.until(first + 1))
    if not script.commands[first].sure:
        # tasks of one job that take different branches run at the same time, in whatever order they are written
        beside += [server for server in servers(script)[len(beside) :] if not server.sure]
    if not beside:
        return facts
    note = f"{len(beside)} servers are started beside the training"
    gpus = total(facts.other_gpus, *(server.gpus if server.sure else None for server in beside))
    return replace(facts, other_gpus=gpus, notes=(note, *facts.notes))


def _with_card(facts: Facts, script: Script) -> Facts:
    """Slurm's partition, time and card beside what the training says."""
    settings = {**script.slurm.settings, **facts.settings}
    if script.slurm.gpu:
        settings["hardware.gpu"] = script.slurm.gpu.upper()
    if script.slurm.present and script.slurm.nodes is None:
        # jobs of different sizes, or a size that is not known: what the roles need is no answer to what is asked for
        facts = replace(facts, nodes=None, declared_gpus=None)
    return replace(facts, settings=settings)


def _agreed(found: Sequence[Facts]) -> Facts:
    """One set of facts for a script that starts several trainings: numbers in which they differ are not known."""
    first = found[0]
    differing = {name for name in NUMBERS if any(getattr(facts, name) != getattr(first, name) for facts in found)}
    needs = {facts.needed_gpus for facts in found}
    if not differing and len(needs) == 1:
        return first
    cleared: dict[str, Any] = dict.fromkeys(differing)
    if len(needs) > 1:
        cleared |= {"colocated": None, "together": None}
    note = f"the script starts {len(found)} trainings that differ in {', '.join(sorted(differing)) or 'their GPUs'}"
    return replace(first, **cleared, notes=(note, *first.notes))
