"""tools/setup_env.py in a copy of the project, with real processes and faults that need no network."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from watch_support import await_that

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy what the set-up reads into a folder of its own."""
    for name in ("tools", "constraints"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def command(project: Path, profile: str = "base") -> list[str]:
    """Return the words that set ``profile`` up in ``project``."""
    return [sys.executable, str(project / "tools" / "setup_env.py"), profile]


def set_up(project: Path, profile: str = "base", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up and return how it ended."""
    environ = {**os.environ, **variables}
    return subprocess.run(command(project, profile), env=environ, capture_output=True, text=True, timeout=300)


@contextlib.contextmanager
def index_that_never_answers() -> Iterator[tuple[str, threading.Event]]:
    """Give the address of a package index that takes connections and stays silent, and an event for the first one."""
    asked = threading.Event()
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(server.accept()[0])
                    asked.set()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple", asked
        server.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=60)
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PYTHON": "/bin/false"}, "PYTHON=/bin/false does not run"),
        ({"PYTHON": "/no/such/python"}, "PYTHON=/no/such/python does not run"),
        ({"RLTUI_SETUP_VARIANT": "tpu"}, "RLTUI_SETUP_VARIANT=tpu is not known"),
    ],
)
def test_wrong_wishes_are_named(project: Path, variables: dict[str, str], said: str) -> None:
    done = set_up(project, **variables)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / ".venv").exists()


def test_unknown_profile_is_a_usage_error(project: Path) -> None:
    done = set_up(project, "everything")
    assert done.returncode == 2
    assert "base|check|demo|demo-vllm|test" in done.stderr


def test_a_folder_that_is_no_environment_is_left_alone(project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv" / "thesis.tex").write_text("irreplaceable")
    done = set_up(project)
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (project / ".venv" / "thesis.tex").read_text() == "irreplaceable"


def test_a_link_into_nowhere_is_named(project: Path) -> None:
    (project / ".venv").symlink_to(project / "gone")
    done = set_up(project)
    assert done.returncode == 1
    assert f".venv points to {project}/gone" in done.stderr


def test_the_environment_of_another_checkout_is_not_taken_from_it(project: Path) -> None:
    other = project / "other" / ".venv"
    other.mkdir(parents=True)
    record = {"schema": 1, "path": str(other), "python": "3.11.7", "variant": "cpu", "complete": True, "packages": 1}
    (other / ".rltui-setup.json").write_text(json.dumps(record))
    (project / ".venv").symlink_to(other)
    done = set_up(project)
    assert done.returncode == 1
    assert f"is the environment of another checkout, {other}" in done.stderr
    assert json.loads((other / ".rltui-setup.json").read_text()) == record


def test_no_network_is_said_in_two_lines(project: Path) -> None:
    done = set_up(project, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 1
    assert "the package index cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((project / ".venv" / ".rltui-setup.json").read_text())["complete"] is False


def test_ctrl_c_ends_everything_with_one_line(project: Path) -> None:
    with index_that_never_answers() as (address, asked):
        process = subprocess.Popen(
            command(project),
            env={**os.environ, "PIP_INDEX_URL": address, "PIP_CONFIG_FILE": os.devnull},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert asked.wait(timeout=300), "pip never asked the index"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors.strip().splitlines() == [
        "setup: stopped. The same command starts again; finished downloads are kept."
    ]
    await_that(lambda: not processes_in(project), "nothing of it runs")


def processes_in(project: Path) -> list[str]:
    """Return the command lines of running processes that name ``project``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().decode(errors="replace")
            if str(project) in words:
                found.append(words)
    return found
