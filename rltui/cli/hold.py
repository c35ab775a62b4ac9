"""``rltui hold``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.job_change import add_change, change
from rltui.service.job_changes import hold

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_change(parser)


def run(options: argparse.Namespace) -> int:
    """Keep a pending Slurm job from starting."""
    return change(options, hold)
