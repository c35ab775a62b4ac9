"""A run of the real trainer on a Ray cluster that somebody else has started, through its Jobs API."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile
from rltui.cluster.ray_cluster import RayCluster
from rltui.cluster.trusted_server import TOKEN_FILE
from rltui.errors import ClusterError
from rltui.onnode import ray_head, ray_process, rundir
from rltui.runs.journal import Journal
from rltui.service.actions import cancel
from rltui.service.context import Context
from rltui.service.describe import newest_checkpoint_step
from rltui.service.launch import launch
from rltui.service.resubmit import resubmit
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rltui.watch.snapshots import RunSummary

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A standing Ray of four CPUs whose token lies where Ray looks for it."""
    uuid = uuid4().hex
    monkeypatch.setenv("HOME", str(tmp_path))
    spec = ray_process.RaySpec(sys.executable, str(tmp_path), uuid, 4, 0)
    head = ray_head.RayHead(spec, {**os.environ, rundir.ATTEMPT_VARIABLE: uuid})
    head.start(180, lambda: False)
    token = tmp_path / TOKEN_FILE
    token.parent.mkdir(mode=0o700)
    token.write_text(head.token)
    yield head.dashboard
    head.stop()
    head.remove_folder()


def look(context: Context, run_id: str) -> RunSummary | None:
    """The run, or None while Ray's dashboard does not answer, as a busy one may not for a moment."""
    try:
        return context.find(run_id)
    except ClusterError:
        return None


def test_a_run_is_launched_cancelled_and_resubmitted_on_a_standing_ray(dashboard: str, tmp_path: Path) -> None:
    profile = Profile(
        name="standing", scheduler="ray", ray_address=dashboard, python=sys.executable, run_root=f"{tmp_path}/runs"
    )
    context = Context(cluster=RayCluster(profile, LocalTransport()))
    context.journal = Journal(tmp_path / "state")
    run_id = launch(context, "local/grpo-tiny", ["train.steps=100000", "roles.learner.gpus=[1]"]).run_id
    eventually(lambda: (seen := look(context, run_id)) and ((seen.stage.step or 0) > 1 or seen.end), "a step", 400)
    run = context.find(run_id)
    assert (run.state, run.cluster) == ("running", "standing")
    assert run.job is not None
    assert run.job.state == "running"
    cancel(context, run)
    eventually(lambda: (seen := look(context, run_id)) and seen.state == "cancelled", "the end")
    run = context.find(run_id)
    saved = newest_checkpoint_step(context, run) or 0
    assert resubmit(context, run, [f"train.steps={saved + 2}"]).attempt == 2
    eventually(lambda: (seen := look(context, run_id)) and seen.state == "finished", "the end of all steps", 400)
    context.close()
