"""``rltui check --cluster C --live`` against a real Slurm, over SSH."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from verbs import rltui

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

LAYOUT = """
layout: 1
name: live
algorithm: grpo
hardware: {nodes: 2, gpus_per_node: 4, gpu: H100-SXM-80GB}
roles:
  learner: {model: Qwen/Qwen2.5-0.5B, gpus: [2, 2], zero_stage: 3, micro_batch: 1, gradient_checkpointing: true}
  rollout: {engines: 4}
train: {steps: 100, prompts_per_step: 32, samples_per_prompt: 8, learning_rate: 1.0e-6}
lengths: {prompt: 1024, response: 4096}
data: {train: org/math, reward: math}
checkpoint: {every: 0}
slurm: {time: "00:30:00"}
"""


class Laptop:
    """A home folder from which the lab is reached, with one profile."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        ssh = lab.ssh_settings()
        self.folder, self.ssh_config = folder, ssh.config
        self.profile: dict[str, Any] = {
            "transport": "paramiko", "host": "lab", "run_root": "~/runs", "gpu": "H100-SXM-80GB", "python": "/bin/true",
        }  # fmt: skip
        (folder / "live.yaml").write_text(LAYOUT)

    def check(self, *words: str) -> tuple[int, dict[str, str], str]:
        """Exit code, message by code of the findings, and what was said on stderr."""
        config = self.folder / "config" / "rltui"
        config.mkdir(parents=True, exist_ok=True)
        (config / "clusters.yaml").write_text(yaml.safe_dump({"lab": self.profile}))
        (config / "clusters.yaml").chmod(0o600)
        asked = ("check", "live.yaml", "--cluster", "lab", "--live", "--json", *words)
        environ = {**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config")}
        environ["RLTUI_SSH_CONFIG"] = str(self.ssh_config)
        done = rltui(asked, self.folder, environ)
        found = [one for file in json.loads(done.stdout).get("files", ()) for one in file["findings"]]
        return done.returncode, {finding["code"]: finding["message"] for finding in found}, done.stderr


@pytest.fixture
def laptop(tmp_path: Path, slurm_cluster: Lab) -> Laptop:
    return Laptop(tmp_path, slurm_cluster)


def test_a_layout_that_the_cluster_can_run(laptop: Laptop) -> None:
    code, found, said = laptop.check()
    assert said == ""
    assert code == 0, found
    assert not [code for code in found if code.startswith(("S61", "H41", "D52"))]


def test_what_the_cluster_has_not(laptop: Laptop, slurm_cluster: Lab) -> None:
    slurm_cluster.exec("ctl", ["scontrol", "update", "nodename=node1,node2", "state=drain", "reason=ecc"], user="root")
    laptop.profile |= {"offline": True, "partition": "nowhere", "python": "/opt/none/python"}
    code, found, _ = laptop.check("slurm.account=nobody", "slurm.exclude=[node9]")
    assert code == 1
    assert "nowhere" in found["S613"]
    assert "partition" in found["S631"], "sbatch is asked too"
    assert "/opt/none/python" in found["S632"]
    assert "rlteam" in found["S617"]
    assert "node9" in found["S621"]
    assert "Qwen/Qwen2.5-0.5B" in found["D520"]
    laptop.profile["partition"] = ""
    slurm_cluster.exec("login", ["mkdir", "-p", ".cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B"])
    code, found, _ = laptop.check()
    assert code == 1
    assert "ecc" in found["S619"]
    assert "D520" not in found


def test_a_cluster_that_does_not_answer_is_not_a_finding(laptop: Laptop, slurm_cluster: Lab) -> None:
    laptop.profile["port"] = 1
    code, found, said = laptop.check()
    assert (code, found) == (3, {})
    assert said.startswith("rltui: ")
    assert "Traceback" not in said
