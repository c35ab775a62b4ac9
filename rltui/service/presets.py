"""The list of presets."""

from __future__ import annotations

from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files
from rltui.service.cockpit import PresetSummary


def preset_summaries() -> tuple[PresetSummary, ...]:
    """Every shipped preset, sorted by name.

    Raises:
        LayoutError: A shipped preset cannot be loaded (a broken installation).
    """
    summaries = []
    for name, path in preset_files():
        layout = load_layout(path).layout
        summaries.append(
            PresetSummary(
                name=name,
                summary=layout.summary,
                algorithm=layout.algorithm,
                nodes=layout.hardware.nodes,
                gpus_per_node=layout.hardware.gpus_per_node,
                gpu=layout.hardware.gpu,
            )
        )
    return tuple(summaries)
