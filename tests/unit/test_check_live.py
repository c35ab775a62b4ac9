"""Rules about a cluster: each fires where it must, stays silent on the nearest sound case, and its fix settles it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any

import pytest
from check_cases import BASES
from msgspec.structs import replace

from rltui.check.live import LIVE_REGISTRY, check_on
from rltui.check.live_subject import card_of, duration, some
from rltui.check.reporters import as_text
from rltui.check.run import REGISTRY, Report, check_layout
from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.profile import BadNode, Profile
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble
from rltui.layout.load import load_text
from rltui.layout.settings import Container
from rltui.service.login_facts import valid_values

PROFILE = Profile(
    name="alps",
    partition="gpu",
    account="team",
    gpu="H100-SXM-80GB",
    gpus_per_node=4,
    cpus_per_node=64,
    memory_gib=500.0,
    max_time="2-00:00:00",
    max_nodes=8,
)


def node(name: str, **changes: Any) -> NodeFacts:
    usual: dict[str, Any] = {
        "partitions": ("gpu",), "state": "idle", "gpu": "h100", "gpus": 4, "gpus_used": 0, "cpus": 64,
        "memory_gib": 500.0,
    }  # fmt: skip
    return NodeFacts(name=name, **{**usual, **changes})


KINDS = "hardware.more={rollouts: {roles: [rollout], nodes: 1, gpus_per_node: 4}}"
GPU = PartitionFacts(name="gpu", max_time_s=86400.0, max_nodes=4)
FACTS = ClusterFacts(
    partitions=(GPU, PartitionFacts(name="debug", is_default=True, max_time_s=1800.0)),
    nodes=(node("n1"), node("n2"), node("n3"), node("d1", partitions=("debug",), gpus=1)),
    accounts=("team", "other"),
    run_root_free_gib=5000.0,
    cached_models=("Qwen/Qwen3-8B",),
)


@dataclass(frozen=True)
class Case:
    """A rule with a cluster on which it fires, and the nearest one on which it is silent."""

    code: str
    profile: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] | None = field(default_factory=dict)
    words: tuple[str, ...] = ()
    silent: dict[str, Any] = field(default_factory=dict)
    silent_facts: dict[str, Any] | None = None
    silent_words: tuple[str, ...] | None = None


def test_of_several_partitions_the_one_that_allows_most_counts() -> None:
    both = ClusterFacts(partitions=(GPU, PartitionFacts(name="old", is_up=False, max_nodes=9, accounts=("team",))))
    found = both.partition("old, gpu")
    assert found == PartitionFacts(name="old,gpu", max_nodes=9)
    assert both.partition("gpu,none") is None
    assert both.partition("") is None


def nodes(*found: NodeFacts) -> dict[str, Any]:
    return {"nodes": found}


def gpu(**changes: Any) -> dict[str, Any]:
    return {"partitions": (replace(GPU, **changes),)}


INSIDE = ("slurm.container.image=/x.sif",)
CASES = [
    Case("S611", facts=None, words=("slurm.time=2-00:00:01",), silent_words=("slurm.time=2-00:00:00",)),
    Case("S611", {"max_time": "10:00"}, None, silent={"max_time": ""}),
    Case("S611", {"max_time": "10:00"}, None, silent={"scheduler": "ray", "max_time": "10:00"}),
    Case("S612", {"max_nodes": 1}, None, silent={"max_nodes": 2}),
    Case("S612", {"max_nodes": 1}, None, silent={"max_nodes": 0}),
    Case("S612", {"scheduler": "local"}, None, silent={"scheduler": "ray"}),
    Case("S613", {"partition": "gpus"}, silent={"partition": "gpu"}),
    Case("S613", words=("slurm.partition=gp",), silent_words=("slurm.partition=gpu",)),
    Case("S613", {"partition": ""}, {"partitions": (GPU,)}, silent_facts={}),
    Case("S613", {"partition": "gpus"}, silent={"partition": "gpus", "scheduler": "ray"}),
    Case("S613", {"partition": "debug,gpus"}, silent={"partition": "debug,gpu"}),
    Case("S614", facts=gpu(is_up=False), silent_facts={}),
    Case("S615", words=("slurm.time=1-00:00:01",), silent_words=("slurm.time=1-00:00:00",)),
    Case("S615", {"partition": "debug"}, words=("slurm.time=1-00:00:00",), silent={"partition": "debug,gpu"}),
    Case("S615", facts=gpu(max_time_s=60.0), silent_facts=gpu(max_time_s=None)),
    Case("S616", facts=gpu(max_nodes=1), silent_facts=gpu(max_nodes=2)),
    Case("S616", facts=gpu(max_nodes=1), silent_facts=gpu(max_nodes=None)),
    Case("S617", {"account": "teem"}, silent={"account": "other"}),
    Case("S617", {"account": "teem"}, silent_facts={"accounts": ()}, silent={"account": "teem"}),
    Case("S617", facts=gpu(accounts=("other",)), silent_facts=gpu(accounts=("other", "team"))),
    Case("S617", facts=gpu(accounts=("other",)), silent_facts=gpu(accounts=("parent-of-team",))),
    Case("S618", {"qos": "long"}, gpu(qos=("short",)), silent={"qos": "short"}, silent_facts=gpu(qos=("short",))),
    Case("S618", {"qos": "long"}, gpu(qos=("short",)), silent={"qos": "long"}, silent_facts=gpu(qos=())),
    Case("S619", facts=nodes(node("n1"), node("n2", flags=("drain",))), silent_facts=nodes(node("n1"), node("n2"))),
    Case("S619", facts=nodes(node("n1"), node("n2", gpus=2)), silent_facts=nodes(node("n1"), node("n2", gpus=8))),
    Case("S619", words=("slurm.exclude=[n1, n2]",), silent_words=("slurm.exclude=[n1]",)),
    Case("S619", {"bad_nodes": [BadNode(node="n1"), BadNode(node="n2", until="9999-01-01")]}, silent={
        "bad_nodes": [BadNode(node="n1"), BadNode(node="n2", until="2020-01-01")]}),
    Case("S619", facts=nodes(node("n1"), node("n2", partitions=("debug",))), silent_facts={}),
    Case("S619", {"partition": "debug"}, nodes(node("n1"), node("n2", state="down", partitions=("debug",))),
         silent={"partition": "debug,gpu"}, silent_facts=nodes(node("n1"), node("n2", partitions=("debug",)))),
    Case("S620", facts=nodes(node("n1"), node("n2", state="allocated")), silent_facts={}),
    Case("S620", facts=nodes(node("n1"), node("n2", state="mixed", gpus_used=1)),
         silent_facts=nodes(node("n1"), node("n2", state="mixed", gpus=8, gpus_used=4))),
    Case("S620", facts=nodes(node("n1"), node("n2", state="allocated")),
         silent_facts=nodes(node("n1"), node("n2", state="down"))),
    Case("S621", words=("slurm.exclude=[n3, x9]",), silent_words=("slurm.exclude=[n3]",)),
    Case("S621", words=("slurm.exclude=[x9]",), silent_facts={"nodes": ()}, silent_words=("slurm.exclude=[x9]",)),
    Case("S622", {"scheduler": "ray"}, None, (KINDS,), silent_words=()),
    Case("S622", {"container": Container(runtime="pyxis", image="/x.sqsh")}, None, (KINDS,), silent={
        "container": Container(runtime="apptainer", image="/x.sif")}, silent_words=(KINDS,)),
    Case("S613", words=(KINDS, "hardware.more.rollouts.partition=nowhere"), silent_words=(KINDS,)),
    Case("S616", facts=gpu(max_nodes=2), words=(KINDS, "hardware.more.rollouts.nodes=3"), silent_words=(KINDS,)),
    Case("H412", words=(KINDS, "hardware.more.rollouts.cpus_per_node=65"), silent_words=(KINDS,)),
    Case("H410", {"gpu": "H200-SXM-141GB"}, None, silent={"gpu": "H100-PCIE-80GB"}),
    Case("H410", {"gpu": ""}, nodes(node("n1", gpu="gh200"), node("n2", gpu="gh200")), silent_facts={}),
    Case("H410", {"gpu": ""}, nodes(node("n1", gpu="a100"), node("n2", gpu="a100")),
         silent_facts=nodes(node("n1", gpu="nvidia_h100_80gb_hbm3"), node("n2", gpu="a100"))),
    Case("H410", {"gpu": ""}, nodes(node("n1", gpu="a100"), node("n2", gpu="a100")),
         silent_facts=nodes(node("n1", gpu=""), node("n2", gpu=""))),
    Case("H411", {"gpus_per_node": 2}, None, silent={"gpus_per_node": 4}),
    Case("H411", {"gpus_per_node": 2}, None, silent={"gpus_per_node": 0}),
    Case("H411", facts=nodes(node("n1", gpus=2), node("n2", gpus=1)), silent_facts={}),
    Case("H411", facts=nodes(node("n1", gpus=0), node("n2", gpus=0)), silent_facts={}),
    Case("H412", words=("hardware.cpus_per_node=65",), silent_words=("hardware.cpus_per_node=64",)),
    Case("H412", {"cpus_per_node": 32}, None, ("hardware.cpus_per_node=64",), silent={"cpus_per_node": 0}),
    Case("H413", words=("hardware.memory_gib_per_node=510",), silent_words=("hardware.memory_gib_per_node=500",)),
    Case("D520", {"offline": True}, {"cached_models": ()}, silent={"offline": True}, silent_facts={}),
    Case("D520", {"offline": True}, {"cached_models": ()}, silent={"offline": False}),
    Case("D520", {"offline": True}, {"cached_models": ()}, silent={"offline": True},
         silent_facts={"cached_models": None}),
    Case("D521", facts={"run_root_free_gib": 300.0}, silent_facts={"run_root_free_gib": 600.0}),
    Case("D521", facts={"run_root_free_gib": 300.0}, silent_facts={"run_root_free_gib": None}),
    Case("D521", facts={"run_root_free_gib": 300.0}, words=("checkpoint.keep=2",), silent_words=("checkpoint.keep=1",)),
    Case("S631", facts={"refusal": "Invalid qos specification"}, silent_facts={}),
    Case("S632", facts={"python_problem": "/opt/python is not there on the login node"}, silent_facts={}),
    Case("S633", facts={"env_file_problem": "~/secrets is not there"}, silent_facts={}),
    Case("S634", facts={"container_problem": "the image /x.sif is not there"}, silent_facts={}),
    Case("S635", facts={"container_warning": "apptainer is not on the login node"}, silent_facts={}),
    Case("S636", {"container": Container(runtime="apptainer")}, None, silent={"container": Container(image="/x.sif",
         runtime="apptainer")}),
    Case("S636", words=("slurm.container.image=/x.sif",), silent_words=(*INSIDE, "slurm.container.runtime=podman")),
    Case("S636", {"container": Container(image="/x.sif")}, silent_words=("slurm.container.runtime=none",)),
    Case("S636", {"scheduler": "ray"}, words=(*INSIDE, "slurm.container.runtime=docker"), silent_words=()),
    Case("T710", {"offline": True}, None, ("tracking.wandb=online",), silent={"offline": False}),
    Case("T710", {"offline": True}, None, ("tracking.wandb=online",), silent={"offline": True}, silent_words=()),
]  # fmt: skip
IDS = [f"{case.code}-{number}" for number, case in enumerate(CASES)]


def report(words: tuple[str, ...], profile: dict[str, Any], facts: dict[str, Any] | None) -> Report:
    offline = check_layout(load_text(BASES["gpu"], "gpu.yaml", words))
    return check_on(offline, replace(PROFILE, **profile), None if facts is None else replace(FACTS, **facts))


def found(words: tuple[str, ...], profile: dict[str, Any], facts: dict[str, Any] | None) -> set[str]:
    return {finding.code for finding in report(words, profile, facts).findings}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_rule_fires_and_stays_silent(case: Case) -> None:
    assert case.code in found(case.words, case.profile, case.facts)
    words = case.words if case.silent_words is None else case.silent_words
    facts = case.facts if case.silent_facts is None else case.silent_facts
    profile = case.silent if case.silent or case.silent_facts is None else case.profile
    assert case.code not in found(words, profile, facts)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_findings_have_a_place_and_a_fix_that_settles_them(case: Case) -> None:
    finding = next(f for f in report(case.words, case.profile, case.facts).findings if f.code == case.code)
    assert finding.key
    assert finding.message[-1] not in ".:"
    if finding.fix:
        assert case.code not in found((*case.words, *finding.fix), case.profile, case.facts)


def test_a_sound_layout_on_a_sound_cluster_is_not_found_fault_with() -> None:
    alone = {finding.code for finding in check_layout(load_text(BASES["gpu"], "gpu.yaml")).findings}
    assert found((), {}, {}) == alone
    assert found((), {}, None) == alone


def test_what_nobody_could_tell_is_not_checked() -> None:
    alone = {finding.code for finding in check_layout(load_text(BASES["gpu"], "gpu.yaml")).findings}
    offline = check_layout(load_text(BASES["gpu"], "gpu.yaml"))
    assert {f.code for f in check_on(offline, Profile(name="bare"), ClusterFacts()).findings} == alone


def test_every_rule_has_a_case_a_story_and_a_code_of_its_own() -> None:
    assert set(LIVE_REGISTRY) == {case.code for case in CASES}
    assert not set(LIVE_REGISTRY) & set(REGISTRY)
    assert all(rule.title.endswith(".") for rule in LIVE_REGISTRY.values())


def test_an_unreadable_layout_is_left_as_it_is() -> None:
    unreadable = Report(file="x", readable=False)
    assert check_on(unreadable, PROFILE, FACTS) is unreadable


def test_worst_findings_come_first() -> None:
    order = [finding.severity for finding in report((), {"max_nodes": 1}, nodes(node("n1"))).findings]
    assert order == sorted(order, key=("error", "warning", "note").index)


@pytest.mark.parametrize(
    ("name", "card"),
    [("H100-SXM-80GB", "h100"), ("nvidia_h100_80gb_hbm3", "h100"), ("GH200-96GB", "gh200"), ("gpu", ""),
     ("a100", "a100"), ("NVIDIA A100-SXM4-80GB", "a100"), ("V100-SXM2-32GB", "v100"), ("MI300X", "mi300x"), ("", "")],
)  # fmt: skip
def test_cards_are_compared_by_their_model_number(name: str, card: str) -> None:
    assert card_of(name) == card


def test_words() -> None:
    assert some(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"
    assert [duration(seconds) for seconds in (60, 86400, 90061)] == ["00:01:00", "1-00:00:00", "1-01:01:01"]


def test_a_fix_can_be_pasted_into_a_shell() -> None:
    lines = as_text(report(("slurm.exclude=[n3, x9]",), {}, {}))
    [line] = [line.strip() for line in lines if "slurm.exclude" in line and "fix:" in line]
    assert shlex.split(line.removeprefix("fix: ")) == ["slurm.exclude=[n3]"]
    lines = as_text(report(("slurm.exclude=[n1, n3, x9]",), {}, {}))
    [line] = [line.strip() for line in lines if "slurm.exclude" in line and "fix:" in line]
    assert shlex.split(line.removeprefix("fix: ")) == ["slurm.exclude=[n1, n3]"]


def test_a_refusal_of_slurm_stands_where_nobody_tells_what_would_be_valid() -> None:
    def without_sacctmgr(_: object) -> str:
        raise SlurmUnansweredError(Trouble("missing", "sacctmgr cannot be run here"))

    assert valid_values("Invalid qos specification", ClusterFacts(), without_sacctmgr) == ""


def test_nodes_that_lack_what_is_asked_for_are_named_with_what_they_have() -> None:
    small = NodeFacts(name="n1", cpus=32, memory_gib=62.4)
    facts = ClusterFacts(nodes=(replace(small, gpus=4), replace(small, name="n2", gpus=4), small))
    said = valid_values("allocation failure: Requested node configuration is not available", facts, lambda _: "")
    assert said == "; nodes have: 32 cores and 62 GiB, 4 GPUs with 32 cores and 62 GiB"
