"""Where W&B has a run: its page from log and events, its folders, and the commands for here and for elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from watch_support import attempt_of

from rltui.cluster.profile import Profile
from rltui.cluster.relay_types import Entry, RelayError, SmallFile
from rltui.errors import RltuiError
from rltui.runs.journal import Journal
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.wandb_place import wandb_place
from rltui.watch.snapshots import RunIdentity, RunSummary

RUN = "grpo-tiny-1a2b"
IDENTITY = RunIdentity("local", RUN)
PAGE = "https://wandb.example.org:8443/ada/tiny/runs/0c0ffee0"


def test_files_and_page_of_a_run_on_this_machine(own_folders: Path) -> None:
    attempt = attempt_of(RUN)
    folder = attempt.parents[1]
    attempt.joinpath("stage.json").write_text(json.dumps({"stage": "training", "since": 1.0, "updated": 1.0}))
    live = LiveCockpit()
    try:
        live.runs()
        with pytest.raises(RltuiError, match="no files of W&B"):
            live.wandb(IDENTITY)
        attempt.joinpath("out.log").write_text(f"wandb: View run at \x1b[34m{PAGE}\x1b[0m\nstep 1\n")
        assert live.wandb(IDENTITY) == (PAGE, None, "", None, "", ())
        for name in ("offline-run-20261124_1-a", "run-20261124_2-a", "latest-run.txt"):
            folder.joinpath("wandb", name).mkdir(parents=True)
            folder.joinpath("wandb", name, "run-a.wandb").touch()
        place = live.wandb(IDENTITY)
    finally:
        live.close()
    assert place.page == PAGE
    assert place.look_command == f"cd {folder} && wandb leet wandb"
    assert place.send_command == f"cd {folder} && wandb sync --include-synced wandb/offline-run-20261124_1-a"
    if place.look is not None:
        assert place.look.argv == [sys.executable, "-m", "wandb", "leet", "wandb"]


class Elsewhere:
    """The relay of a cluster on which one run has files of W&B, and no log yet."""

    def read(self, path: str, *_: int) -> Any:
        raise RelayError("missing", path)

    def list(self, path: str) -> tuple[Entry, ...]:
        return (Entry("offline-run-1-a;x", "dir", 0, 0.0), Entry("debug.log", "file", 1, 0.0))

    def collect(self, root: str, names: list[str], limit: int) -> tuple[SmallFile, ...]:
        return (SmallFile("offline-run-1-a;x/run-a.wandb", "", 5.0, 9),)


def test_elsewhere_they_are_opened_where_they_lie(tmp_path: Path) -> None:
    cluster = SimpleNamespace(profile=Profile(name="lab", host="login", user="alice"), client=Elsewhere())
    context: Any = SimpleNamespace(cluster=cluster, journal=Journal(tmp_path))
    run = RunSummary(
        run_id=RUN, name="a", algorithm="grpo", cluster="lab", state="running", attempt=1, created_at=0.0, nodes=1,
        gpus_per_node=1, gpu="cpu", path="/runs/a b",
    )  # fmt: skip
    place = wandb_place(context, run)
    assert place.page == ""
    assert place.look is not None
    assert place.look.argv[-2:] == ["login", "cd '/runs/a b' && wandb leet wandb"]
    assert "wandb/offline-run-1-a;x" in place.send_command
    assert place.send_command.startswith(place.look.argv[0])
