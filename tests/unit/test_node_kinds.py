"""Layouts with nodes of several kinds: who sits where, the picture, the job script and the driver's steps."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest
from check_cases import APART, BASES

from rltui.check.live import check_on
from rltui.check.run import check_layout
from rltui.cli.main import main
from rltui.cluster.profile import PartitionProfile, Profile
from rltui.layout.load import LoadedLayout, dump_layout, load_text
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_roles
from rltui.onnode import rundir
from rltui.onnode.allocation import (
    Allocation,
    NoAllocationError,
    Part,
    command_on,
    read_allocation,
    start_step_on,
)
from rltui.onnode.lost_nodes import LOG
from rltui.onnode.slurm_job import SlurmJob
from rltui.placement.draw import draw
from rltui.placement.result import as_json
from rltui.placement.simulate import place, place_bundles
from rltui.runs.directory import Attempt, job
from rltui.runs.script import preview_script

LAB = Profile(name="lab", partition="gpu", gpus_per_node=4, gres="gpu:h100", gpu="H100-SXM-80GB")
TWO = (APART, "hardware.more.rollouts.nodes=2", "hardware.more.rollouts.gpus_per_node=2")


def loaded(*words: str) -> LoadedLayout:
    return load_text(BASES["gpu"], "gpu.yaml", [*TWO, *words])


def layout(*words: str) -> Layout:
    return loaded(*words).layout


def test_each_role_sits_on_nodes_of_its_kind_and_the_picture_says_which() -> None:
    assert draw(layout(), place(layout()))[:4] == (
        "node0 ┃ L0 ┃ L0 ┃ ·· ┃ ·· ┃ H100-SXM-80GB",
        "node1 ┃ L1 ┃ L1 ┃ ·· ┃ ·· ┃ H100-SXM-80GB",
        "node2 ┃ E0 ┃ E1 ┃ L40S (rollouts)",
        "node3 ┃ E2 ┃ E3 ┃ L40S (rollouts)",
    )
    homes = place_bundles(layout())
    assert {role: node for (role, _), node in homes.items()} == {"learner": 1, "engine": 3}


def test_gpus_of_another_kind_hold_no_engine() -> None:
    placement = place(layout("roles.rollout.engines=5"))
    assert [(each.role, each.index) for each in placement.unplaced] == [("engine", 4)]
    assert {each.node for each in placement.stranded} == {0, 1}


def test_json_tells_the_slots_of_each_node_where_they_differ(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "layout.yaml"
    file.write_text(dump_layout(layout()))
    main(["draw", str(file), "--json"])
    placement = json.loads(capsys.readouterr().out)["placement"]
    assert (placement["nodes"], placement["slots"]) == (4, [4, 4, 2, 2])
    assert "slots_per_node" not in placement
    alike = as_json(place(load_text(BASES["gpu"], "gpu.yaml").layout))
    assert alike is not None
    assert alike["slots_per_node"] == 4
    assert "slots" not in alike


def test_memory_is_of_the_card_that_a_role_is_on() -> None:
    capacities = {role.role: role.capacity_gib for role in estimate_roles(layout()).roles}
    assert capacities["learner"] > capacities["rollout"] > 0  # type: ignore[operator]


def test_the_job_has_a_component_for_each_kind() -> None:
    words = ("slurm.partition=big", "slurm.constraint=ib", "slurm.licenses=data", "slurm.account=team")
    more = ("hardware.more.rollouts.partition=small", "hardware.more.rollouts.gres=gpu:l40s")
    first, second = preview_script(layout(*words, *more), LAB).split("#SBATCH hetjob\n")
    second = second.partition("\n\n")[0]
    for line in ("nodes=2", "gres=gpu:h100:4", "partition=big", "constraint=ib", "licenses=data", "account=team"):
        assert f"#SBATCH --{line}\n" in first
    for line in ("nodes=2", "gres=gpu:l40s:2", "partition=small", "account=team", "time=24:00:00", "job-name=gpu-UUID"):
        assert f"#SBATCH --{line}\n" in second
    assert second.endswith("#SBATCH --requeue")
    for word in ("constraint", "licenses", "output", "signal"):
        assert f"--{word}" not in second


def test_a_component_is_asked_for_as_the_profile_knows_its_partition() -> None:
    small = PartitionProfile(gres="gpu:l4", gpus_per_node=8, constraint="new")
    script = preview_script(layout("hardware.more.rollouts.partition=small"), with_partition(small))
    second = script.split("#SBATCH hetjob\n")[1]
    assert "--gres=gpu:l4:2\n" in second
    assert "--constraint=new\n" in second
    assert "--cpus-per-task=3\n" in second, "two of eight GPUs do not take the whole node"


def with_partition(small: PartitionProfile) -> Profile:
    return Profile(name="lab", partition="gpu", gpus_per_node=4, partitions={"small": small})


def test_findings_about_a_further_kind_name_its_keys() -> None:
    small = PartitionProfile(gpu="L40S", gpus_per_node=1)
    report = check_on(check_layout(loaded("hardware.more.rollouts.partition=small")), with_partition(small))
    [finding] = [finding for finding in report.findings if finding.code == "H411"]
    assert finding.key == "hardware.more.rollouts.gpus_per_node"


def test_the_supervisor_is_told_what_each_kind_has() -> None:
    told = job(layout(), Attempt(run_id="r", number=1, uuid="u", path="/r/attempts/01", code="/c"), "python3")
    assert told["ray"] == told["parts"][0] == {"cpus": 5, "gpus": 4}
    assert told["parts"][1] == {"cpus": 3, "gpus": 2}


HET = {
    "SLURM_JOB_ID": "7", "SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST": "a1,a2", "SLURM_JOB_CPUS_PER_NODE": "8(x2)",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "a1,a2", "SLURM_JOB_NODELIST_HET_GROUP_1": "b1,b2",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4,3",
}  # fmt: skip


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's unfolding of a node list, for lists that are not folded."""
    tool = tmp_path / "scontrol"
    tool.write_text('#!/bin/sh\n[ "$2" = hostnames ] && echo "$3" | tr , "\\n"\n')
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.usefixtures("scontrol")
def test_the_driver_sees_the_components_of_its_job() -> None:
    found = read_allocation(HET, "a2")
    assert (found.nodes, found.cpus) == (["a2", "a1", "b1", "b2"], 8)
    assert found.parts == (Part(["a2", "a1"], 8), Part(["b1", "b2"], 3))
    assert [found.part_of(node) for node in found.nodes] == [0, 0, 1, 1]
    plain = {name: value for name, value in HET.items() if "HET" not in name}
    assert read_allocation(plain, "a1").parts == ()


