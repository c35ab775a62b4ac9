"""What the user says beside a script: one set of words, in the shell and in the cockpit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

import msgspec
from msgspec import Struct, structs

from rltui.errors import UsageError


class Wishes(Struct, frozen=True, kw_only=True):
    """What the user says beside the script; None and empty: as the script or the cluster has it."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    gpu: str = ""
    name: str = ""
    folder: str = ""
    dialect: str = ""
    on_each_node: bool | None = None
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """``slurm.time=2:00:00`` and the like."""
    anyway: bool = False
    """Launch it also where its roles seem to need more GPUs than it gets."""


KEYS = {"name": "name", "nodes": "hardware.nodes", "gpus_per_node": "hardware.gpus_per_node", "gpu": "hardware.gpu"}
"""Where a layout says what is a wish beside a script."""


def refuse_for_layout(wishes: Wishes) -> None:
    """Refuse wishes beside a layout, which would be of no effect.

    Raises:
        UsageError: There are some.
    """
    for name, value in structs.asdict(wishes).items():
        if value == getattr(Wishes(), name):
            continue
        word = "--on-first-node" if value is False and name == "on_each_node" else f"--{name.replace('_', '-')}"
        instead = f"A layout says it itself: {KEYS[name]}={value}" if name in KEYS else "Leave it out."
        raise UsageError(f"{word} is for scripts.", instead)


def add_wishes(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare the options of a script."""
    group.add_argument("--nodes", type=int, metavar="N", help="nodes; else as its #SBATCH lines say")
    group.add_argument("--gpus-per-node", type=int, metavar="N", help="GPUs of each node; 0: none")
    group.add_argument("--gpu", default="", metavar="NAME", help="the kind of GPU")
    group.add_argument("--name", default="", help="what the run is called; else the script's name")
    group.add_argument(
        "--folder", default="", metavar="DIR", help="where it runs; else here, on another host in your home"
    )
    where = group.add_mutually_exclusive_group()
    each = "on_each_node"
    where.add_argument(
        "--on-each-node", dest=each, action="store_true", default=None, help="start it on every node, as torchrun needs"
    )
    where.add_argument(
        "--on-first-node", dest=each, action="store_false", help="start it on the first; it starts the others itself"
    )
    group.add_argument("--dialect", default="", metavar="NAME", help="whose script it is; else it is recognised")
    group.add_argument("--anyway", action="store_true", help="also where its roles seem to need more GPUs than it gets")


def wishes_of(options: argparse.Namespace, words: Sequence[str]) -> Wishes:
    """The wishes of parsed ``options``; ``words`` are the script's own arguments and ``slurm.key=value`` settings."""
    return with_words(msgspec.convert(options, Wishes, from_attributes=True), words)


def with_words(wishes: Wishes, words: Sequence[str]) -> Wishes:
    """``wishes`` with the script's own arguments and ``slurm.key=value`` settings among ``words``."""
    own = (word for word in words if not word.startswith("slurm."))
    settings = (word for word in words if word.startswith("slurm."))
    return structs.replace(wishes, words=(*wishes.words, *own), settings=(*wishes.settings, *settings))


def read_wishes(words: Sequence[str]) -> Wishes:
    """Read what stands behind ``rltui launch --script FILE``.

    Raises:
        UsageError: It cannot be read.
    """
    here = list(words).index("--") if "--" in words else len(words)
    parser = _Parser(prog="launch", add_help=False, allow_abbrev=False)
    add_wishes(parser)
    options, rest = parser.parse_known_args(list(words[:here]))
    for word in rest:
        if word.startswith("-"):
            raise UsageError(f"{word} is no option of a launch.", "Words of the script itself stand behind --.")
    return wishes_of(options, [*rest, *words[here + 1 :]])


class _Parser(argparse.ArgumentParser):
    """A parser that raises where the shell's would print and end the program."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong as ours; argparse itself would end the process."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}.")
