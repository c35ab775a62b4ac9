"""``rltui du``, ``rm`` and ``cancel`` of several runs: what they take, what goes, and what is left alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from watch_support import attempt_of

from rltui.cli import pick_runs
from rltui.cli.main import main
from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.paths import run_root, state_dir
from rltui.runs.journal import Journal, actions
from rltui.service.run_filter import picked
from rltui.service.tidy import REMOVED, run_sizes
from rltui.watch.snapshots import RunIdentity

MIB = 1 << 20


@pytest.fixture
def make(own_folders: Path) -> Callable[..., Path]:
    """Make runs of this machine: ``make("grpo-1", outcome="failed", steps=(10, 20))``."""

    def run(run_id: str, outcome: str = "finished", steps: tuple[int, ...] = (), days: float = 0.0) -> Path:
        at = time.time() - days * 86400
        attempt = attempt_of(run_id, name="grpo", created_at=at)
        folder = attempt.parents[1]
        attempt.joinpath("job.json").write_text("{}")
        if outcome:
            attempt.joinpath("end.json").write_text(json.dumps({"outcome": outcome, "exit_code": 0, "at": at}))
        for step in steps:
            saved = folder / "checkpoints" / f"step-{step:06d}"
            saved.mkdir(parents=True)
            saved.joinpath("model").write_bytes(b"1" * MIB)
            saved.joinpath("COMPLETE").write_text("{}")
        return folder

    return run


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_sizes_are_those_of_the_disk_the_largest_first(
    make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    make("grpo-small")
    make("grpo-large", steps=(10, 20))
    assert main(["du", "--json"]) == 0
    found = told(capsys)
    assert [one["run_id"] for one in found["runs"]] == ["grpo-large", "grpo-small"]
    large = found["runs"][0]
    assert large["num_checkpoints"] == 2
    assert 2 * MIB <= large["checkpoints_gib"] * (1 << 30) <= large["total_gib"] * (1 << 30) < 3 * MIB
    assert found["disks"]["local"]["free_gib"] > 0
    assert main(["du", "--where", "name:grpo", "grpo-small"]) == 0
    assert "GiB are free on" in capsys.readouterr().out
    assert main(["du", "grpo-small", "--json"]) == 0
    assert [one["run_id"] for one in told(capsys)["runs"]] == ["grpo-small"]


def test_sizes_of_a_thousand_runs_cost_no_more_than_each_of_them() -> None:
    runs = [SimpleNamespace(run_id=f"r{n}", path=f"/runs/r{n}", state="finished", archived=None) for n in range(1000)]
    inside = ("", "/attempts", "/attempts/01", "/checkpoints", *(f"/checkpoints/step-{n:06d}" for n in range(8)))
    told = SimpleNamespace(out="".join(f"1\t{run.path}{name}\n" for run in runs for name in inside))
    client = SimpleNamespace(run=lambda *_, **__: told)
    began = time.process_time()
    sizes = run_sizes(SimpleNamespace(name="local", cluster=SimpleNamespace(client=client)), runs)  # type: ignore[arg-type]
    assert {one.num_checkpoints for one in sizes} == {8}
    assert time.process_time() - began < 1.0, "each run was looked for among the folders of all"


def test_a_run_goes_whole_and_the_journal_says_so(make: Callable[..., Path]) -> None:
    folder, other = make("grpo-1", steps=(10,)), make("grpo-2")
    assert main(["rm", "grpo-1", "--yes"]) == 0
    assert os.listdir(folder.parent) == ["grpo-2"]
    assert other.is_dir()
    (done,) = actions(Journal(state_dir()).entries())
    assert (done.action, done.run, done.outcome) == ("remove", "grpo-1", "done")


def test_without_a_yes_nothing_goes(make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = make("grpo-1", steps=(10,))
    assert main(["rm", "grpo-1"]) == 2
    said = capsys.readouterr().err
    assert "all of its folder goes, 0.00 GiB with 1 checkpoint" in said
    assert "Add --yes" in said
    assert folder.joinpath("run.json").is_file()


@pytest.mark.parametrize("keep", ["checkpoints", "newest"])
def test_checkpoints_stay_as_it_was_said(make: Callable[..., Path], keep: str) -> None:
    folder = make("grpo-1", steps=(10, 20, 30))
    folder.joinpath("checkpoints/step-000030/COMPLETE").unlink()  # torn: 20 is the newest that a run can go on from
    assert main(["rm", "grpo-1", "--keep", keep, "--yes"]) == 0
    left = sorted(os.listdir(folder / "checkpoints"))
    if keep == "checkpoints":
        assert os.listdir(folder) == ["checkpoints"]
        assert left == ["step-000010", "step-000020", "step-000030"]
    else:
        assert folder.joinpath("attempts/01/end.json").is_file()
        assert left == ["step-000020", "step-000030"]
        assert main(["rm", "grpo-1", "--keep", keep, "--yes"]) == 1, "there is nothing more to take away"


def test_what_is_not_over_is_left_alone_and_the_others_go(
    make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    make("grpo-open", outcome="")
    make("grpo-1")
    make("grpo-2", outcome="failed", days=40)
    assert main(["rm", "grpo-open", "grpo-1", "--yes", "--json"]) == 0
    found = told(capsys)
    assert found["done"] == ["grpo-1"]
    assert "rltui cancel grpo-open" in found["left"]["grpo-open"]
    assert main(["rm", "grpo-open", "--yes"]) == 1
    capsys.readouterr()
    assert main(["rm", "--where", "before:30d", "--yes", "--json"]) == 0
    assert told(capsys)["done"] == ["grpo-2"]
    assert os.listdir(run_root()) == ["grpo-open"]


def test_a_run_that_may_go_on_by_itself_is_left_alone(
    make: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("grpo-1", outcome="failed")
    folder.joinpath("hands-off.json").write_text(json.dumps({"on": True}))
    assert main(["rm", "grpo-1", "--yes"]) == 1
    assert "rltui auto grpo-1 --off" in capsys.readouterr().err
    folder.joinpath("hands-off.json").write_text(json.dumps({"on": False}))
    assert main(["rm", "grpo-1", "--yes"]) == 0


def test_a_removal_that_was_cut_off_is_no_run_and_is_finished_by_the_next(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make("grpo-1", steps=(10,))
    make("grpo-2")
    real = RelayClient.run

    def cut(client: RelayClient, argv: Sequence[str], **words: Any) -> Any:
        if argv[0] == "rm":
            raise ClusterError("the link broke")
        return real(client, argv, **words)

    monkeypatch.setattr(RelayClient, "run", cut)
    assert main(["rm", "grpo-1", "--yes"]) == 1
    assert main(["ps", "--json"]) == 0
    assert [one["run_id"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["grpo-2"]
    assert any(name.startswith(REMOVED) for name in os.listdir(run_root()))
    monkeypatch.setattr(RelayClient, "run", real)
    assert main(["rm", "grpo-2", "--yes"]) == 0
    assert os.listdir(run_root()) == []


def test_only_folders_of_the_run_root_go(make: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere = make("grpo-1", steps=(10,)).rename(tmp_path / "elsewhere")
    (run_root() / "grpo-1").symlink_to(elsewhere)
    assert main(["rm", "grpo-1", "--yes"]) == 0
    assert elsewhere.joinpath("checkpoints/step-000010/model").is_file(), "links are not followed"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["rm", "--yes"], 2, "No run is named"),
        (["rm", "--where", "", "--yes"], 2, "would pick every run"),
        (["rm", "--where", "grpo state:", "--yes"], 2, "state: names nothing"),
        (["rm", "--where", "before:soon", "--yes"], 2, "that is no time"),
        (["rm", "--where", "state:lost", "--yes"], 2, "no run fits"),
        (["cancel", "grpo-1", "grpo-2", "--yes"], 2, "It can be done to none of them"),
        (["cancel", "nobody", "--yes"], 2, "No run is called"),
    ],
)
def test_wrong_words_change_nothing(
    make: Callable[..., Path], capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    make("grpo-1")
    make("grpo-2")
    assert main(words) == code
    assert said in capsys.readouterr().err
    assert sorted(os.listdir(run_root())) == ["grpo-1", "grpo-2"]


def test_a_filter_that_is_half_typed_picks_nothing_in_the_shell() -> None:
    with pytest.raises(UsageError, match="no time"):
        picked([], "since:2", 0.0)


def test_runs_of_one_id_on_two_clusters_are_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [
        SimpleNamespace(identity=RunIdentity(name, "grpo-1"), cluster=name, reader=name) for name in ("alps", "eiger")
    ]
    clusters = SimpleNamespace(context=lambda name: name)
    monkeypatch.setattr(pick_runs, "open_clusters", lambda _: nullcontext(clusters))
    monkeypatch.setattr(pick_runs, "picked_runs", lambda *_: runs)
    removed = []

    def preview(_: object, run: SimpleNamespace) -> object:
        if run.cluster == "alps":
            raise RltuiError("it is running")
        return object()

    def act(_: object, run: SimpleNamespace) -> str:
        removed.append(run.cluster)
        return "removed"

    options = SimpleNamespace(cluster="", yes=True, json=True)
    assert pick_runs.do_to_all(options, "Remove", preview, act) == 0  # type: ignore[arg-type]
    assert removed == ["eiger"]
    assert told(capsys) == {
        "schema": 1, "done": ["grpo-1@eiger"], "failed": {}, "left": {"grpo-1@alps": "it is running"}
    }  # fmt: skip
