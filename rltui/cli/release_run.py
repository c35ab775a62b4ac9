"""``rltui release-run``."""

from __future__ import annotations

import argparse

from rltui.cli.job_change import add_arguments as add_arguments
from rltui.cli.job_change import change
from rltui.service.adopt import release_run


def run(options: argparse.Namespace) -> int:
    """Forget an adopted run; its job goes on."""
    return change(options, release_run)
