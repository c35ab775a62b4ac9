"""A log alone, of a run that goes on slowly: the rules of live runs on the steps that it tells."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rltui.cli.main import main
from rltui.diagnose.log_steps import steps_in


def verl(number: int, reward_s: float = 2.0) -> str:
    """A step as verl prints it."""
    phases = {"gen": 60.0, "update_actor": 50.0, "reward": reward_s, "update_weights": 4.0}
    said = {"critic/rewards/mean": 0.3 + 0.01 * number, **{f"timing_s/{name}": took for name, took in phases.items()}}
    said["timing_s/step"] = sum(phases.values())
    return f"(TaskRunner pid=77) step:{number} - " + " - ".join(f"{name}:{value:.3f}" for name, value in said.items())


def trl(number: int) -> str:
    """A step as TRL prints it, behind a progress bar."""
    said = {"loss": "0.01", "reward": "0.5", "step_time": "30.0", "profiling/Time taken: x._generate": "26.0"}
    return f"\r {number}%|#   | {number}/100 [00:10<10:00, 30.0s/it]\n{said}"


SLOW = "\n".join(verl(number, 90.0) for number in range(1, 13))
WELL = "\n".join(map(verl, range(1, 13)))


def causes(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The causes that ``rltui why`` finds in a log."""
    main(["why", "--json", *words])
    return [one["id"] for one in json.loads(capsys.readouterr().out)["diagnoses"]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SLOW, ["reward_bound"]),
        (WELL, []),
        ("\n".join(SLOW.splitlines()[:3]), []),  # too few steps
        (SLOW + "\nModuleNotFoundError: No module named 'flash_attn'\n", ["env_import_broken"]),
    ],
)
def test_a_slow_run_is_told_where_nothing_ended_it(
    text: str, found: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text(text, encoding="utf-8")
    assert causes(capsys, "--log", str(tmp_path / "run.log")) == found


def test_what_is_packed_or_piped_is_read_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(SLOW.encode()))
    assert causes(capsys, "--log", str(tmp_path / "run.log.gz")) == ["reward_bound"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(SLOW.encode())))
    assert causes(capsys, "--log", "-") == ["reward_bound"]


def test_the_words_of_the_system_that_tells_most_are_taken() -> None:
    assert [step.values["time/reward"] for step in steps_in(SLOW)] == [90.0] * 12
    assert [step.values["time/total"] for step in steps_in("\n".join(map(trl, range(1, 6))))] == [30.0] * 5
    assert steps_in("nothing of steps is in here\n" * 20) == ()


def test_files_that_a_log_names_are_left_alone(tmp_path: Path) -> None:
    numbers = [{"step": number, "data": {"timing_s/step": 7.0}} for number in range(20, 40)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in numbers))
    said = f"wandb: Run data is saved locally in {tmp_path}\nFileLogger: {tmp_path}/metrics.jsonl\n"
    assert len(steps_in(said + WELL)) == 12


def test_a_dialect_of_the_users_that_is_none_does_not_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "dialects").mkdir()
    (tmp_path / "dialects/mine.yaml").write_text("name: [no dialect]\n")
    (tmp_path / "run.log").write_text(SLOW, encoding="utf-8")
    assert causes(capsys, "--log", str(tmp_path / "run.log")) == []
