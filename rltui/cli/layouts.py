"""``rltui layouts``: list the presets."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby

from rltui.cli.output import add_json, answer, columns
from rltui.service.launch_review import PresetSummary
from rltui.service.presets import preset_summaries

GROUPS = {
    "local": "on this machine",
    "open-instruct": "GRPO with open-instruct's placement",
    "open-instruct-32b": "GRPO for 32B",
    "v100-code": "GRPO for code on two V100",
    "verl-ppo": "PPO, standard and split placement",
    "opd": "on-policy distillation",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """List the presets, by group."""
    presets = preset_summaries()
    answer(options, {"layouts": presets}, _grouped(presets))
    return 0


def _grouped(presets: Sequence[PresetSummary]) -> Iterator[str]:
    rows = [
        (preset.name, preset.algorithm.upper(), f"{preset.nodes}×{preset.gpus_per_node}", preset.gpu, preset.summary)
        for preset in presets
    ]
    header, *lines = columns(("NAME", "ALGO", "N×G", "GPU", "SUMMARY"), rows)
    yield header
    for group, members in groupby(zip(rows, lines, strict=True), key=lambda item: item[0][0].partition("/")[0]):
        yield ""
        yield f"{group}: {GROUPS[group]}" if group in GROUPS else group
        yield from (line for _, line in members)
