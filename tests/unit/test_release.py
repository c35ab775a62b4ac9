"""What is published: wheel and sdist are built, installed into an empty environment, and work from an empty folder."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tarfile
import termios
import time
from pathlib import Path

import pytest

from waiting import DEADLINE_S

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
    (wheel,) = (installed.parents[1] / "dist").glob("*.whl")
    assert run(installed / "rltui", "--version", cwd=tmp_path) == f"rltui {wheel.name.split('-')[1]}\n"


def read_until(terminal: int, words: bytes) -> None:
    """Wait until the program at the other end of ``terminal`` has written ``words``; none: until it has ended."""
    written = b""
    deadline = time.monotonic() + DEADLINE_S
    while not words or words not in written:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], written[-2000:]
        try:
            more = os.read(terminal, 65536)
        except OSError:  # Linux says so of a terminal that nobody has open any more
            more = b""
        written += more
        if not more:
            assert not words, written[-2000:]
            return


def test_the_cockpit_opens_on_the_first_start_and_is_left_by_a_key(installed: Path, tmp_path: Path) -> None:
    terminal, other_end = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RLTUI_", "XDG_", "PYTHON"))
    }
    environment |= {"HOME": str(tmp_path), "TERM": "xterm-256color"}
    command = [installed / "rltui"]
    program = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
    )
    os.close(other_end)
    try:
        read_until(terminal, b"no runs yet")
        os.write(terminal, b"q")
        read_until(terminal, b"")
        assert program.wait(DEADLINE_S) == 0
    finally:
        program.kill()
        program.wait()
        os.close(terminal)


def test_the_sdist_holds_what_a_packager_needs(installed: Path) -> None:
    (path,) = (installed.parents[1] / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "rltui/py.typed", "tests/conftest.py"} <= names
