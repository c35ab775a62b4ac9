"""The list of presets."""

from __future__ import annotations

from pathlib import Path

from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files
from rltui.service.launch_review import PresetSummary, opened_file


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
                nodes=layout.hardware.all_nodes,
                gpus_per_node=layout.hardware.mean_gpus_per_node,
                gpu=layout.hardware.gpu,
            )
        )
    return tuple(summaries)


SHELL_ENDINGS = (".sh", ".bash", ".sbatch", ".slurm")
MOST_SCRIPTS = 100


def scripts_here() -> tuple[PresetSummary, ...]:
    """Shell scripts of the folder that rltui was started in; what lies elsewhere is opened by its path."""
    try:
        names = sorted(path.name for path in Path().iterdir() if path.suffix in SHELL_ENDINGS and path.is_file())
    except OSError:
        return ()
    return tuple(opened_file(name) for name in names if name.isprintable())[:MOST_SCRIPTS]
