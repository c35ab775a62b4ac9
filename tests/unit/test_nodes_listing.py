"""``rltui nodes``: which nodes are alike, which are out of service, and what that looks like."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rltui.cli import nodes as verb
from rltui.cli.main import main
from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.profile import BadNode, Profile
from rltui.onnode.bad_nodes import BadNode as Remembered
from rltui.onnode.bad_nodes import Evidence, record
from rltui.service.nodes import ClusterNodes, grouped

PROFILE = Profile(
    name="alpha",
    bad_nodes=[
        BadNode(node="n3", reason="NVLink errors", until="2999-12-01"),
        BadNode(node="n4", reason="healed", until="2026-11-01"),
    ],
)


def node(name: str, **changes: Any) -> NodeFacts:
    usual: dict[str, Any] = {
        "partitions": ("gpu",),
        "state": "idle",
        "gpu": "h100",
        "gpus": 8,
        "gpus_used": 0,
        "cpus": 64,
    }
    return NodeFacts(name=name, **(usual | changes))


FACTS = ClusterFacts(
    partitions=(PartitionFacts(name="gpu", is_default=True, max_time_s=86400), PartitionFacts(name="low", is_up=False)),
    nodes=(
        *(node(f"n{number}") for number in range(1, 6)),
        node("n6", state="mixed", gpus_used=6),
        node("n7", flags=("drain",), reason="GPU 3: Xid 79"),
        node("n8", state="allocated", flags=("drain",), gpus_used=8, reason="GPU 3: Xid 79"),
        node("n9", state="down", flags=("not_responding",), partitions=("low",), gpus_used=None),
        node("n10", flags=("not_responding",)),
        node("c1", gpu="", gpus=0),
    ),
)


FOUND = ClusterNodes(profile=PROFILE, facts=FACTS)
ECC = Evidence("ecc", "Xid (PCI:0000:3b:00): 48, GPU 3 of n5", "grpo-1a2b", 1, 1_793_000_000.0)
REMEMBERED = Remembered("n5", 1, ECC.at, ECC.at, ("ecc",), ECC.at + 86400, (ECC,))


def test_nodes_that_are_alike_are_one_group_and_free_ones_come_first() -> None:
    found = [
        (group.nodes, group.state, group.gpus_free, group.is_usable) for group in grouped(FOUND, today="2026-11-22")
    ]
    assert found == [
        (("n1", "n2", "n4", "n5"), "idle", 8, True),
        (("n6",), "mixed", 2, True),
        (("c1",), "idle", 0, True),
        (("n10",), "unresponsive", 8, False),
        (("n3",), "idle", 8, False),
        (("n7",), "drained", 8, False),
        (("n8",), "draining", 0, False),
        (("n9",), "down", None, False),
    ]
    reasons = {group.nodes[0]: group.reason for group in grouped(FOUND, today="2026-11-22")}
    assert reasons["n3"] == "avoided: NVLink errors"
    assert reasons["n7"] == "GPU 3: Xid 79"


def test_a_partitions_nodes_alone_can_be_had() -> None:
    assert [group.nodes for group in grouped(FOUND, "low", "2026-11-22")] == [("n9",)]


def test_a_remembered_node_is_a_group_of_its_own_that_jobs_may_still_get(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ClusterNodes(profile=PROFILE, facts=FACTS, bad=(REMEMBERED,))
    [group] = [group for group in grouped(found, today="2026-11-22") if "n5" in group.nodes]
    assert (group.nodes, group.is_usable) == (("n5",), True)
    assert group.reason.startswith("remembered: GPU memory gave errors, until ")
    monkeypatch.setattr(verb, "clusters_nodes", lambda name, prompter: found)
    assert main(["nodes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["n5", "1×"]
    assert main(["nodes", "--json"]) == 0
    [bad] = json.loads(capsys.readouterr().out)["bad_nodes"]
    assert (bad["node"], bad["reasons"], bad["expires"]) == ("n5", ["ecc"], ECC.at + 86400)


def test_the_table_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "clusters_nodes", lambda name, prompter: FOUND)
    assert main(["nodes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("alpha: 11 nodes, 80 GPUs: ")
    assert ["gpu*", "10", "34/72", "1-00:00:00", "no", "limit"] in [line.split() for line in lines]
    assert any("closed" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert main(["nodes", "--partition", "x"]) == 2
    assert "Known: gpu, low" in capsys.readouterr().err


def test_without_a_slurm_cluster_setup_is_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["nodes"]) == 2
    assert "rltui setup" in capsys.readouterr().err
    assert main(["nodes", "--cluster", "local"]) == 2
    assert "no Slurm" in capsys.readouterr().err


def test_a_node_is_reported_and_forgotten_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    tmp_path.joinpath("clusters.yaml").write_text(
        f"here: {{transport: local, scheduler: slurm, run_root: {tmp_path}}}\n"
    )
    record(str(tmp_path), "n5", "ecc", ECC.evidence, "grpo-1a2b", 1, time.time())
    assert main(["nodes", "--report", "n5"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Node n5 of here: GPU memory gave errors\n")
    assert "grpo-1a2b attempt 1  ecc: Xid (PCI:0000:3b:00): 48, GPU 3 of n5" in text
    assert main(["nodes", "--forget", "n5"]) == 0
    assert "n5 is forgotten: GPU memory gave errors" in capsys.readouterr().err
    assert main(["nodes", "--report", "n5"]) == 2
    assert "Remembered as bad: none" in capsys.readouterr().err


def test_a_day_of_one_digit_is_a_day() -> None:
    """Of ``2026-9-5`` YAML makes no date, and as text it comes behind ``2026-12-01``."""
    assert BadNode(node="n", until="2026-9-5").is_avoided("2026-09-04")
    assert not BadNode(node="n", until="2026-9-5").is_avoided("2026-12-01")
    assert BadNode(node="n", until="2026-12-1").is_avoided("2026-09-30")
    assert BadNode(node="n").is_avoided("2026-12-01")
