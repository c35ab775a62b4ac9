"""What is published: wheel and sdist are built, installed into an empty environment, and work from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*argv: str | Path, cwd: Path, expect: int = 0) -> str:
    """Run a command without this checkout in sight; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == expect, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment's programs, into which the sdist's wheel was installed with what it depends on."""
    folder = tmp_path_factory.mktemp("release")
    pip = (sys.executable, "-m", "pip")
    run(*pip, "install", "-q", "--target", folder / "build", "build", cwd=folder)
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from build.__main__ import main; main(sys.argv[1:])"
    run(sys.executable, "-c", start, folder / "build", ROOT, "--outdir", folder / "dist", cwd=folder)
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "-q", wheel, cwd=folder)
    return programs


def test_the_command_works_from_an_empty_folder(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "4")
    run(installed / "rltui", "--check", "local/grpo-tiny", cwd=tmp_path)
    run(installed / "rltui", "--check", "local/grpo-tiny", "train.steps=0", cwd=tmp_path, expect=1)
    (tmp_path / "run.sh").write_text("#!/bin/bash\npython3 -m verl.trainer.main_ppo trainer.n_gpus_per_node=4\n")
    told = run(installed / "rltui", "launch", "run.sh", "--dry-run", "--json", cwd=tmp_path)
    assert json.loads(told)["script"]["dialect"]["name"] == "verl"
    where = run(installed / "python", "-c", "import rltui.tui.app as app; print(app.__file__)", cwd=tmp_path)
    assert str(installed.parent) in where


def test_the_sdist_holds_what_a_packager_needs(installed: Path) -> None:
    (path,) = (installed.parents[1] / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "rltui/py.typed", "tests/conftest.py"} <= names
