"""Runs of several clusters: each is read by itself, and one that is away costs the others nothing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from watch_support import await_that

from rltui import api
from rltui.cli.follow import follow
from rltui.cli.main import main
from rltui.cluster.profile import LOCAL
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.paths import cache_dir
from rltui.service.actions import cancel, preview_cancel
from rltui.service.all_clusters import AllClusters
from rltui.service.cockpit import ActionPreview, Ask
from rltui.service.context import Context
from rltui.service.job_changes import hold, release, requeue, update
from rltui.service.last_rows import HERE, LastRows
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.resubmit import preview_resubmit, resubmit
from rltui.service.sampling import start_sampling
from rltui.tui.glyphs import UNICODE
from rltui.tui.views.runs import empty
from rltui.watch.snapshots import RunIdentity, RunsSnapshot, RunSummary


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that lets one in and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def home(tmp_path: Path, own_folders: Path, silent: int) -> Path:
    """A user with this machine, a second run root on it, and a cluster that hangs."""
    (tmp_path / "config_dir").mkdir()
    (tmp_path / "config_dir" / "clusters.yaml").write_text(
        f"near: {{transport: local, scheduler: slurm, run_root: {tmp_path}/near}}\n"
        f"gone: {{transport: paramiko, host: 127.0.0.1, port: {silent}, scheduler: slurm}}\n"
    )
    make_run(tmp_path / "run_root", "grpo-here-0001", 100.0, "local")
    make_run(tmp_path / "near", "grpo-near-0002", 200.0, "near")
    return tmp_path


def make_run(root: Path, run_id: str, created_at: float, cluster: str, *, over: bool = True) -> None:
    attempt = root / run_id / "attempts" / "01"
    attempt.mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    (attempt / "job.json").write_text(json.dumps({"uuid": run_id}))
    end = {"outcome": "finished", "reason": "all steps done", "at": created_at}
    if over:
        (attempt / "end.json").write_text(json.dumps(end))
    record = {"name": run_id.rpartition("-")[0], "created_at": created_at, "cluster": cluster}
    (root / run_id / "run.json").write_text(json.dumps(record))


def kept_row(cluster: str, run_id: str) -> RunSummary:
    row = RunSummary(
        run_id=run_id, name="far", algorithm="grpo", cluster=cluster, state="running", attempt=1, created_at=50.0,
        nodes=1, gpus_per_node=8, gpu="H100",
    )  # fmt: skip
    LastRows(cache_dir(), cluster).keep(RunsSnapshot(runs=(row,), taken_at=1234.0))
    return row


def test_a_cluster_that_hangs_shows_its_last_rows_and_holds_up_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.cluster.paramiko_transport.CONNECT_TIMEOUT_S", 3600.0)  # it hangs as long as we look
    kept_row("gone", "far-0003")
    clusters = AllClusters()
    snapshot = next(
        seen for power in range(8) if (seen := clusters.runs(patience_s=0.5 * 2**power)).unread == ("gone",)
    )
    rows = [(run.run_id, run.cluster, run.as_of) for run in snapshot.runs]
    assert rows == [("grpo-near-0002", "near", 0.0), ("grpo-here-0001", "local", 0.0), ("far-0003", "gone", 1234.0)]
    assert "gone" in snapshot.problem
    assert [one.name for one in clusters.summaries()] == ["local", "gone", "near"]
    clusters.close()


def test_rows_of_another_run_root_are_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = AllClusters(["local"])
    assert clusters.runs().runs
    clusters.close()
    assert HERE == LOCAL
    assert LastRows(cache_dir(), LOCAL).last().runs
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(home / "elsewhere"))
    assert not LastRows(cache_dir(), LOCAL).last().runs


def test_a_run_is_found_wherever_it_is_and_names_its_cluster(home: Path) -> None:
    kept_row("gone", "far-0003")
    clusters = AllClusters(["local", "near"])
    context, run = clusters.find("grpo-near")
    assert (context.name, run.run_id) == ("near", "grpo-near-0002")
    assert clusters.find("grpo-here-0001")[0].name == "local"
    with pytest.raises(UsageError, match="could be"):
        clusters.find("grpo-")
    with pytest.raises(UsageError, match="No run is called"):
        clusters.find("elsewhere")
    clusters.close()


def test_a_cluster_that_nobody_knows_is_refused_with_the_nearest_name(home: Path) -> None:
    with pytest.raises(UsageError, match="There is no cluster 'nere'") as refused:
        AllClusters(["nere"])
    assert "near" in refused.value.hint


def test_a_run_of_a_cluster_that_is_away_is_no_unknown_run(home: Path, silent: int) -> None:
    config = home / "config_dir" / "clusters.yaml"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    config.write_text(config.read_text().replace(str(silent), str(port)))
    kept_row("gone", "far-0003")
    clusters = AllClusters()
    with pytest.raises(ClusterError):
        clusters.find("far-0003")
    with pytest.raises(ClusterError, match=r"where rltui could look: .*[^.]\.$"):
        clusters.find("elsewhere")
    clusters.close()


def test_rows_are_kept_privately_and_a_damaged_file_is_no_rows(home: Path) -> None:
    kept_row("gone", "far-0003")
    path = home / "cache_dir" / "runs" / "gone.json"
    assert os.stat(path).st_mode & 0o077 == 0
    for damaged in (b'{"runs": [{"torn', b'{"runs": [{"run_id": "\xff"}]}'):
        path.write_bytes(damaged)
        assert not LastRows(cache_dir(), "gone").last().runs


@pytest.fixture
def shared(home: Path) -> Path:
    """A login node as most users have it: three profiles and this machine see one run root, where a job waits."""
    one = f"transport: local, scheduler: slurm, run_root: {home}/run_root"
    (home / "config_dir" / "clusters.yaml").write_text(
        f"lab: {{{one}}}\nlab-debug: {{{one}, partition: debug}}\nlab-long: {{{one}, partition: long}}\n"
    )
    make_run(home / "run_root", "grpo-lab-0003", 300.0, "lab", over=False)
    make_run(home / "run_root", "grpo-laptops-0004", 400.0, "a name on some laptop", over=False)
    return home


def test_a_run_that_several_profiles_see_is_listed_once_under_its_own(shared: Path) -> None:
    clusters = AllClusters()
    snapshot = clusters.runs()
    assert {run.run_id: run.cluster for run in snapshot.runs} == {
        "grpo-laptops-0004": "a name on some laptop",
        "grpo-lab-0003": "lab",
        "grpo-here-0001": "local",
    }
    assert len(snapshot.runs) == 3
    assert clusters.find("grpo-lab-0003")[0].name == "lab"
    assert clusters.find("grpo-lab")[0].name == "lab"
    clusters.close()


ACTS = {
    "cancel": lambda context, run: cancel(context, run),
    "preview_cancel": lambda context, run: preview_cancel(context, run),
    "resubmit": lambda context, run: resubmit(context, run, cancel_first=True),
    "preview_resubmit": lambda context, run: preview_resubmit(context, run),
    "hold": lambda context, run: hold(context, run),
    "release": lambda context, run: release(context, run),
    "requeue": lambda context, run: requeue(context, run),
    "update": lambda context, run: update(context, run, time="01:00:00"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize(
    ("reader", "run_id", "says"),
    [
        ("local", "grpo-lab-0003", "Add --cluster lab"),
        ("lab-debug", "grpo-lab-0003", "Add --cluster lab"),
        ("lab", "grpo-here-0001", "log in there"),
        ("local", "grpo-laptops-0004", "`rltui setup a name on some laptop"),
    ],
)
def test_a_profile_reads_the_runs_of_another_and_changes_none(
    shared: Path, act: Callable[[Context, RunSummary], object], reader: str, run_id: str, says: str
) -> None:
    before = sorted(shared.joinpath("run_root", run_id).rglob("*"))
    clusters = AllClusters([reader])
    context, run = clusters.find(run_id)
    assert (context.name, run.reader) == (reader, reader)
    with pytest.raises(UsageError, match="belongs to cluster") as refused:
        act(context, run)
    assert says in refused.value.hint
    assert sorted(shared.joinpath("run_root", run_id).rglob("*")) == before
    assert not list(context.journal.entries())
    clusters.close()


def test_a_list_that_nobody_has_read_does_not_look_like_one_without_runs(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.cli.ps.UNSEEN_S", 0.2)
    monkeypatch.setattr(AllClusters.runs, "__defaults__", (0.1,))
    assert main(["ps", "--cluster", "gone"]) == 3
    said = capsys.readouterr().err
    assert "gone has not answered yet; no run of it was ever seen from here, so waiting up to 0 s more" in said
    assert "No run can be shown: those of gone have not been read." in said
    assert "No runs yet" not in said
    [row] = empty(AllClusters(["gone"]).runs(), "", True, UNICODE)
    assert "gone is still being read" in row.plain


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reading_that_breaks_does_not_look_like_a_list_without_runs(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Context) -> RunsSnapshot:
        raise ValueError("what nobody thought of")

    monkeypatch.setattr(Context, "runs", broken)
    assert main(["ps", "--cluster", "near"]) == 3
    said = capsys.readouterr().err
    assert "near: its runs cannot be read: ValueError: what nobody thought of" in said
    assert "No runs yet" not in said


def test_a_cluster_that_goes_away_after_the_last_look_at_a_run_is_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[None] = []

    def is_over(*_: object) -> bool:
        answers.append(None)
        if len(answers) == 1:
            raise RelayError("lost", "the connection broke")
        return True

    monkeypatch.setattr("rltui.cli.follow.is_over", is_over)
    monkeypatch.setattr("rltui.api.is_over", is_over)
    clusters = AllClusters(["local"])
    context, run = clusters.find("grpo-here-0001")
    assert follow(context, run.run_id, as_json=False) == 0
    answers.clear()
    assert api.Run(context, run.run_id).wait(timeout_s=60.0, every_s=0.0).state == "finished"
    answers.clear()
    problems = [bool(picture.problem) for picture in api.Run(context, run.run_id).watch(every_s=0.0)]
    assert problems == [True, False]
    clusters.close()


def test_no_process_is_sampled_in_the_place_of_one_that_has_ended(home: Path) -> None:
    clusters = AllClusters(["local"])
    context, run = clusters.find("grpo-here-0001")
    others = structs.replace(run, is_adopted=True, job_id=str(os.getpid()))
    with pytest.raises(RltuiError, match="has ended"):
        start_sampling(context, others, 1)
    clusters.close()


SAME = "grpo-same-00ff"


@pytest.fixture
def two(home: Path) -> Iterator[AllClusters]:
    """Runs of one id on this machine and on another cluster, which was seen before."""
    make_run(home / "run_root", SAME, 300.0, "local")
    make_run(home / "near", SAME, 250.0, "near")
    before = AllClusters(["near"])
    before.runs()
    before.close()
    clusters = AllClusters(["local", "near"])
    yield clusters
    clusters.close()


def test_one_of_two_runs_with_one_id_is_never_guessed(two: AllClusters, home: Path) -> None:
    for word in (SAME, SAME[:-1]):
        with pytest.raises(UsageError, match="could be grpo-same-00ff@local, grpo-same-00ff@near"):
            two.find(word)
    for name, root in (("local", "run_root"), ("near", "near")):
        for word in (f"{SAME}@{name}", f"grpo-sam@{name}"):
            context, run = two.find(word)
            assert (context.name, run.path) == (name, str(home / root / SAME))
        alone = AllClusters([name])
        assert alone.find(SAME)[1].path == str(home / root / SAME), "as with --cluster"
        alone.close()
    with pytest.raises(UsageError, match="No run is called 'grpo-same-00ff@elsewhere'"):
        two.find(f"{SAME}@elsewhere")
    assert main(["cancel", SAME, "--yes"]) == UsageError.exit_code
    assert main(["show", f"{SAME}@near"]) == 0


def test_the_cockpit_reads_and_acts_on_the_one_of_two_that_is_meant(
    two: AllClusters, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = home / "config_dir" / "clusters.yaml"
    clusters.write_text("".join(line for line in clusters.read_text().splitlines(True) if not line.startswith("gone")))
    cockpit = LiveCockpit()
    monkeypatch.setattr(
        "rltui.service.asked.preview",
        lambda context, run, _: ActionPreview.of(run.identity, run.path, (), context.name),
    )
    try:
        await_that(lambda: len([one for one in cockpit.runs().runs if one.run_id == SAME]) == 2, "both are listed")
        for name, root in (("local", "run_root"), ("near", "near")):
            path, run = str(home / root / SAME), RunIdentity(name, SAME)
            assert cockpit.watch(run).summary.path == cockpit.beside(run).summary.path == path
            assert cockpit.why(run).run == run
            shown = cockpit.preview(Ask("cancel", run))
            assert (shown.run, shown.title, shown.commands) == (run, path, (name,))
            assert shown.consequences == (f"it is the one on {name}: another cluster has a run of the same id",)
    finally:
        cockpit.close()


def test_a_local_run_of_another_machine_is_not_the_one_of_this_machine(home: Path) -> None:
    row = kept_row("gone", SAME)
    here, there = structs.replace(row, cluster="local"), structs.replace(row, cluster="local", through="near")
    assert (str(here.identity), str(there.identity)) == (f"{SAME}@local", f"{SAME}@near")
