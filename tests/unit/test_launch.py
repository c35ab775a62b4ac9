"""What launching says where something is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from rltui.cli.main import main
from rltui.cluster.cluster import SubmitRefusedError
from rltui.cluster.profile import Profile
from rltui.errors import MissingExtraError, RltuiError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.service import launch
from rltui.service.context import open_context
from rltui.service.launch import require_modules
from rltui.service.login_facts import ask_cluster, cluster_problems, folder_problem
from rltui.service.scripts import prepare
from rltui.service.submit import Launched
from rltui.service.wishes import read_wishes


@pytest.mark.parametrize(
    ("absent", "overrides", "said"),
    [
        ({"torch", "ray"}, [], ["The trainers need torch, ray,", "pip install 'rltui[trainers]'"]),
        ({"vllm"}, ["roles.rollout.engine=vllm"], ["The layout needs vllm", "roles.rollout.engine=hf"]),
        ({"peft"}, ["roles.learner.lora_rank=8"], ["The layout needs peft", "rltui[trainers]"]),
        ({"bitsandbytes"}, ["roles.learner.optimizer=adamw_8bit"], ["The layout needs bitsandbytes", "eight-bit"]),
    ],
)
def test_missing_extras_name_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, absent: set[str], overrides: list[str], said: list[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None if name in absent else real("json"))
    with pytest.raises(MissingExtraError) as caught:
        require_modules(load_layout(resolve("local/grpo-tiny"), overrides).layout)
    for words in said:
        assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_hf_layouts_do_not_need_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None if name == "vllm" else real("json"))
    require_modules(load_layout(resolve("local/grpo-tiny")).layout)


@pytest.fixture
def profiles(tmp_path: Path, own_folders: Path) -> Path:
    """The user's list of clusters, to be written."""
    (tmp_path / "config_dir").mkdir()
    return tmp_path / "config_dir" / "clusters.yaml"


def test_on_a_machine_a_set_up_line_that_fails_starts_no_run(
    profiles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles.write_text(f"box: {{scheduler: hosts, python: {sys.executable}, setup_lines: [no-such-module load x]}}\n")
    assert main(["launch", "local/grpo-tiny", "--cluster", "box", "--unchecked", "--yes"]) == 1
    assert "The run could not be started: " in (said := capsys.readouterr().err)
    assert "no-such-module: command not found" in said
    assert main(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []


@pytest.mark.parametrize(
    ("asked", "host", "folder"),
    [
        ("code/../src", "lab", "~/src"),
        ("~/code", "lab", "~/code"),
        ("/data/code", "lab", "/data/code"),
        (".", "lab", "~/."),
        ("", "lab", ""),
        ("code", "", "HERE/code"),
        ("", "", "HERE"),
    ],
)
def test_a_relative_folder_is_meant_from_the_home_there_and_from_here_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, host: str, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = Profile(name="lab", host=host, scheduler="slurm", gpu="H100-SXM-80GB", gpus_per_node=8)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n#SBATCH --gpus-per-node=1\npython train.py\n")
    ready = prepare("run.sh", read_wishes(("--folder", asked) if asked else ()), profile)
    assert ready.job.folder == folder.replace("HERE", str(tmp_path))
    told = [note for note in ready.notes if note.startswith("runs in your home on lab; only the script is copied")]
    assert bool(told) == (not folder)


def test_a_folder_that_is_not_there_is_named(profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "my code").mkdir()
    with open_context("local") as context:
        relay = context.cluster.client
        for folder in ("", "~", "~/my code", str(tmp_path)):
            assert folder_problem(relay, folder) == ""
        for folder in ("~/other", f"{tmp_path}/other", f"{tmp_path}/my code/other"):
            there = folder.replace("~", str(tmp_path))
            assert folder_problem(relay, folder).startswith(f"there is no folder {there} on the login node; --folder")


@pytest.mark.parametrize(("cluster", "says"), [("box", "box is one machine"), ("boxes", "boxes runs each on one of")])
def test_a_script_for_several_nodes_is_refused_where_a_run_has_one_machine(
    profiles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: str, says: str
) -> None:
    profiles.write_text("box: {scheduler: hosts}\nboxes: {scheduler: hosts, hosts: [gpu1, gpu2], run_root: /tmp}\n")
    script = tmp_path / "two.sh"
    script.write_text("#!/bin/sh\n#SBATCH --nodes=2 --gpus-per-node=1\npython train.py\n")
    with open_context(cluster) as context:
        job = prepare(str(script), read_wishes(()), context.cluster.profile).job
        [problem] = cluster_problems(context, job)
        assert problem.startswith(f"S612 2 nodes; {says}")
        with pytest.raises(RltuiError, match="Not launched: S612"):
            ask_cluster(context, job)
        hardware = structs.replace(job.hardware, nodes=1)
        assert cluster_problems(context, structs.replace(job, hardware=hardware)) == []
    if cluster == "box":
        assert main(["launch", "--script", str(script), "--cluster", "box", "--yes"]) == 1
        assert main(["ps", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--name", "x"], "name=x"),
        (["--gpus-per-node", "0"], "hardware.gpus_per_node=0"),
        (["--on-first-node"], "--on-first-node is for scripts"),
        (["--nodes", "2", "--sweep", "train.seed=1,2"], "hardware.nodes=2"),
    ],
)
def test_what_is_for_scripts_is_not_silently_dropped_beside_a_layout(
    profiles: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    profiles.write_text("")
    assert main(["launch", "local/grpo-tiny", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "code", "says"), [("3", 0, "would be launched on local"), ("0", 1, "train.steps")])
def test_a_dry_run_of_a_layout_launches_nothing(
    profiles: Path, capsys: pytest.CaptureFixture[str], steps: str, code: int, says: str
) -> None:
    profiles.write_text("")
    assert main(["launch", "local/grpo-tiny", f"train.steps={steps}", "--dry-run"]) == code
    told = capsys.readouterr()
    assert says in told.out + told.err
    assert main(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []


def test_a_chain_that_is_refused_on_the_way_says_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(context: object, run_id: str, number: int, *_: object, **__: object) -> Launched:
        if number == 3:
            raise SubmitRefusedError("Slurm refused it.")
        return Launched(run_id=run_id, attempt=number, job_id=str(number), cluster="lab", path="/runs")

    monkeypatch.setattr(launch, "submit_attempt", submit)
    monkeypatch.setattr(launch, "submit_new", lambda context, layout, **_: submit(context, "tiny-1a2b", 1))
    monkeypatch.setattr(launch, "remembered", lambda *_: ())
    profile = Profile(name="lab", scheduler="slurm")
    context = SimpleNamespace(name="lab", cluster=SimpleNamespace(profile=profile, client=None))
    said = r"Slurm refused it\. 2 of 4 jobs of tiny-1a2b were submitted before, and stay\."
    with pytest.raises(RltuiError, match=said):
        launch.launch(context, "local/grpo-tiny", chain=4, unchecked=True)  # type: ignore[arg-type]