@pytest.mark.usefixtures("scontrol")
def test_two_components_on_one_node_are_refused() -> None:
    with pytest.raises(NoAllocationError, match=r"are both a1; slurm\.exclusive"):
        read_allocation({**HET, "SLURM_JOB_NODELIST_HET_GROUP_1": "a1,b2"}, "a2")


def test_one_step_runs_on_the_nodes_of_several_components() -> None:
    allocation = Allocation(7, 0, ["a1", "b1"], 8, None, (Part(["a1"], 8), Part(["b1"], 3)))
    words = command_on(allocation, ["a1", "b1"], lambda part: ["do", str(part)])
    colon = words.index(":")
    first, second = words[:colon], words[colon + 1 :]
    assert (first[0], first[-2:]) == ("srun", ["do", "0"])
    assert {"--het-group=0", "--nodelist=a1", "--cpus-per-task=8"} <= set(first)
    assert (second[0], second[-2:]) == ("--overlap", ["do", "1"])
    assert {"--het-group=1", "--nodelist=b1", "--cpus-per-task=3"} <= set(second)
    apart = command_on(allocation, ["b1"], lambda part: [str(part)])
    assert apart[-1] == "1"
    alike = command_on(allocation._replace(parts=()), ["a1"], lambda part: ["do"])
    assert not [word for word in alike if word.startswith("--het-group")]


def test_only_a_step_on_components_hears_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nenv\n")
    srun.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_HET_SIZE", "2")
    plain = Allocation(7, 0, ["nid1"], 4, None)
    for allocation in (plain, plain._replace(parts=(Part(["nid1"], 4), Part(["nid2"], 4)))):
        with (tmp_path / "out").open("wb") as out:
            step = start_step_on(allocation, ["nid1"], lambda part: ["true"], subprocess.DEVNULL, out, out)
            assert step.wait() == 0
        assert ("SLURM_HET_SIZE=2" in (tmp_path / "out").read_text()) is bool(allocation.parts)


class NamelessAgents:
    """Agents of which none has failed while srun still waits for the step of a lost node."""

    failed: ClassVar[dict[str, str]] = {}

    def problem(self) -> str:
        return ""


def test_a_node_that_was_named_as_lost_stays_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no scontrol
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    rundir.write_json(str(attempt / "job.json"), {"uuid": "u", "deadlines_s": {"grace": 20}})
    job = SlurmJob(str(attempt), Allocation(7, 0, ["nid1", "nid2"], 4, None), 600.0, str(attempt / "slurm-7.out"))
    words = "slurmstepd-nid1: error: *** JOB 7 ON nid1 CANCELLED AT 2026-11-20T10:00:00 DUE TO NODE FAILURE, SEE …"
    Path(job.output).write_text(words)
    Path(job.attempt, LOG).write_text("srun: error: Node failure on nid2\n")
    job.on_cancel()
    job.agents = NamelessAgents()  # type: ignore[assignment]
    job.ray_problem()
    assert job.end_details()["bad_nodes"].keys() == {"nid2"}
    assert job.request is not None
    assert job.request.reason == "node failure on nid2"
