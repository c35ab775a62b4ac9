"""``rltui archive``: a run goes into one file and comes back byte for byte; the list has it all the time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from watch_support import attempt_of

from rltui.cli.main import main
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.paths import state_dir
from rltui.runs.journal import Journal, actions
from rltui.service import archive

RUN = "grpo-1a2b"


@pytest.fixture
def folder(own_folders: Path) -> Path:
    """A finished run of this machine with two checkpoints, a log and the link to its code."""
    attempt = attempt_of(RUN, name="grpo", created_at=time.time())
    found = attempt.parents[1]
    files = {
        "job.json": "{}",
        "end.json": json.dumps({"outcome": "finished", "exit_code": 0, "reason": "all steps done", "at": 9.0}),
        "metrics.jsonl": '{"step": 1, "time": 1.0, "reward": 0.5}\n',
        "out.log": "a log\n" * 1000,
    }
    for name, text in files.items():
        attempt.joinpath(name).write_text(text)
    for step in (10, 20):
        saved = found / f"checkpoints/step-{step:06d}"
        saved.mkdir(parents=True)
        saved.joinpath("model").write_bytes(os.urandom(100_000))
        saved.joinpath("COMPLETE").write_text("{}")
    found.joinpath("code").symlink_to("../.code/x")
    return found


def contents(folder: Path) -> dict[str, Any]:
    """Everything below ``folder``: mode, and bytes or where a link leads."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ps", "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out)["runs"][0])


def test_a_run_goes_away_whole_stays_listed_and_comes_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, cold = contents(folder), tmp_path / "cold"
    assert main(["archive", RUN, "--to", str(cold), "--yes"]) == 0
    assert os.listdir(cold) == [f"{RUN}.tar"]
    assert {*contents(folder)} == {
        *("run.json", "archived.json", "attempts", "attempts/01"),
        *("attempts/01/job.json", "attempts/01/end.json", "attempts/01/metrics.jsonl"),
    }
    row = listed(capsys)
    assert (row["state"], row["reward"], row["archived"]["file"]) == ("finished", 0.5, f"{cold}/{RUN}.tar")
    assert main(["show", RUN]) == 0
    assert f"archived in {cold}/{RUN}.tar" in capsys.readouterr().out
    assert main(["du"]) == 0
    assert "archived, 0.00 GiB" in capsys.readouterr().out
    for verb in (["archive", RUN, "--to", str(cold)], ["resubmit", RUN], ["rm", RUN, "--keep", "newest"]):
        assert main([*verb, "--yes"]) != 0
        assert "is archived" in capsys.readouterr().err
    assert main(["archive", "--back", RUN, "--yes"]) == 0
    assert contents(folder) == before
    assert os.listdir(cold) == []
    assert listed(capsys)["archived"] is None
    done = [(one.action, one.outcome) for one in actions(Journal(state_dir()).entries())]
    assert ("archive", "done") in done
    assert ("archive-back", "done") in done


@pytest.mark.parametrize(("keep", "left"), [("newest", ["step-000020"]), ("none", [])])
def test_checkpoints_go_as_was_said(folder: Path, tmp_path: Path, keep: str, left: list[str]) -> None:
    words = ["--to", str(tmp_path / "cold"), "--checkpoints", keep, "--yes"]
    assert main(["archive", RUN, *words]) == 0
    assert main(["archive", "--back", RUN, "--yes"]) == 0
    assert sorted(os.listdir(folder / "checkpoints")) == left
    assert (folder / "attempts/01/out.log").exists()


def test_checkpoints_that_another_system_named_all_stay(folder: Path, tmp_path: Path) -> None:
    folder.joinpath("checkpoints/global_step_7").mkdir()
    assert main(["archive", RUN, "--to", str(tmp_path / "cold"), "--checkpoints", "newest", "--yes"]) == 0
    assert main(["archive", "--back", RUN, "--yes"]) == 0
    assert sorted(os.listdir(folder / "checkpoints")) == ["global_step_7", "step-000020"]


def test_the_cause_of_an_end_is_not_looked_for_where_the_logs_are_away(folder: Path, tmp_path: Path) -> None:
    end = {"outcome": "failed", "exit_code": 1, "reason": "it failed", "at": 9.0}
    folder.joinpath("attempts/01/end.json").write_text(json.dumps(end))
    assert main(["archive", RUN, "--to", str(tmp_path / "cold"), "--yes"]) == 0
    assert main(["history", RUN]) == 0
    assert not folder.joinpath("attempts/01/failure.json").exists(), "an empty word, which would stay for ever"


def test_nothing_is_taken_away_before_the_file_is_whole(folder: Path, tmp_path: Path) -> None:
    before, cold = contents(folder), tmp_path / "cold"
    cold.mkdir()
    cold.joinpath(f"{RUN}.tar").write_text("somebody's")
    assert main(["archive", RUN, "--to", f"{folder}/in-itself", "--yes"]) == 2
    assert main(["archive", RUN, "--to", str(cold), "--yes"]) == 1
    assert contents(folder) == before
    assert cold.joinpath(f"{RUN}.tar").read_text() == "somebody's"


def test_one_that_broke_off_behind_the_file_is_done_by_doing_it_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, cold = contents(folder), tmp_path / "cold"
    words = ["archive", RUN, "--to", str(cold), "--checkpoints", "newest", "--yes"]
    with monkeypatch.context() as away:
        away.setattr(RelayClient, "put", broken)
        assert main(words) == 1
    assert (contents(folder), os.listdir(cold)) == (before, [f"{RUN}.tar"])
    folder.joinpath("checkpoints/step-000020/model").write_bytes(b"another")
    folder.joinpath("checkpoints/step-000010/model").write_bytes(b"not in the file anyway")
    assert main(words) == 1, "the file does not hold what the run is now"
    assert "holds something else" in capsys.readouterr().err
    cold.joinpath(f"{RUN}.tar").unlink()
    with monkeypatch.context() as away:
        away.setattr(RelayClient, "put", broken)
        assert main(words) == 1
    assert main([*words[:-3], "--checkpoints", "all", "--yes"]) == 1, "a checkpoint is not in it"
    assert main(words) == 0
    assert listed(capsys)["archived"]["file"] == f"{cold}/{RUN}.tar"


def test_one_that_broke_off_while_it_removed_frees_the_rest_by_doing_it_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, cold = contents(folder), tmp_path / "cold"
    words = ["archive", RUN, "--to", str(cold), "--yes"]
    with monkeypatch.context() as away:
        away.setattr(archive, "STRIP", "exit 1")
        assert main(words) == 1
    assert folder.joinpath("checkpoints/step-000020/model").exists()
    file = cold / f"{RUN}.tar"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert main(words) == 1, "its file is not what was written"
    assert folder.joinpath("checkpoints/step-000020/model").exists()
    file.write_bytes(whole)
    assert main([*words[:3], str(tmp_path / "elsewhere"), "--yes"]) == 1, "it is in another file"
    assert main(words) == 0
    assert not folder.joinpath("checkpoints").exists()
    assert listed(capsys)["archived"]["file"] == str(file)
    assert main(["archive", "--back", RUN, "--yes"]) == 0
    assert contents(folder) == before


def broken(*_: object, **__: object) -> None:
    raise RelayError("lost", "the connection broke")
