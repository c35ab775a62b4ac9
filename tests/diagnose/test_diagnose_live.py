"""Failures provoked here and now: the real words of the libraries that are installed get the right diagnosis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

FAILURES = Path(__file__).parent / "live_failures.py"
DEADLINE_S = 550

OPERATING_SYSTEM = {
    "plain_disk_full": "disk_full",
    "open_files": "too_many_open_files",
    "socket_path": "ray_socket_path",
    "no_module": "env_import_broken",
    "threads": "ray_actor_died",
    "memory_limit": "host_oom_slurm",
}
TORCH = {
    "port": "port_in_use",
    "store": "gloo_timeout",
    "peer": "gloo_timeout",
    "nan_backward": "nan_or_loss_scale",
    "nan_sampling": "nan_or_loss_scale",
    "loader": "dataloader_killed",
    "cut_checkpoint": "ckpt_broken",
    "other_sizes": "ckpt_broken",
    "bad_safetensors": "ckpt_broken",
    "save_to_full_disk": "disk_full",
    "host_memory": "host_oom_slurm",
}
HUB = {
    "hub_offline": "hf_offline_miss",
    "no_template": "chat_template_missing",
    "wandb_no_key": "wandb_auth",
    "batch": "ds_batch_assert",
}
RAY = {
    "group": "ray_pg_infeasible",
    "other_version": "ray_version_mismatch",
    "ray_port": "ray_port_in_use",
    "unreachable_gcs": "ray_head_unreachable",
    "actor": "ray_actor_died",  # the last: its raylet tells of the death when it has the time
}
VLLM = {
    "heads": "engine_tp_heads",
    "context": "engine_max_model_len",
    "no_cache": "engine_kv_no_blocks",
    "small_cache": "engine_kv_max_len",
}


def provoke(names: dict[str, str], home: Path) -> dict[str, str]:
    """Run the failures of ``names`` in one process, and return what each printed."""
    environ = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "online", "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, str(FAILURES), *names],
        env=environ,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=DEADLINE_S,
        check=False,
    )
    output = done.stdout.decode(errors="replace")
    parts = dict(part.split("\n", 1) for part in output.split("=====")[1:])
    assert set(parts) == set(names), output[-2000:]
    return parts


def check(names: dict[str, str], home: Path) -> None:
    """Every failure gets its diagnosis as the first cause."""
    wrong = {}
    for name, output in provoke(names, home).items():
        causes = [one.id for one in diagnose([text_source(name, output)]) if not one.secondary]
        if causes[:1] != [names[name]]:
            wrong[name] = (causes, output[-1500:])
    assert not wrong


def test_failures_of_the_operating_system(tmp_path: Path) -> None:
    check(OPERATING_SYSTEM, tmp_path)


@pytest.mark.trainers
@pytest.mark.slow
def test_failures_of_torch(tmp_path: Path) -> None:
    check(TORCH, tmp_path)


@pytest.mark.trainers
@pytest.mark.slow
def test_failures_of_hub_tracker_and_deepspeed(tmp_path: Path) -> None:
    check(HUB, tmp_path)


@pytest.mark.trainers
@pytest.mark.slow
def test_failures_of_ray(tmp_path: Path) -> None:
    check(RAY, tmp_path)


@pytest.mark.vllm
@pytest.mark.slow
def test_failures_of_vllm(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    check(VLLM, tmp_path)
