"""Scripts of other systems: the samples they write, where they say so, and what their jobs take from whom."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from test_compare import make_run
from test_script_meaning import VERL as GRPO_8B
from test_scripts import VERL, prepared

from rltui.cli.main import main
from rltui.cluster.profile import Profile
from rltui.paths import run_root
from rltui.runs.script_job import script_files

HERE = Profile(name="lab", host="lab", scheduler="slurm", gpu="H100-SXM-80GB", gpus_per_node=8)
RUN = "grpo-tiny-aaaa"


@pytest.fixture(autouse=True)
def run(own_folders: Path) -> Path:
    make_run(RUN, 4, 0.01)
    return run_root() / RUN / "attempts/01"


def becomes(attempt: Path, tmp_path: Path, text: str, **wishes: object) -> None:
    found = prepared(tmp_path, text, HERE, **wishes)
    found = structs.replace(found, job=structs.replace(found.job, folder=str(tmp_path)))
    (attempt / "layout.yaml").unlink(missing_ok=True)
    (attempt / "origins.json").write_text(json.dumps({"schema": 1, "keys": found.origins}))
    for name, data in script_files(found.job, found.text).items():
        (attempt / name).write_bytes(data)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main([*words, "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out), out.err


def test_verls_samples_are_read_where_its_script_says(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    text = VERL.replace('"$@"', 'trainer.rollout_data_dir=$DUMPS/train "$@"').replace("python3", "DUMPS=dumps\npython3")
    becomes(run, tmp_path, text)
    code, found, _ = told(capsys, "samples", RUN)
    assert code == 1
    assert found["note"] == f"{tmp_path}/dumps/train (trainer.rollout_data_dir): nothing is there yet"
    (tmp_path / "dumps/train").mkdir(parents=True)
    for step in (9, 10):
        answers = [{"input": "q", "output": f"{step}.{n}", "gts": "4", "score": float(n), "step": step} for n in (0, 1)]
        text = "".join(json.dumps(one | {"acc": True}) + "\n" for one in answers)
        (tmp_path / f"dumps/train/{step}.jsonl").write_text(text)
    _, found, _ = told(capsys, "samples", RUN, "--best")
    assert [(one["step"], one["answer"], one["reward"], one["right_answer"]) for one in found["samples"][:2]] == [
        (10, "10.1", 1.0, "4"),
        (9, "9.1", 1.0, "4"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (VERL, "run.sh writes none: with trainer.rollout_data_dir=FOLDER verl writes a file a step"),
        ("#!/bin/bash\npython -m prime_rl.trainer\n", "rltui knows of no file of samples"),
    ],
    ids=["verl", "another"],
)
def test_a_script_that_writes_none_says_how_it_would(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path, text: str, words: str
) -> None:
    becomes(run, tmp_path, text, nodes=1, gpus_per_node=8)
    code, found, said = told(capsys, "samples", RUN)
    assert (code, found["samples"]) == (1, [])
    assert words in found["note"]
    assert words in said


def test_a_scripts_settings_say_which_line_or_word_they_are(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    words = ("trainer.total_epochs=3", "--api-key", "abcdefgh1", "hub.token=ijklmnop2", "+hub.user=hf_" + "q" * 30)
    becomes(
        run,
        tmp_path,
        VERL.replace("#SBATCH --time", "#SBATCH --export=HF_TOKEN=rstuvwx3\n#SBATCH --time"),
        words=words,
        settings=("slurm.time=1:00:00",),
    )
    _, found, _ = told(capsys, "config", RUN)
    settings = {one["key"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert settings["#SBATCH line 2"] == ("--nodes=2 --gpus-per-node=8", "run.sh:2")
    assert settings["hardware.nodes"] == (2, "#SBATCH lines")
    assert settings["slurm.partition"] == ("big", "#SBATCH lines")
    assert settings["slurm.time"] == ("1:00:00", "override at launch")
    assert settings["slurm.qos"][1] == "default"
    assert settings["word 1"] == ("trainer.total_epochs=3", "appended to the script's own")
    assert settings["dialect"][0] == "verl"
    assert settings["word 3"][0] == "[masked]"
    text = json.dumps(found)
    assert not [secret for secret in ("abcdefgh1", "ijklmnop2", "rstuvwx3", "qqqqqq") if secret in text]


@pytest.mark.parametrize(
    ("lines", "wishes", "origin"),
    [
        ("#SBATCH --nodes=2 --gpus-per-node=8", {"nodes": 2}, "--nodes at launch"),
        ("#SBATCH --gpus-per-node=8", {"nodes": 1}, "--nodes at launch"),
        ("#SBATCH --gpus-per-node=8", {}, "launch, or the cluster's profile"),
        ("#SBATCH --nodes=2 --gpus-per-node=8", {}, "#SBATCH lines"),
    ],
)
def test_the_number_of_nodes_is_by_whose_word_it_is(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path, lines: str, wishes: dict[str, int], origin: str
) -> None:
    becomes(run, tmp_path, VERL.replace("#SBATCH --nodes=2 --gpus-per-node=8", lines), **wishes)
    _, found, _ = told(capsys, "config", RUN)
    assert {one["key"]: one["origin"] for one in found["settings"]}["hardware.nodes"] == origin


def test_of_a_script_only_what_changed_differs_from_the_attempt_before(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    words = ("trainer.total_epochs=3",)
    becomes(run, tmp_path, VERL, words=words)
    again = run.with_name("02")
    shutil.copytree(run, again)
    becomes(again, tmp_path, VERL, words=words, settings=("slurm.time=1:00:00",))
    _, found, _ = told(capsys, "config", RUN)
    assert (found["attempt"], found["against"]) == (2, "attempt 1")
    assert [one["key"] for one in found["settings"] if one["differs"]] == ["slurm.time"]


@pytest.mark.parametrize(("there", "problems"), [("0", 1), ("2", 0)])
def test_a_script_for_more_cards_than_this_machine_has_is_refused_before_it_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, problems: int
) -> None:
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", there)
    script = "#SBATCH --gpus-per-node=2\ntrain\n"
    here = prepared(tmp_path, script, Profile(name="local", scheduler="local"))
    assert len(here.problems) == problems
    assert not prepared(tmp_path, script, HERE).problems


def test_why_is_told_of_a_run_whose_script_is_not_kept(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    becomes(run, tmp_path, VERL)
    (run / "out.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB.\n")
    _, with_script, _ = told(capsys, "why", RUN)
    (run / json.loads((run / "script.json").read_text())["script"]).unlink()  # recordings hold none
    _, without, err = told(capsys, "why", RUN)
    assert not err
    assert [one["id"] for one in without["diagnoses"]] == [one["id"] for one in with_script["diagnoses"]] != []


def test_why_offers_no_words_that_would_not_reach_the_training(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    becomes(run, tmp_path, VERL)
    (run / "out.log").write_text("ValueError: No available memory for the cache blocks. Try increasing it.\n")
    record = json.loads((run / "script.json").read_text())
    safe: dict[bool, list[str]] = {}
    for passes_words in (True, False):
        (run / "script.json").write_text(json.dumps({**record, "passes_words": passes_words}))
        _, report, _ = told(capsys, "why", RUN)
        worded = [remedy for one in report["diagnoses"] for remedy in one["remedies"] if remedy.get("words")]
        safe[passes_words] = [remedy["safe"] for remedy in worded]
        assert all(("does not hand its arguments on" in one["summary"]) != passes_words for one in worded)
    assert "auto" in safe[True]
    assert set(safe[False]) == {"never"}


def test_plan_times_what_the_command_means_by_the_lengths_that_the_run_had(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    becomes(run, tmp_path, GRPO_8B)
    lines = [json.dumps({"step": step, "time": float(step), "response_length": 300.0}) for step in range(11)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["plan", "--run", RUN]) == 0
    out = capsys.readouterr()
    assert "\nnow  " in out.out
    assert "responses: mean 300," in out.out
    assert not out.err
    assert "\n#1 differs from it, in a layout's keys" in out.out
    (run / json.loads((run / "script.json").read_text())["script"]).write_text("echo nothing\n")
    assert main(["plan", "--run", RUN]) == 1
    assert "has no layout to plan by: " in capsys.readouterr().err
