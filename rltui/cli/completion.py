"""``rltui completion``."""

from __future__ import annotations

import argparse

from rltui.cli.output import print_lines
from rltui.cli.verbs import VERBS, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(options: argparse.Namespace) -> int:
    """Print a completion script: ``source <(rltui completion bash)``."""
    import shtab

    parser = argparse.ArgumentParser(prog="rltui")
    verbs = parser.add_subparsers()
    for verb in VERBS:
        load(verb).add_arguments(verbs.add_parser(verb.name, help=verb.help))
    print_lines([shtab.complete(parser, options.shell)])
    return 0
