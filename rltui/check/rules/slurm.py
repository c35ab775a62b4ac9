"""Rules about the Slurm job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.placement import mem_gib_key, mem_gib_of
from rltui.layout.time_limit import time_limit_s
from rltui.runs.script import instead_of, is_own

_SHORTEST_S = 1800


@rule("S601", "error")
def bad_time(subject: Subject) -> Iterator[Trouble]:
    """The time limit is not one that Slurm understands: HH:MM:SS, MM:SS, minutes, D-HH or D-HH:MM:SS."""
    time = subject.layout.slurm.time
    if time_limit_s(time) is None:
        yield settled_by(f"slurm.time {time!r} is not HH:MM:SS or D-HH:MM:SS", "slurm.time", "24:00:00")


@rule("S602", "warning")
def minutes_not_hours(subject: Subject) -> Iterator[Trouble]:
    """The time limit has two numbers: Slurm reads them as minutes and seconds, not as hours and minutes."""
    time = subject.layout.slurm.time
    if re.fullmatch(r"\d+:\d{2}", time):
        yield settled_by(f"slurm.time {time} is {int(time.split(':')[0])} minutes", "slurm.time", f"{time}:00")


@rule("S603", "warning")
def too_short_to_start(subject: Subject) -> Iterator[Trouble]:
    """The job may end before the engines are up.

    Large models take 10 to 20 minutes to load, compile and capture graphs, and the first step comes after that.
    """
    layout = subject.layout
    seconds = time_limit_s(layout.slurm.time)
    if seconds is not None and seconds < _SHORTEST_S and not layout.hardware.on_cpu:
        yield settled_by(
            f"{layout.slurm.time} is {seconds // 60} minutes; loading alone may take 20", "slurm.time", "01:00:00"
        )


@rule("S604", "warning")
def excluded_twice(subject: Subject) -> Iterator[Trouble]:
    """A node is on the list of excluded nodes more than once."""
    exclude = subject.layout.slurm.exclude
    twice = sorted({node for node in exclude if exclude.count(node) > 1})
    if twice:
        once = ", ".join(dict.fromkeys(exclude))
        yield settled_by(f"{', '.join(twice)} is excluded twice", "slurm.exclude", f"[{once}]")


@rule("S605", "error")
def not_one_word(subject: Subject) -> Iterator[Trouble]:
    """A Slurm name is no single word, or holds a shell variable.

    These values become `#SBATCH` lines, which end at a line break and in which no shell expands `$ACCOUNT`.
    """
    layout = subject.layout
    named = {f"slurm.{key}": getattr(layout.slurm, key) for key in ("partition", "account", "qos")}
    named |= {f"hardware.more.{name}.partition": kind.partition for name, kind in layout.hardware.more.items()}
    for key, value in named.items():
        if re.search(r"[\s$`;|&<>'\"]", value):
            yield Trouble(f"{value!r} is no Slurm name", key)


@rule("S606", "warning")
def longer_than_sites_allow(subject: Subject) -> Iterator[Trouble]:
    """The time limit is longer than a week; few partitions allow that, and maintenance windows block such jobs."""
    seconds = time_limit_s(subject.layout.slurm.time)
    if seconds is not None and seconds > 7 * 86400:
        long = "no limit at all" if math.isinf(seconds) else f"{seconds / 86400:.1f} days"
        yield settled_by(f"{subject.layout.slurm.time} is {long}", "slurm.time", "7-00:00:00")


@rule("S607", "error")
def option_of_the_script(subject: Subject) -> Iterator[Trouble]:
    """A further option of sbatch is one that the job script sets itself; no script is made with it.

    Nodes, GPUs, memory, time, partition and account have keys of their own; what depends on the cluster, such as the
    name of its GPUs in `--gres`, is in its profile.
    """
    options = subject.layout.slurm.options
    own = [option for option in options if is_own(option)]
    if own:
        left = ", ".join(f"'{option}'" for option in options if option not in own)
        yield settled_by(
            f"the job script sets {', '.join(option.partition('=')[0] for option in own)} itself; "
            + "; ".join(dict.fromkeys(map(instead_of, own))),
            "slurm.options",
            f"[{left}]",
        )


@rule("S608", "error")
def more_memory_than_a_node_has(subject: Subject) -> Iterator[Trouble]:
    """The job asks for more memory of each node than the layout says that a node has; Slurm would refuse it."""
    layout = subject.layout
    for number, hardware in enumerate(layout.hardware.parts):
        there, asked = hardware.memory_gib_per_node, mem_gib_of(layout, number)
        if 0 < there < asked:
            key = mem_gib_key(layout, number)
            yield settled_by(f"mem_gib {asked} on nodes of {there:g} GiB", key, 0)
