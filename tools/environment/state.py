"""What is in .venv: the record that a set-up leaves there, and whether it can be believed."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RECORD = ".rltui-setup.json"
SCHEMA = 1


@dataclass
class State:
    """The record in .venv.

    Attributes:
        path: Where .venv was made; its scripts hold this path, so a moved one is broken.
        python: Full version of its Python.
        variant: ``cpu`` or ``gpu``: which builds of torch and vLLM are in it.
        complete: False from before the first package is touched until all are in place.
        packages: Number of installed packages at the end of the set-up.
        profiles: Fingerprint by profile.
    """

    path: str
    python: str
    variant: str
    complete: bool = False
    packages: int = 0
    profiles: dict[str, str] = field(default_factory=dict)


def read(venv: Path) -> State | None:
    """Return the record of ``venv``, or None where there is none or it is not one of ours."""
    try:
        record = json.loads((venv / RECORD).read_text())
        if record.pop("schema") != SCHEMA:
            return None
        return State(**record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write(venv: Path, state: State) -> None:
    """Replace the record of ``venv`` in one step."""
    temporary = venv / (RECORD + ".new")
    temporary.write_text(json.dumps({"schema": SCHEMA, **asdict(state)}, indent=1) + "\n")
    temporary.replace(venv / RECORD)


def python_version(venv: Path) -> str | None:
    """Return the version of the Python in ``venv`` by running it, or None if it does not run."""
    command = [str(venv / "bin" / "python"), "-I", "-S", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def count_packages(venv: Path) -> int:
    """Return how many packages are installed in ``venv``."""
    return sum(
        entry.name.endswith(".dist-info")
        for folder in (venv / "lib").glob("python3.*/site-packages")
        for entry in os.scandir(folder)
    )


def sound(venv: Path) -> bool:
    """Tell whether every installed package has all its files, in full; an interrupted uv may leave parts."""
    folders = [folder for site in (venv / "lib").glob("python3.*/site-packages") for folder in site.glob("*.dist-info")]
    return bool(folders) and all(_has_its_files(folder) for folder in folders)


def _has_its_files(distribution: Path) -> bool:
    """Compare the folder of one package with its RECORD (path, hash, size); bytecode may come and go."""
    try:
        with (distribution / "RECORD").open(newline="") as stream:
            for name, _, size in csv.reader(stream):
                if not name.endswith((".pyc", "RECORD")):
                    found = (distribution.parent / name).stat().st_size
                    if size and found != int(size):
                        return False
    except (OSError, ValueError):
        return False
    return True


def other_owner(venv: Path, state: State | None) -> str | None:
    """Return where another checkout has ``venv`` in use, or None; this one's .venv is then a link to that one's."""
    if state is None or state.path == str(venv):
        return None
    try:
        return state.path if venv.samefile(state.path) else None
    except OSError:  # moved away from there
        return None


def damage(venv: Path, state: State | None, wanted_python: str | None) -> str | None:
    """Say why ``venv`` has to be made anew, or return None if it can be used or updated.

    Args:
        venv: The folder, which may not exist.
        state: Its record.
        wanted_python: ``3.11`` where the user asked for a version, else None.
    """
    if not venv.exists():
        return "there is none"
    if state is not None and not state.complete and not (state.profiles and sound(venv)):
        return "its last set-up was interrupted"
    if state is not None and state.path != str(venv):
        return f"it was made as {state.path}"
    if state is None and not any((venv / "bin" / name).exists() for name in ("pip", "uv")):
        return "it has neither pip nor uv"
    version = python_version(venv)
    if version is None:
        return "its Python does not run"
    if state is not None and version.rpartition(".")[0] != state.python.rpartition(".")[0]:
        return f"its Python was {state.python} and is {version}"
    if wanted_python and not version.startswith(wanted_python + "."):
        return f"its Python is {version}"
    if state is not None and count_packages(venv) < state.packages:
        return "packages are missing from it"
    return None
