"""The table of verbs; only the module of the verb that is run is imported."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Protocol

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
    Verb("logs", "logs", "print or follow the log of a run"),
    Verb("why", "why", "say why a run died, or what went wrong in any log"),
    Verb("attach", "attach", "open the cockpit on one run"),
    Verb("cancel", "cancel", "end a run"),
    Verb("resubmit", "resubmit", "start a run again from its newest checkpoint"),
    Verb("check", "check", "say what cannot work in a layout (also: rltui --check FILE…)"),
    Verb("draw", "draw", "draw who sits on which GPU"),
    Verb("mem", "mem", "estimate what each role takes of its GPUs, moment by moment"),
    Verb("plan", "plan", "propose the best layouts for a model and GPUs"),
    Verb("layouts", "layouts", "list the presets"),
    Verb("diff", "diff", "say in which keys two layouts differ"),
    Verb("import", "import_", "read another system's launch script into a layout, without running it"),
    Verb("explain", "explain", "tell the story behind a finding's code"),
    Verb("schema", "schema", "print the JSON Schema of layouts, for editors"),
    Verb("demo", "demo", "watch a tiny model learn on this machine"),
    Verb("info", "info", "where rltui keeps its things and what is installed"),
    Verb("completion", "completion", "print shell completion for bash, zsh or tcsh"),
)

BY_NAME = {verb.name: verb for verb in VERBS}

EXIT_CODES = """\
exit codes: 0 fine; 1 findings at error level, or the run failed; 2 usage or unreadable input;
            3 cluster unreachable or outcome unknown; 130 interrupted
"""


def load(verb: Verb) -> VerbModule:
    """Import the module of ``verb``."""
    return importlib.import_module(f"rltui.cli.{verb.module}")


def parser_for(verb: Verb, module: VerbModule) -> argparse.ArgumentParser:
    """The parser of one verb."""
    parser = argparse.ArgumentParser(
        prog=f"rltui {verb.name}",
        description=f"{verb.help[0].upper()}{verb.help[1:]}.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def run_verb(verb: Verb, words: Sequence[str]) -> int:
    """Parse ``words`` and run the verb."""
    module = load(verb)
    return module.run(parser_for(verb, module).parse_intermixed_args(list(words)))
