"""Sweeps: several values of a setting become several runs, all of them checked before the first is submitted."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rltui.check.run import check_file
from rltui.errors import RltuiError, UsageError
from rltui.layout.presets import resolve
from rltui.runs.directory import new_run_id
from rltui.service.launch import RefusedError, advised, launch, launchable
from rltui.service.scripts import launch_script, prepare, run_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rltui.service.context import Context
    from rltui.service.submit import Launched
    from rltui.service.wishes import Wishes

MOST_RUNS = 100
"""A stop for a product that somebody did not think through."""

LONGEST_NAME = 48

_VALUE = re.compile(r"""(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*'|[^,\[{"'])+""")


class Point(Struct, frozen=True):
    """One run of a sweep.

    Attributes:
        settings: What it has of the swept settings, ``key=value``.
        suffix: What tells its name from the others'.
    """

    settings: tuple[str, ...]
    suffix: str


def points_of(swept: Sequence[str]) -> list[Point]:
    """All combinations of ``key=value,value,…`` words; the last word's values change fastest.

    Raises:
        UsageError: A word is none, names one value twice, or there are too many combinations.
    """
    axes = [_axis(word) for word in swept]
    keys = [key for key, _ in axes]
    if len(set(keys)) < len(keys):
        raise UsageError("A key stands twice in the sweep.", "Give all its values behind one --sweep.")
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST_RUNS:
        raise UsageError(f"The sweep would be {count} runs; {MOST_RUNS} is the most.", "Sweep fewer values at once.")
    return [_point(keys, values) for values in itertools.product(*(values for _, values in axes))]


def _axis(word: str) -> tuple[str, list[str]]:
    key, equals, text = word.partition("=")
    values = [value.strip() for value in _VALUE.findall(text)]
    if not equals or not key or len(values) < 2 or "" in values:
        raise UsageError(f"{word!r} is no sweep.", "Write --sweep key=value,value (as many as you like).")
    if len(set(values)) < len(values):
        raise UsageError(f"{key} has a value twice.", "Change train.seed where a setting is to be run more than once.")
    return key, values


def _point(keys: Sequence[str], values: Sequence[str]) -> Point:
    told = [f"{re.split(r'[./-]', key)[-1]}-{value}" for key, value in zip(keys, values, strict=True)]
    settings = tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
    return Point(settings, run_name("-".join(told)))


def sweep_layout(
    context: Context, source: str, overrides: Sequence[str], points: Sequence[Point], *, unchecked: bool = False
) -> list[Callable[[str], Launched]]:
    """The launches of a layout's sweep, each given the id of the job that it is to wait for.

    Raises:
        RltuiError: One of the layouts is not sound; nothing has been submitted.
    """
    made, sweep = [], ""
    for point in points:
        words = [*overrides, *point.settings]
        report = check_file(resolve(source), words)
        if report.loaded is not None:
            sweep = sweep or new_run_id(report.loaded.layout.name)
            words.append(f"name={_name(report.loaded.layout.name, point)}")
            report = launchable(check_file(resolve(source), words))
        if not unchecked:
            report = advised(report, context.cluster.profile)
        if not report.ok:
            raise _refused(point, RefusedError(report))
        made.append(_launches(partial(launch, context, source, words, unchecked=unchecked, sweep=sweep)))
    return made


def sweep_script(
    context: Context, source: str, wishes: Wishes, points: Sequence[Point], *, unchecked: bool = False
) -> list[Callable[[str], Launched]]:
    """The same for a script: settings of its job (``slurm.…``) change that, all others are its words.

    Raises:
        RltuiError: One of them cannot work as asked; nothing has been submitted.
    """
    made, sweep = [], ""
    for point in points:
        job = tuple(word for word in point.settings if word.startswith(("slurm.", "hardware.")))
        words = tuple(word for word in point.settings if word not in job)
        told = structs.replace(wishes, words=(*wishes.words, *words), settings=(*wishes.settings, *job))
        ready = prepare(source, told, context.cluster.profile)
        if words and not ready.job.passes_words:
            raise UsageError(
                f"{source} does not hand its arguments on, so {words[0]} would not reach the training.",
                'Put "$@" at the end of the command that trains.',
            )
        if ready.problems and not wishes.anyway:
            raise _refused(point, RltuiError(f"Not launched: {ready.problems[0]}"))
        sweep = sweep or new_run_id(ready.job.name)
        ready = structs.replace(ready, job=structs.replace(ready.job, name=_name(ready.job.name, point)))
        one = partial(launch_script, context, ready, anyway=wishes.anyway, unchecked=unchecked, sweep=sweep)
        made.append(_launches(one))
    return made


def submit_sweep(
    launches: Sequence[Callable[[str], Launched]], at_once: int, tell: Callable[[Launched], None]
) -> list[Launched]:
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
            made.append(submit(after))
        except RltuiError as error:
            if made:
                error.message += f" {len(made)} of {len(launches)} runs were submitted before, and stay."
            raise
        tell(made[-1])
    return made


def _launches(one: Callable[..., Launched]) -> Callable[[str], Launched]:
    return lambda after_job: one(after_job=after_job)


def _name(name: str, point: Point) -> str:
    """A run's name with what tells it apart, which a long name gives way to."""
    suffix = point.suffix[: LONGEST_NAME - 2].rstrip("-._")
    return f"{name[: LONGEST_NAME - 1 - len(suffix)].rstrip('-._')}-{suffix}"


def _refused(point: Point, error: RltuiError) -> RltuiError:
    error.message = f"{' '.join(point.settings)}: {error.message}"
    return error
