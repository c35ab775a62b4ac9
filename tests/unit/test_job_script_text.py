"""The job script as text, and what bash makes of it without a Slurm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rltui.cluster.cluster import Attempt
from rltui.cluster.profile import BadNode, Profile
from rltui.errors import RltuiError
from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files, resolve
from rltui.layout.schema import Layout
from rltui.runs.script import (
    excluded_nodes,
    is_exclusive,
    preview_script,
    render_script,
    signal_lead_s,
)

LAB = Profile(name="lab", gres="gpu:h100", gpus_per_node=4, partition="gpu", account="rl", qos="high")
CANARY = "hf_" + "A1b2C3d4" * 4


def layout(*words: str, preset: str = "local/grpo-tiny") -> Layout:
    return load_layout(resolve(preset), words).layout


def attempt(path: Path | str = "/runs/r/attempts/01", **changes: str) -> Attempt:
    words = {"run_id": "r", "uuid": "0" * 32, "code": "/code", **changes}
    return Attempt(number=1, path=str(path), **words)


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_scripts_of_all_presets_are_clean_shell(tmp_path: Path) -> None:
    profiles = [LAB, msgspec.structs.replace(LAB, setup_lines=["module load cuda", "export X=1"], env={"A": "it's"})]
    paths = []
    for name, _ in preset_files():
        for number, profile in enumerate(profiles):
            paths.append(tmp_path / f"{name.replace('/', '_')}-{number}.sbatch")
            paths[-1].write_text(preview_script(layout(preset=name), profile))
            subprocess.run(["bash", "-n", str(paths[-1])], check=True)
    done = subprocess.run(["shellcheck", *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[:3000]


def test_what_slurm_is_told() -> None:
    words = [
        "slurm.time=02:00:00",
        "slurm.constraint=h100&ib",
        "slurm.exclude=[n1]",
        "slurm.options=[--reservation=rl]",
    ]
    bad = [BadNode(node="n2"), BadNode(node="n3", until="2000-01-01"), BadNode(node="n1", until="2999-01-01")]
    profile = msgspec.structs.replace(LAB, bad_nodes=bad)
    script = render_script(layout(*words, preset="open-instruct/grpo-7b-2x4-tp1"), profile, attempt())
    assert directives(script) == [
        "--job-name=grpo-7b-2x4-tp1-00000000",
        "--comment=rltui:" + "0" * 32,
        "--nodes=2",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--gres=gpu:h100:4",
        "--time=02:00:00",
        "--partition=gpu",
        "--account=rl",
        "--qos=high",
        "--constraint=h100&ib",
        "--exclude=n1,n2",
        "--output=/runs/r/attempts/01/slurm-%j.out",
        "--open-mode=append",
        "--signal=B:USR2@600",
        "--requeue",
        "--reservation=rl",
    ]


def test_a_layout_on_cpu_shares_its_nodes_unless_it_says_otherwise() -> None:
    words = directives(render_script(layout("slurm.mem_gib=16", "slurm.requeue=false"), LAB, attempt()))
    assert {"--cpus-per-task=4", "--mem=16G", "--no-requeue"} <= set(words)
    assert not [word for word in words if word.startswith(("--gres", "--exclusive"))]
    assert is_exclusive(layout("slurm.exclusive=true"), LAB)
    gpu = "open-instruct/grpo-7b-2x4-tp1"
    assert is_exclusive(layout(preset=gpu), LAB)
    assert not is_exclusive(layout(preset=gpu), msgspec.structs.replace(LAB, gpus_per_node=8))
    assert not is_exclusive(layout("slurm.exclusive=false", preset=gpu), LAB)


@pytest.mark.parametrize(
    ("time", "wanted", "lead"),
    [
        ("24:00:00", 600, 600),
        ("00:30:00", 600, 360),
        ("00:02:00", 600, 60),
        ("1-00:00:00", 7200, 7200),
        ("x", 600, 600),
    ],
)
def test_the_warning_of_a_short_job_does_not_come_at_its_start(time: str, wanted: int, lead: int) -> None:
    assert signal_lead_s(layout(f"slurm.time={time}", f"slurm.signal_lead_s={wanted}")) == lead


def test_bad_nodes_come_back_on_their_day() -> None:
    profile = msgspec.structs.replace(LAB, bad_nodes=[BadNode(node="n1", until="2026-11-20")])
    assert excluded_nodes(layout(), profile, "2026-11-19") == ["n1"]
    assert excluded_nodes(layout(), profile, "2026-11-20") == []


@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "a\nb", 'a"b', "a\0b", "a'b", "a\\b"])
@pytest.mark.parametrize("key", ["partition", "account", "qos", "constraint", "gres"])
def test_a_directive_with_a_line_break_or_quote_is_refused(key: str, value: str) -> None:
    gpu = layout(preset="open-instruct/grpo-7b-2x4-tp1")
    with pytest.raises(RltuiError) as refused:
        render_script(gpu, msgspec.structs.replace(LAB, **{key: value}), attempt())
    assert "\n#" not in refused.value.message
    if key == "gres":
        return
    section = msgspec.structs.replace(gpu.slurm, **{key: value})
    with pytest.raises(RltuiError):
        render_script(msgspec.structs.replace(gpu, slurm=section), LAB, attempt())


@pytest.mark.parametrize("option", ["--comment=x", "--uid=0", "--wrap=x", "--output=/x", "--signal=KILL"])
def test_options_that_the_script_owns_are_refused(option: str) -> None:
    with pytest.raises(RltuiError, match="is set by rltui"):
        render_script(layout(f"slurm.options=[{option}]"), LAB, attempt())


@pytest.mark.parametrize(
    ("option", "instead"),
    [("--clusters=b", "a profile is one cluster"), ("--gpus-per-socket=2", "hardware.gpus_per_node"),
     ("--tres-per-task=gres/gpu:1", "hardware.gpus_per_node"), ("--gpus=8", "hardware.gpus_per_node")],
)  # fmt: skip
def test_an_option_that_a_key_says_is_refused_with_that_key(option: str, instead: str) -> None:
    with pytest.raises(RltuiError, match=f"is set by rltui: .*{instead}"):
        render_script(layout(f"slurm.options=['{option}']"), LAB, attempt())


@pytest.mark.parametrize("option", ["-p x", "--x y", "--x=a b", "x", '--x="y"', "--x=y#z", "--x=a\\b", "--x=a\nb"])
def test_options_that_are_no_options_are_no_layout(option: str) -> None:
    with pytest.raises(RltuiError):
        layout(f"slurm.options={json.dumps([option])}")


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"HF_TOKEN": "x"}},
        {"env": {"INNOCENT": CANARY}},
        {"env_file": f"/x/{CANARY}"},
        {"setup_lines": [f"echo {CANARY}"]},
    ],
)
def test_no_secret_gets_into_a_script(change: dict[str, Any]) -> None:
    with pytest.raises(RltuiError) as refused:
        render_script(layout(), msgspec.structs.replace(LAB, **change), attempt())
    assert CANARY not in str(refused.value)
    assert "env_file" in refused.value.hint


class Shell:
    """Runs scripts with bash alone: the driver's Python is a program that notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.attempt = folder, folder / "-r 100% $(touch pwned) ; touch pwned #" / "attempts" / "01"
        self.attempt.mkdir(parents=True)
        self.driver = folder / "driver"
        self.driver.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >>"$0.called"; env >"$0.env"\n')
        self.driver.chmod(0o755)

    def run(self, job: str = "7", restart: str = "", **profile: Any) -> subprocess.CompletedProcess[str]:
        known = msgspec.structs.replace(LAB, **{"python": str(self.driver), **profile})
        script = render_script(layout(), known, attempt(self.attempt))
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "SLURM_JOB_ID": job}
        environment.update({"SLURM_RESTART_COUNT": restart} if restart else {})
        return subprocess.run(
            ["bash"], input=script, capture_output=True, text=True, env=environment, cwd=self.folder, timeout=60
        )

    def calls(self) -> int:
        called = Path(f"{self.driver}.called")
        return called.read_text().count("rltui.onnode.slurm_job") if called.exists() else 0

    def end(self) -> dict[str, Any]:
        return dict(json.loads((self.attempt / "end.json").read_text()))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_hostile_values_are_text_to_the_shell(shell: Shell) -> None:
    values = {"A": "$(touch pwned)\n`touch pwned`'; touch pwned; '", "B": "\\", "C": "é\t$HOME"}
    done = shell.run(env=values, env_file="~/x; touch pwned", network_interface="eth0; touch pwned")
    assert done.returncode == 0, done.stderr
    assert shell.calls() == 1
    called = Path(f"{shell.driver}.called").read_text().splitlines()
    assert called == ["-m", "rltui.onnode.slurm_job", "--attempt", str(shell.attempt), "--lead-s", "600"]
    environment = Path(f"{shell.driver}.env").read_text()
    for name, value in {**values, "RLTUI_NETWORK_INTERFACE": "eth0; touch pwned"}.items():
        assert f"{name}={value}\n" in environment
    assert not list(shell.folder.rglob("pwned"))


