"""``rltui layouts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import add_json, columns, print_json, print_lines
from rltui.service.presets import preset_summaries

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the presets."""
    presets = preset_summaries()
    if options.json:
        print_json({"schema": 1, "layouts": presets})
        return 0
    rows = [
        (preset.name, preset.algorithm.upper(), f"{preset.nodes}×{preset.gpus_per_node}", preset.gpu, preset.summary)
        for preset in presets
    ]
    print_lines(columns(("NAME", "ALGO", "N×G", "GPU", "SUMMARY"), rows))
    return 0
