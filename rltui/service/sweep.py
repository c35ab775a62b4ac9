"""Sweeps: several values of a setting become several runs, all of them checked before the first is submitted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from rltui.check.run import Report, check_file
from rltui.cluster.profile import Profile
from rltui.errors import RltuiError, UsageError, tried
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.runs.script_job import is_script
from rltui.service.context import Context
from rltui.service.launch import RefusedError, advised, launch, launchable
from rltui.service.scripts import Prepared, launch_script, prepare, run_name
from rltui.service.submit import Launched
from rltui.service.sweep_points import AT_ONCE, Point, Sweep, points_of
from rltui.service.wishes import Wishes, read_wishes

LONGEST_NAME = 48

Launch: TypeAlias = Callable[..., Launched]
"""Launches one run of a sweep, given as ``after_job`` the id of the job that it is to wait for."""


class SweptScript(Struct, frozen=True):
    """A script as one run of its sweep: what it would run, and why its settings would not reach it."""

    prepared: Prepared
    problem: str


def swept_layouts(
    source: str, overrides: Sequence[str], points: Sequence[Point], profile: Profile | None
) -> list[tuple[tuple[str, ...], Report]]:
    """All overrides of each run of a layout's sweep, with its name, and what a check says of it.

    Args:
        source: A preset's name or a file.
        overrides: What all of them have.
        points: The sweep.
        profile: Of the cluster, for what it says against them, which is not asked; None: it is not heeded.
    """
    made = []
    for point in points:
        words = (*overrides, *point.settings)
        if name := _layout_name(source, words):
            words = (*words, f"name={_name(name, point)}")
        report = launchable(check_file(resolve(source), words))
        made.append((words, report if profile is None else advised(report, profile)))
    return made


def swept_scripts(source: str, wishes: Wishes, points: Sequence[Point], profile: Profile) -> list[SweptScript]:
    """The same for a script: settings of its job (``slurm.…``) change that, all others are its words.

    Raises:
        RltuiError: It cannot be read, or nobody says how many GPUs it takes.
    """
    made = []
    for point in points:
        job = tuple(word for word in point.settings if word.startswith(("slurm.", "hardware.")))
        words = tuple(word for word in point.settings if word not in job)
        told = structs.replace(wishes, words=(*wishes.words, *words), settings=(*wishes.settings, *job))
        ready = prepare(source, told, profile)
        problem = ""
        if words and not ready.job.passes_words:
            problem = (
                f"{source} does not hand its arguments on, so {words[0]} would not reach the training: "
                'put "$@" at the end of the command that trains.'
            )
        named = structs.replace(ready.job, name=_name(ready.job.name, point))
        made.append(SweptScript(structs.replace(ready, job=named), problem))
    return made


def sweep_layout(
    context: Context, source: str, overrides: Sequence[str], points: Sequence[Point], *, unchecked: bool = False
) -> list[Launch]:
    """The launches of a layout's sweep.

    Raises:
        RltuiError: One of the layouts is not sound; nothing has been submitted.
    """
    swept = swept_layouts(source, overrides, points, None if unchecked else context.cluster.profile)
    for point, (_, report) in zip(points, swept, strict=True):
        if not report.ok:
            raise _refused(point, RefusedError(report))
    sweep = _new_sweep(_layout_name(source, overrides) or run_name(Path(source).stem))
    return [partial(launch, context, source, words, unchecked=unchecked, sweep=sweep) for words, _ in swept]


def sweep_script(
    context: Context, source: str, wishes: Wishes, points: Sequence[Point], *, unchecked: bool = False
) -> list[Launch]:
    """The same for a script.

    Raises:
        RltuiError: One of them cannot work as asked; nothing has been submitted.
    """
    swept = swept_scripts(source, wishes, points, context.cluster.profile)
    for point, one in zip(points, swept, strict=True):
        if one.problem:
            raise _refused(point, UsageError(one.problem))
        if one.prepared.problems and not wishes.anyway:
            raise _refused(point, RltuiError(f"Not launched: {one.prepared.problems[0]}"))
    sweep = _new_sweep(run_name(wishes.name or Path(source).stem))
    submit = partial(launch_script, context, anyway=wishes.anyway, unchecked=unchecked, sweep=sweep)
    return [partial(submit, one.prepared) for one in swept]


def require_limit(profile: Profile, at_once: int) -> None:
    """Refuse a limit on how many runs may run at once where jobs cannot wait for one another.

    Raises:
        UsageError: They cannot.
    """
    if at_once and profile.scheduler != "slurm":
        hint = "Leave it out: runs wait for free GPUs by themselves."
        raise UsageError(f"{profile.name} has no Slurm, whose jobs can wait for one another ({AT_ONCE}).", hint)


def planned(
    context: Context,
    source: str,
    overrides: Sequence[str],
    wishes: Wishes | None,
    sweep: Sweep,
    *,
    unchecked: bool = False,
) -> list[Launch]:
    """The launches of a sweep, all of them checked: of a layout with ``overrides``, or of a script with ``wishes``.

    Raises:
        RltuiError: One of them cannot work, or they cannot wait for one another; nothing has been submitted.
    """
    require_limit(context.cluster.profile, sweep.at_once)
    points = points_of(sweep.words)
    if wishes is None:
        return sweep_layout(context, source, overrides, points, unchecked=unchecked)
    return sweep_script(context, source, wishes, points, unchecked=unchecked)


def launch_sweep(context: Context, source: str, overrides: Sequence[str], sweep: Sweep) -> list[Launched]:
    """Launch all runs of a sweep of a layout, or of a script with what stands behind it in ``launch --script``.

    Raises:
        RltuiError: As for what it calls.
    """
    wishes = read_wishes(overrides) if is_script(source) else None
    return submit_sweep(planned(context, source, overrides, wishes, sweep), sweep.at_once, lambda _: None)


def submit_sweep(launches: Sequence[Launch], at_once: int, tell: Callable[[Launched], None]) -> list[Launched]:
    """Submit the runs of a sweep in order.

    Args:
        launches: One a run.
        at_once: How many may run at the same time; 0: as many as the cluster lets. Each of the others waits in the
            queue for the end, however it is, of the one that is so many before it.
        tell: Is told of each.

    Raises:
        RltuiError: One was refused; the text says how many stay.
    """
    made: list[Launched] = []
    for submit in launches:
        after = made[-at_once].job_id if at_once and len(made) >= at_once else ""
        try:
            made.append(submit(after_job=after))
        except RltuiError as error:
            if made:
                error.message += f" {len(made)} of {len(launches)} runs were submitted before, and stay."
            raise
        tell(made[-1])
    return made


def _new_sweep(name: str) -> str:
    """What the runs of a sweep have in common; nobody types it, and nothing else would tell two of one name apart."""
    return f"{name}-{secrets.token_hex(8)}"


def _layout_name(source: str, overrides: Sequence[str]) -> str:
    """The layout's own name; empty where it cannot be read, which its check says."""
    loaded, _ = tried(lambda: load_layout(resolve(source), overrides))
    return loaded.layout.name if loaded is not None else ""


def _name(name: str, point: Point) -> str:
    """A run's name with what tells it apart, which a long name gives way to."""
    suffix = run_name(point.suffix)[: LONGEST_NAME - 2].rstrip("-._")
    return f"{name[: LONGEST_NAME - 1 - len(suffix)].rstrip('-._')}-{suffix}"


def _refused(point: Point, error: RltuiError) -> RltuiError:
    error.message = f"{' '.join(point.settings)}: {error.message}"
    return error
