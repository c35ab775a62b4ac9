"""What an imported script comes to in GPUs, as the tests of importers compare it."""

from __future__ import annotations

from pathlib import Path

from rltui.importers.read import Imported, import_file


def read(folder: Path, text: str, name: str = "run.sh") -> Imported:
    """The script ``text``, imported from a file of that name."""
    (folder / name).write_text(text)
    return import_file(folder / name)


def counts(imported: Imported) -> tuple[int | None, ...]:
    """Needed, declared, trainer, rollout, tensor parallel, engines."""
    return (
        imported.needed_gpus,
        imported.declared_gpus,
        imported.trainer_gpus,
        imported.rollout_gpus,
        imported.rollout_tp,
        imported.rollout_engines,
    )
