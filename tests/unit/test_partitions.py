"""One profile with several partitions: what holds in each, and which one a launch takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltui.check.run import check_file
from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.profile import PartitionProfile, Profile, in_partition
from rltui.cluster.profile_files import ProfileFile
from rltui.cluster.profiles import merge_profiles
from rltui.layout.presets import resolve
from rltui.runs.script import preview_script
from rltui.service.context import Context
from rltui.service.launch import chosen_partition, launchable
from rltui.service.scripts import in_freest_partition, prepare
from rltui.service.wishes import read_wishes

TEXT = """
alps:
  partition: normal
  account: a17
  gpu: H100-SXM-80GB
  gpus_per_node: 4
  max_time: 1-00:00:00
  partitions:
    debug: {max_time: 00:30:00, qos: short}
    big: {gpu: H200-SXM-141GB, gpus_per_node: 8, gres: "gpu:h200"}
"""
PRESET = "local/grpo-tiny"
ONE_GPU = ["hardware.gpus_per_node=2", "hardware.gpu=H100-SXM-80GB", "roles.learner.gpus=[1]", "slurm.time=00:20:00"]


@pytest.fixture
def profile() -> Profile:
    profiles = merge_profiles([ProfileFile(path="c.yaml", kind="user", used=True, text=TEXT, sha256="x")])
    assert not profiles.problems
    return profiles.get("alps")


def test_a_partition_has_its_own_limits_and_cards_and_the_rest_of_the_profile(profile: Profile) -> None:
    debug, big = in_partition(profile, "debug"), in_partition(profile, "big")
    assert (debug.partition, debug.max_time, debug.qos, debug.account) == ("debug", "00:30:00", "short", "a17")
    assert (big.gpu, big.gpus_per_node, big.max_time) == ("H200-SXM-141GB", 8, "1-00:00:00")
    assert in_partition(profile, "normal") is profile
    assert in_partition(profile, "") is profile


def test_the_script_of_a_partition_asks_for_its_cards(profile: Profile) -> None:
    words = ["hardware.gpu=H200-SXM-141GB", *ONE_GPU[:1], ONE_GPU[2], "slurm.partition=big"]
    loaded = check_file(resolve(PRESET), words).loaded
    assert loaded is not None
    script = preview_script(loaded.layout, profile)
    assert "#SBATCH --gres=gpu:h200:2" in script
    assert "#SBATCH --partition=big" in script


def facts(**free: int) -> ClusterFacts:
    """Partitions with one node each, of which so many GPUs are free."""
    return ClusterFacts(
        partitions=tuple(PartitionFacts(name=name) for name in free),
        nodes=tuple(
            NodeFacts(name=f"{name}1", partitions=(name,), state="mixed", gpus=8, gpus_used=8 - left)
            for name, left in free.items()
        ),
    )


def open_to(profile: Profile, found: ClusterFacts, monkeypatch: pytest.MonkeyPatch) -> Context:
    """A cluster that offers this much right now."""
    monkeypatch.setattr("rltui.cluster.gather_facts.recent_facts", lambda _: found)
    context: Any = SimpleNamespace(cluster=SimpleNamespace(profile=profile, client=None))
    there: Context = context
    return there


@pytest.mark.parametrize(
    ("words", "found", "chosen"),
    [
        (ONE_GPU, facts(normal=4, debug=4, big=8), "normal"),
        (ONE_GPU, facts(normal=0, debug=4, big=8), "debug"),
        # it is too long for debug, and made for another card than big has
        ([*ONE_GPU[:3], "slurm.time=02:00:00"], facts(normal=0, debug=4, big=8), "normal"),
        ([ONE_GPU[0], "hardware.gpu=H200-SXM-141GB", *ONE_GPU[2:]], facts(normal=8, debug=8, big=8), "big"),
        ([*ONE_GPU, "slurm.partition=normal"], facts(normal=0, debug=4, big=8), ""),
    ],
)
def test_a_launch_takes_the_partition_with_its_card_and_most_nodes_free(
    profile: Profile, monkeypatch: pytest.MonkeyPatch, words: list[str], found: ClusterFacts, chosen: str
) -> None:
    there = open_to(profile, found, monkeypatch)
    assert chosen_partition(there, launchable(check_file(resolve(PRESET), words))) == chosen


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        (["slurm.time=00:20:00"], "debug"),
        (["slurm.time=02:00:00"], "normal"),
        (["slurm.time=00:20:00", "--gpu", "H200-SXM-141GB"], "big"),
        (["slurm.time=00:20:00", "slurm.partition=normal"], "normal"),
    ],
)
def test_so_does_a_script(
    profile: Profile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wishes: list[str], chosen: str
) -> None:
    there = open_to(profile, facts(normal=0, debug=4, big=8), monkeypatch)
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho step 1\n")
    asked = read_wishes(["--nodes", "1", "--gpus-per-node", "2", *wishes])
    job = prepare(str(tmp_path / "run.sh"), asked, profile).job
    assert in_freest_partition(there, job).slurm.partition == chosen


def test_a_profile_without_partitions_leaves_the_choice_to_slurm() -> None:
    context: Any = SimpleNamespace(cluster=SimpleNamespace(profile=Profile(name="bare"), client=None))
    assert chosen_partition(context, launchable(check_file(resolve(PRESET)))) == ""
    assert in_partition(Profile(name="bare", partitions={"x": PartitionProfile()}), "x").partition == "x"
