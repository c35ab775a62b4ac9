"""``rltui wandb-sync``: W&B's own sync without a login, and its marks (its server is not free to run)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from watch_support import attempt_of

from rltui.cli.main import main
from rltui.paths import state_dir

RUN = "grpo-tiny-1a2b"
KEY = "0123456789abcdef0123456789abcdef01234567"

OFFLINE_RUN = """
import wandb
run = wandb.init(project="old", mode="offline", settings=wandb.Settings(silent=True, console="off"))
run.log({"reward": 0.5})
run.finish()
"""

SYNC = """
import pathlib, sys
if sys.argv[1:3] != ["sync", "--include-synced"]:
    sys.exit(9)
for folder in sys.argv[3:]:
    print("wandb: sent", folder, flush=True)
    [file.with_name(file.name + ".synced").touch() for file in pathlib.Path(folder).glob("*.wandb")]
"""
"""Stands for a W&B that has a server: prints, and leaves W&B's mark beside each file."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Path:
    """A finished run of this machine; nobody is logged in to W&B."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    attempt = attempt_of(RUN)
    folder = attempt.parents[1]
    folder.joinpath("wandb").mkdir()
    attempt.joinpath("end.json").write_text(json.dumps({"outcome": "finished", "exit_code": 0, "at": 2.0}))
    return folder


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Path) -> Path:
    """Two offline folders, an online one, and a W&B that takes everything; returns the newest file."""
    program = tmp_path / "stand-in" / "wandb"
    program.mkdir(parents=True)
    program.joinpath("__init__.py").touch()
    program.joinpath("__main__.py").write_text(SYNC)
    monkeypatch.setenv("PYTHONPATH", str(program.parent))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for name in ("offline-run-1-a", "offline-run-2-a", "run-3-b"):
        run.joinpath("wandb", name).mkdir()
        run.joinpath("wandb", name, "run-a.wandb").write_bytes(b":W&B")
    return run / "wandb" / "offline-run-2-a" / "run-a.wandb"


def test_what_is_sent_once_is_not_sent_again_until_it_grows(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    newest = stand_in(tmp_path, monkeypatch, run)
    assert main(["wandb-sync", RUN, "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["uploaded"] == ["wandb/offline-run-1-a", "wandb/offline-run-2-a"]
    assert "wandb: sent wandb/offline-run-1-a" in said.err
    assert KEY not in said.out + said.err + state_dir().joinpath("journal.jsonl").read_text()
    assert main(["wandb-sync", RUN]) == 0
    assert "W&B has all of" in capfd.readouterr().out
    mark = newest.with_name(newest.name + ".synced").stat().st_mtime
    newest.write_bytes(b":W&B and more")
    os.utime(newest, (mark + 5, mark + 5))
    assert main(["wandb-sync", RUN, "--print"]) == 0
    assert capfd.readouterr().out == f"cd {run} && wandb sync --include-synced wandb/offline-run-2-a\n"


def test_without_a_login_it_says_so_and_is_journalled_as_failed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb")
    subprocess.run([sys.executable, "-c", OFFLINE_RUN], cwd=run, check=True, timeout=120)
    assert main(["wandb-sync", RUN]) == 1
    said = capfd.readouterr().err
    assert "No API key configured" in said
    assert "wandb login" in said
    phases = [json.loads(line)["phase"] for line in state_dir().joinpath("journal.jsonl").read_text().splitlines()]
    assert phases == ["intent", "failed"]


def test_a_run_that_kept_nothing_says_where_files_would_be(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["wandb-sync", RUN]) == 1
    assert "has no files of W&B" in capfd.readouterr().err
