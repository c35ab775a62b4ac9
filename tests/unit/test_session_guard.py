"""tests/conftest.py itself: the session it guards is a real one, of pytest in a process of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from watch_support import await_that, gone

CONFTEST = Path(__file__).parents[1] / "conftest.py"

LEAVES_A_PROCESS = """
import os, subprocess, sys
def test_leaves_a_process(capfd):
    variables = {**os.environ, "RLTUI_ATTEMPT": "abandoned"}
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)"], env=variables, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    open("pid", "w").write(str(child.pid))
"""
SKIPS = """
import pytest
@pytest.mark.parametrize("number", [1, 2])
def test_needs_hardware(number):
    pytest.skip("there is no GPU")
"""
SHOWS_ITS_SURROUNDINGS = """
import os
def test_surroundings():
    from pathlib import Path
    assert Path.home() != Path("/nonexistent-home")
    assert Path.home().is_dir() and not list(Path.home().glob("*.txt"))
    assert "RLTUI_RUN_ROOT" not in os.environ and "RAY_ADDRESS" not in os.environ
    assert "COLUMNS" not in os.environ  # readline sets it, and the processes of pytest -n inherit it
    assert os.environ["WANDB_MODE"] == "offline" and os.environ["HF_HUB_OFFLINE"] == "1"
    assert all(value.startswith(str(Path.home())) for name, value in os.environ.items() if name.startswith("XDG_"))
"""


def run_session(folder: Path, source: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a folder that holds the guard and one test file."""
    shutil.copy(CONFTEST, folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_process_left_running_fails_the_session_and_is_killed(tmp_path: Path) -> None:
    done = run_session(tmp_path, LEAVES_A_PROCESS, RLTUI_TEST_ENDING_S="0.3")
    assert done.returncode == 1, done.stdout
    assert "LEFT RUNNING" in done.stdout
    pid = (tmp_path / "pid").read_text()
    assert f"pid {pid}:" in done.stdout
    await_that(lambda: gone(int(pid)), "it is gone")


def test_so_does_one_that_one_of_several_processes_left(tmp_path: Path) -> None:
    done = run_session(tmp_path, LEAVES_A_PROCESS + SKIPS, "-n", "2", RLTUI_NO_SKIPS="1", RLTUI_TEST_ENDING_S="0.3")
    assert done.returncode == 1, done.stdout
    assert f"pid {(tmp_path / 'pid').read_text()}:" in done.stdout
    assert "NOT RUN HERE: 2 tests because there is no GPU" in done.stdout
    assert "this is a failure" in done.stdout
    assert run_session(tmp_path, "def test_sound(): pass", "-n", "2").returncode == 0


def test_the_first_process_trains_while_the_others_wait_for_clusters(tmp_path: Path) -> None:
    source = """
import os
def test_it():
    with open("order", "a") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {os.path.basename(__file__)}\\n")
"""
    for folder, number in itertools.product(("cluster", "trainers", "unit"), range(3)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"test_{folder}_{number}.py").write_text(source)
    assert run_session(tmp_path, "", "-n", "2").returncode == 0
    ran = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert len(ran) == 9
    folders = {process: [file.split("_")[1] for one, file in ran if one == process] for process, _ in ran}
    # each is given two files ahead, and a third by whoever is first
    assert folders["gw0"][:2] == ["trainers", "trainers"]
    assert folders["gw1"][:2] == ["cluster", "cluster"]
    # how many each runs is a matter of its speed; one that has no more of its own takes short ones, and helps at last
    assert folders["gw0"] == sorted(folders["gw0"], key=["trainers", "unit", "cluster"].index)
    assert folders["gw1"] == sorted(folders["gw1"], key=["cluster", "unit", "trainers"].index)


def test_skips_are_named_with_their_reason(tmp_path: Path) -> None:
    done = run_session(tmp_path, SKIPS)
    assert done.returncode == 0, done.stdout
    assert "NOT RUN HERE: 2 tests because there is no GPU" in done.stdout


def test_skips_fail_where_none_are_allowed(tmp_path: Path) -> None:
    done = run_session(tmp_path, SKIPS, RLTUI_NO_SKIPS="1")
    assert done.returncode == 1, done.stdout
    assert "this is a failure" in done.stdout


def test_the_users_state_is_out_of_sight(tmp_path: Path) -> None:
    variables = {
        "COLUMNS": "80",
        "HOME": "/nonexistent-home",
        "RLTUI_RUN_ROOT": "/runs",
        "RAY_ADDRESS": "auto",
        "XDG_CACHE_HOME": "/x",
    }
    done = run_session(tmp_path, SHOWS_ITS_SURROUNDINGS, **variables)
    assert done.returncode == 0, done.stdout
