"""What the process of a role is given from its start: threads, and how its card's memory grows."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
from trainer_support import LAYOUT, ROOT

from rltui.layout.load import load_layout
from rltui.onnode.ray_start import START_OWN
from trainers.roles.card import importing, share_of_cpus
from trainers.roles.learner import Learner
from trainers.roles.processes import role_environment

pytestmark = pytest.mark.trainers

CARDS = ROOT / "layouts" / "open-instruct" / "grpo-7b-2x4-uneven.yaml"
SPLIT = ROOT / "layouts" / "verl-ppo" / "ppo-1x3-split.yaml"
GROWING = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (GROWING, "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def test_a_trained_cards_memory_grows_unless_another_process_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, split = (load_layout(path).layout for path in (CARDS, SPLIT))
    assert role_environment(apart, "learner")[GROWING] == "expandable_segments:True"
    assert role_environment(split, "critic")[GROWING] == "expandable_segments:True"
    assert GROWING not in role_environment(split, "learner")  # its engines are on its cards
    assert GROWING not in role_environment(load_layout(LAYOUT).layout, "learner")
    assert GROWING not in role_environment(apart, "engine")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")
    assert GROWING not in role_environment(apart, "learner")
    assert "PYTORCH_ALLOC_CONF" not in role_environment(split, "learner")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64,expandable_segments: True")
    assert role_environment(split, "learner")["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:64,expandable_segments: False"
    assert "PYTORCH_ALLOC_CONF" not in role_environment(split, "critic")  # nobody opens it: the user's word stands
    assert GROWING not in role_environment(split, "critic")


def test_ray_starts_without_the_imports_of_its_serving() -> None:
    look = "from ray.scripts.scripts import start; sys.exit(len({'pandas', 'ray.serve'} & sys.modules.keys()))"
    program = START_OWN.rpartition("; sys.exit")[0]
    assert subprocess.run([sys.executable, "-c", f"{program}; {look}"], check=False).returncode == 0


def test_the_collector_rests_while_modules_are_imported_and_leaves_them_alone() -> None:
    kept = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > kept


def test_an_optimizer_in_host_memory_has_its_cards_share_of_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(50)))
    assert [share_of_cpus(cards) for cards in (0, 1, 4, 8, 64)] == [50, 50, 12, 6, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["hardware.gpus_per_node=4", "roles.learner.zero_stage=2"]
    offloads, stays = (
        Learner(load_layout(LAYOUT, [*words, f"roles.learner.offload={where}"]).layout, 0, "")
        for where in ("optimizer", "none")
    )
    slots = offloads._layout.hardware.ray_gpus_per_node
    assert offloads._threads(on_card=True) == 50 // slots > 1
    assert offloads._threads(on_card=False) == 1  # on CPU slots, tiny models are slower with more
    assert stays._threads(on_card=True) == 1


def test_a_reward_worker_has_as_many_threads_as_cores() -> None:
    layout = load_layout(LAYOUT, ["roles.reward.workers=1", "roles.reward.cpus_per_worker=3"]).layout
    assert role_environment(layout, "reward")["OMP_NUM_THREADS"] == "3"
    assert role_environment(layout, "learner")["OMP_NUM_THREADS"] == "1"
