"""The self-test by the verb: here on CPU, with a fault planted in one part, and over two nodes of a real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import verbs
from slurm_support import profile_file
from test_local_cluster import PYTHON
from workstation import python_that_forks

from forks import server_of_session, write_forking_python
from rltui.layout.selftest import PARTS

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(900)]


def rltui(folder: Path, *words: str, expect: int = 0, **more: str) -> str:
    names = {"RLTUI_RUN_ROOT": "runs", "RLTUI_STATE_DIR": "state", "RLTUI_CONFIG_DIR": "config"}
    environment = {**os.environ, **{name: str(folder / part) for name, part in names.items()}, **more}
    return verbs.rltui(words, ROOT, environment, codes=(expect,)).stdout


def by_part(told: str) -> dict[str, dict[str, Any]]:
    return {f"{row['part']} {row['what']}".rstrip(): row for row in json.loads(told)["rows"]}


def test_here_on_cpu_every_part_has_a_verdict_a_figure_or_a_reason(tmp_path: Path) -> None:
    parts = ("clock", "disk", "card", "all-reduce", "weights", "grpo", "resume", "tensor-parallel")
    write_forking_python(tmp_path / "python", server_of_session())
    words = ("--only", ",".join(parts), "--yes", "--json")
    told = rltui(tmp_path, "selftest", *words, **{PYTHON: str(tmp_path / "python")})
    rows = by_part(told)
    answer = json.loads(told)
    assert (answer["ok"], answer["state"], answer["parts"]) == (True, "finished", list(parts))
    skipped = {name: row["figure"] for name, row in rows.items() if row["verdict"] == "skipped"}
    assert skipped == {
        "clock": "there is one node",
        "card copies to and from the host": "there is no card",
        "all-reduce over nodes": "there is one node",
        "grpo memory": "torch measures it on cards only",
        "tensor-parallel": "there is no card: over CPU slots it says nothing of one",
    }
    for name, number in {
        "disk": "disk_write_bytes_per_s",
        "card memory bandwidth": "bandwidth_bytes_per_s",
        "card fp32 matrix product": "matmul_flops_per_s",
        "all-reduce in a node": "all_reduce_node_bytes_per_s",
        "weights to an engine of 1 rank": "weights_1_bytes_per_s",
        "weights to an engine of 2 ranks": "weights_2_bytes_per_s",
        "weights to an engine on the learner's card": "weights_shared_bytes_per_s",
        "grpo speed": "tokens_per_s",
    }.items():
        assert rows[name]["verdict"] == "ok"
        assert rows[name]["measured"][number] > 0
    assert 0 < rows["grpo trainer and engine agree"]["measured"]["parity_max_abs"] < 1e-4
    assert rows["resume"]["figure"].startswith("steps 3 to 4 are the same again")
    assert answer["plan"] == "plan takes nothing of it: it ran without cards"

    (run,) = json.loads(rltui(tmp_path, "ps", "--json"))["runs"]
    assert (run["run_id"], run["name"], run["stage"]["step"]) == (answer["run_id"], "selftest", len(parts))
    table = rltui(tmp_path, "selftest", "--of", run["run_id"])
    assert "✓ ok       disk " in table
    assert "do:" not in table


def test_a_model_that_is_none_costs_its_parts_only_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": "qwen3"}')
    write_forking_python(tmp_path / "python", server_of_session())
    words = ("--only", "packing,grpo,disk", "--model", str(tmp_path / "model"))
    table = rltui(tmp_path, "selftest", *words, "--yes", expect=1, **{PYTHON: str(tmp_path / "python")})
    told = rltui(tmp_path, "selftest", "--of", "selftest", "--json", expect=1)
    rows = by_part(told)
    assert {name: row["verdict"] for name, row in rows.items()} == {"disk": "ok", "packing": "failed", "grpo": "failed"}
    assert str(tmp_path / "model") in rows["packing"]["figure"]
    assert f"do: `rltui logs {json.loads(told)['run_id']}` has the output of the part that failed" in table
    (run,) = json.loads(rltui(tmp_path, "ps", "--json"))["runs"]
    assert (run["state"], run["end"]["reason"]) == ("failed", "2 of 3 parts failed: packing, grpo")


def test_a_preview_submits_nothing_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    shown = rltui(tmp_path, "selftest", "--dry-run")
    assert [line.split()[0] for line in shown.splitlines()[2:]] == [part.name for part in PARTS]
    told = json.loads(
        rltui(
            tmp_path, "selftest", "--dry-run", "--json", "--nodes", "2", "--gpus", "4", "--gpu", "H100", "--only=disk"
        )
    )
    assert [part["part"] for part in told["parts"]] == ["disk"]
    assert told["layout"]["roles"]["learner"]["gpus"] == [1, 1]
    assert told["layout"]["slurm"]["time"] == "00:10:00"
    rltui(tmp_path, "selftest", "--only", "nonsense", expect=2)
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.parametrize(("model", "offload"), [("Qwen/Qwen3-1.7B", "none"), ("Qwen/Qwen3-8B", "optimizer")])
def test_a_model_of_the_users_is_trained_so_that_it_fits_one_card(tmp_path: Path, model: str, offload: str) -> None:
    words = ("--gpus", "1", "--gpu", "H100", "--model", model, "--dry-run", "--json")
    learner = json.loads(rltui(tmp_path, "selftest", *words))["layout"]["roles"]["learner"]
    assert learner["offload"] == offload
    assert learner["gradient_checkpointing"]
    assert learner["micro_batch"] == 8


def test_make_gpu_says_loudly_what_it_could_not_show() -> None:
    argv = [sys.executable, "tests/bench/gpu.py"]
    done = subprocess.run(argv, cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("NO CARD HERE (there is no nvidia-smi)")
    assert len(done.stdout.splitlines()) == 1 + len(PARTS)


def test_over_two_nodes_of_slurm_links_clocks_and_a_killed_engine(slurm_cluster: Lab, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(profile_file(python_that_forks(slurm_cluster)))
    parts = "versions,clock,disk,all-reduce,weights,engine-killed"
    words = ("selftest", "--cluster", "lab", "--nodes", "2", "--gpus", "0", "--only", parts, "--json")
    told = rltui(tmp_path, *words, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    rows = by_part(told)
    assert json.loads(told)["ok"]
    assert rows["versions packages"]["figure"].startswith("python 3.")
    assert rows["versions kernels"]["figure"] == "the slots are CPU processes"
    assert "node2 is" in rows["clock"]["figure"]
    assert "written on one node, read on another" in rows["disk"]["figure"]
    assert rows["all-reduce over nodes"]["measured"]["all_reduce_network_bytes_per_s"] > 0
    assert "from node1 to node2" in rows["weights to an engine of 1 rank"]["figure"]
    assert rows["engine-killed"]["measured"]["restart_s"] > 0
