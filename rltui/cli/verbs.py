"""The table of verbs; only the module of the verb that is run is imported."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class VerbModule(Protocol):
    """What a verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class Verb(Struct, frozen=True):
    """One verb: its name, the module that does it, and a line of help."""

    name: str
    module: str
    help: str


VERBS = (
    Verb("launch", "launch", "check a layout and start a run of it"),
    Verb("ps", "ps", "list runs"),
    Verb("show", "show", "everything about one run"),
    Verb("gpus", "gpus", "every GPU of a run with its role and process"),
    Verb("actors", "actors", "Ray's actors of a run: state, node, restarts, why they died"),
    Verb("queues", "queues", "queues of a run's trainer and of its scheduler"),
    Verb("metrics", "metrics", "the metrics of a run"),
    Verb("events", "events", "what happened to a run, and when"),
    Verb("history", "history", "where a run's time went: attempts, queues, goodput, what each loss cost"),
    Verb("logs", "logs", "print or follow the log of a run"),
    Verb("why", "why", "say why a run died, or what went wrong in any log"),
    Verb("bundle", "bundle", "all that is known of a run as one file to attach to a bug report, without secrets"),
    Verb("fix", "fix", "mend what ended or holds up a run, and start it again from its newest checkpoint"),
    Verb("auto", "auto", "let a run go on by itself after faults that a new attempt mends"),
    Verb("export", "export", "write a run's checkpoint as a Hugging Face folder"),
    Verb("attach", "attach", "open the cockpit on one run"),
    Verb("adopt", "adopt", "make a run of a job or process that rltui did not start"),
    Verb("release-run", "release_run", "forget an adopted run; its job goes on"),
    Verb("cancel", "cancel", "end a run"),
    Verb("resubmit", "resubmit", "start a run again from its newest checkpoint"),
    Verb("requeue", "requeue", "queue a running Slurm job again under the same id"),
    Verb("hold", "hold", "keep a pending Slurm job from starting"),
    Verb("release", "release", "let a held Slurm job start"),
    Verb("update", "update", "change the time limit or excluded nodes of a waiting Slurm job"),
    Verb("check", "check", "say what cannot work in a layout (also: rltui --check FILE…)"),
    Verb("draw", "draw", "draw who sits on which GPU"),
    Verb("mem", "mem", "estimate what each role takes of its GPUs, moment by moment"),
    Verb("plan", "plan", "propose the best layouts for a model and GPUs"),
    Verb("nodes", "nodes", "partitions and nodes of a Slurm cluster, and which GPUs are free"),
    Verb("render", "render", "print the Slurm job script that a launch would submit"),
    Verb("layouts", "layouts", "list the presets"),
    Verb("diff", "diff", "say in which keys two layouts differ"),
    Verb("import", "import_", "read another system's launch script into a layout, without running it"),
    Verb("explain", "explain", "tell the story behind a finding's code"),
    Verb("schema", "schema", "print the JSON Schema of layouts, for editors"),
    Verb("clusters", "clusters", "list the clusters, and say where each of their settings comes from"),
    Verb("setup", "setup", "describe a cluster to rltui, which finds most of it out by itself"),
    Verb("notify", "notify", "say who is told of a cluster's runs and how, or try it"),
    Verb("doctor", "doctor", "test every link to a cluster, and measure it"),
    Verb("demo", "demo", "watch a tiny model learn on this machine"),
    Verb("info", "info", "where rltui keeps its things and what is installed"),
    Verb("completion", "completion", "print shell completion for bash, zsh or tcsh"),
)

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
    """A parser whose errors are JSON where JSON is asked for, as all others are."""

    words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """End with the cause and the usage, exit code 2."""
        if wants_json(self.words):
            from rltui.errors import UsageError

            raise UsageError(f"{self.prog}: {message}", f"`{self.prog} --help` tells more.")
        super().error(message)


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
    """Import the module of ``verb``; nothing that it imports is garbage, so the collector rests meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(f"rltui.cli.{verb.module}")
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
    return parser


def run_verb(verb: Verb, words: Sequence[str]) -> int:
    """Parse ``words`` and run the verb."""
    module = load(verb)
    parser = parser_for(verb, module)
    parser.words = words
    return module.run(parser.parse_intermixed_args(list(words)))
