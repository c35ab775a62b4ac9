"""Options of Slurm and of launchers, which these programs refuse; and those that stand on the wrong side of a program.

The tables are those of ``spelling.py``, made of all versions of sbatch, accelerate and DeepSpeed and of torchrun's.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rltui.check.frameworks.spelling import table_of
from rltui.check.rule import Trouble, registering

if TYPE_CHECKING:
    from rltui.check.frameworks.spelling import Table
    from rltui.check.frameworks.terms import Asked
    from rltui.check.rule import Rule

REGISTRY: dict[str, Rule] = {}
_rule = registering(REGISTRY)
_NEAR = 0.85
_SRUN = "srun."
_LAUNCHERS = ("accelerate", "torchrun", "deepspeed")


@_rule("F996", "error")
def refused_option(asked: Asked) -> Iterator[Trouble]:
    """No version of Slurm or of the launcher has this option, but one that is nearly the same.

    They refuse what they do not know, so the job is not submitted, or nothing starts. Slurm's names have dashes, never
    underscores; a few are srun's alone. What is near to nothing may be a plugin's of the site.
    """
    for program, names in asked.facts.launched:
        table = table_of(program)
        for name in names:
            if meant := _meant(table, name, program):
                yield Trouble(f"{program} has no --{name}{meant}", name)


@_rule("F997", "error")
def before_the_program(asked: Asked) -> Iterator[Trouble]:
    """A setting of the training stands in front of its program, where the launcher reads it and refuses it."""
    training = table_of(asked.facts.framework)
    for program, names in asked.facts.launched:
        launcher = table_of(program)
        for name in names if program in _LAUNCHERS else ():
            plain = name.replace("-", "_")
            if training.knows(plain) and not _takes(launcher, plain) and not _meant(launcher, name, program):
                yield Trouble(f"--{name} stands in front of the program, and {program} does not know it", name)


@_rule("F998", "warning")
def behind_the_program(asked: Asked) -> Iterator[Trouble]:
    """An option of the launcher stands behind the program, which hands it to the training; that does not know it."""
    training = table_of(asked.facts.framework)  # of a program of somebody's own nobody knows what it takes
    if not training.sections:
        return
    for program in dict.fromkeys(program for program, _ in asked.facts.launched if program in _LAUNCHERS):
        launcher = table_of(program)
        for name in asked.settings.values:
            if launcher.knows(name) and not training.knows(name) and not _takes(training, name):
                yield Trouble(f"{name} stands behind the program, and only {program} knows it", name)


def _takes(table: Table, name: str) -> bool:
    """Whether a name, or a longer one that begins with it as argparse and getopt allow, is known."""
    return any(one.startswith(name) for one in table.sections.get("", ()))


def _meant(table: Table, name: str, program: str) -> str:
    """What an option that is not known is likely to mean, as the end of a sentence; empty where it is known or far."""
    known = table.sections.get("", frozenset())
    if program == "sbatch":
        if _takes(table, name) or not known:
            return ""
        if f"{_SRUN}{name}" in known:
            return ": it is one of srun"
        dashed = name.replace("_", "-")
        if dashed in known:
            return f"; --{dashed} is one"
    elif _takes(table, name.replace("-", "_")):
        return ""
    for match in get_close_matches(name if program == "sbatch" else name.replace("-", "_"), known, n=1, cutoff=_NEAR):
        if match[0] == name[0]:
            return f"; --{match} is one"
    return ""
