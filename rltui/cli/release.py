"""``rltui release``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.job_change import add_change, change
from rltui.service.job_changes import release

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_change(parser)


def run(options: argparse.Namespace) -> int:
    """Let a held Slurm job start."""
    return change(options, release)