def test_a_second_copy_of_a_submission_ends_at_once(shell: Shell) -> None:
    assert shell.run("7").returncode == 0
    for restart in ("", "1"):
        again = shell.run("8", restart)
        assert again.returncode == 0
        assert "is job 7 already" in again.stderr
    assert "is job 7 already" in shell.run("7").stderr  # the same number of another controller's life
    assert shell.calls() == 1
    assert not (shell.attempt / "end.json").exists()
    assert shell.run("7", restart="1").returncode == 0
    assert shell.calls() == 2


def test_a_set_up_line_that_fails_says_so_where_rltui_looks(shell: Shell) -> None:
    done = shell.run(setup_lines=["true", "echo $UNSET; ls /nowhere"])
    assert done.returncode == 1
    assert shell.calls() == 0
    assert (shell.end()["outcome"], shell.end()["exit_code"]) == ("failed", 1)
    assert "set-up in the job script ended with code 2; see slurm-7.out" in shell.end()["reason"]


def test_a_set_up_line_that_was_told_to_end_before_the_script_is_the_end_of_the_job(shell: Shell) -> None:
    assert shell.run(setup_lines=["sh -c 'kill -TERM $$'"]).returncode == 1
    assert (shell.end()["outcome"], shell.calls()) == ("cancelled", 0)
    assert "while the job was being set up" in shell.end()["reason"]


def test_a_missing_python_says_so_where_rltui_looks(shell: Shell) -> None:
    assert shell.run(python="/nowhere/python").returncode == 1
    assert "python of the cluster's profile was not found" in shell.end()["reason"]


def test_a_folder_that_is_not_there_is_no_second_copy(shell: Shell) -> None:
    shell.attempt.rmdir()
    done = shell.run()
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
