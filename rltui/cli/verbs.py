"""Parsing and running a verb of the table; only the module of the verb that is run is imported."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Protocol

from rltui.errors import RltuiError, UsageError
from rltui.service.verb_table import VERBS, Verb

if TYPE_CHECKING:
    from rltui.plugins import Plugin


class VerbModule(Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's own arguments; the run and ``--cluster`` may be among them."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


BY_NAME = {verb.name: verb for verb in VERBS}

EXIT_CODES = """\
exit codes: 0 fine; 1 findings at error level, or the run failed; 2 usage or unreadable input;
            3 cluster unreachable or outcome unknown; 130 interrupted
"""


class Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, which is asked for directly: argparse would import shutil for it at every start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one cause and one next step, as all others are, and JSON where that is asked for."""

    def error(self, message: str) -> NoReturn:
        """Raise ``UsageError``: what is missing, or which option was probably meant, rather than the whole usage."""
        help_of = f"`{self.prog} --help` tells more."
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            first = missing.split(", ")[0]
            runs = "`rltui ps` lists runs; " if first == "RUN" else ""
            raise UsageError(f"`{self.prog}` needs {first}.", f"{runs}{help_of}")
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            near = nearest(unknown.partition(" ")[0], self._option_string_actions, 0.75)
            meant = f"Did you mean {near}? " if near else ""
            said = unknown[:100] if unknown.strip() else "an empty word"
            raise UsageError(f"`{self.prog}` does not take {said}.", meant + help_of)
        raise UsageError(f"{self.prog}: {message}.", help_of)


def nearest(word: str, words: Iterable[str], least: float) -> str:
    """The one of ``words`` that is most like ``word``; empty where none is so by ``least``, 1 being the same."""
    import difflib

    return next(iter(difflib.get_close_matches(word, words, n=1, cutoff=least)), "")


def wants_json(words: Sequence[str]) -> bool:
    """Whether the words of a command ask for JSON, before anything has parsed them."""
    return "--json" in words or "--format=json" in words or "--format json" in " ".join(words)


def _columns() -> int:
    words = os.environ.get("COLUMNS", "")
    if words.isdigit() and int(words) > 20:
        return int(words)
    try:
        return max(20, os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns)
    except (OSError, ValueError):
        return 80


def load(verb: Verb) -> VerbModule:
    """Import the module of ``verb``."""
    with importing():
        return importlib.import_module(f"rltui.cli.{verb.module or verb.name.replace('-', '_')}")


@contextmanager
def importing() -> Iterator[None]:
    """Nothing that is imported is garbage, so the collector rests meanwhile, and never looks at it again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def parser_for(verb: Verb, module: VerbModule) -> Parser:
    """The parser of one verb."""
    parser = Parser(
        prog=f"rltui {verb.name}",
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        epilog=EXIT_CODES,
        formatter_class=Help,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.set_defaults(verb=verb.name)
    return parser


def run_verb(verb: Verb, words: Sequence[str]) -> int:
    """Parse ``words`` and run the verb."""
    module = load(verb)
    parser = parser_for(verb, module)
    options = parser.parse_intermixed_args(list(words))
    if getattr(options, "watch", None) is not None:
        from rltui.cli.watch import watch

        return watch(f"rltui {verb.name} {' '.join(words)}", options, module.run)
    return module.run(options)


def run_plugin(plugin: Plugin, words: Sequence[str]) -> int:
    """Parse ``words`` and run the verb of a plug-in; what it raises is said to be its own.

    Raises:
        PluginError: It failed.
        RltuiError: What it said itself.
    """
    module: VerbModule = plugin.load()
    about = (module.__doc__ or plugin.title).strip().splitlines()[0].rstrip(".")
    try:
        parser = parser_for(Verb(plugin.name, about), module)
        return module.run(parser.parse_intermixed_args(list(words)))
    except RltuiError:
        raise
    except Exception as error:
        raise plugin.failed(error) from error
