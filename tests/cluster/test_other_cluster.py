"""A login node that reaches several Slurm clusters: a second real one beside the lab's, in its accounting database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from slurm_support import LabTransport, context_on, profile, small_layout

from rltui.cluster.gather_facts import federation, gather_facts
from rltui.runs.directory import new_run_id
from rltui.service.actions import cancel
from rltui.service.setup_cluster import look_around, propose
from rltui.service.submit import submit_attempt
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

    from rltui.service.context import Context

CONF = "/etc/slurm-other/slurm.conf"
CHANGES = (
    (r"(?m)^ClusterName=.*", "ClusterName=other\nSlurmctldPort=7817\nSlurmdPort=7818"),
    ("(?m)^(StateSaveLocation)=.*", r"\1=/var/spool/slurmctld/other"),
    ("(?m)^(SlurmdSpoolDir)=.*", r"\1=/var/spool/slurmd-other"),
    (r"(?m)^(Slurm\w+(?:PidFile|LogFile)=/\S*/)", r"\1other-"),
    (r"(?m)^NodeName=\S+ NodeAddr=\S+", "NodeName=node3 NodeAddr=10.77.0.13"),
    (r"(?m)^PartitionName=.*\n", ""),
)
KNOW = ("add cluster other", "add account rlteam cluster=other", "add user alice account=rlteam cluster=other")


def as_root(lab: Lab, node: str, *lines: str) -> None:
    lab.exec(node, ["sh", "-c", " && ".join(lines)], user="root")


def accounts(lab: Lab, changes: tuple[str, ...]) -> None:
    for change in changes:
        lab.exec("ctl", ["sacctmgr", "--immediate", *change.split()], user="root")


@pytest.fixture
def two_clusters(slurm_cluster: Lab) -> Iterator[Lab]:
    """The lab, with a cluster ``other`` of node3 alone, in one federation with it."""
    conf = slurm_cluster.exec("ctl", ["cat", "/etc/slurm/slurm.conf"]).stdout
    for pattern, words in CHANGES:
        conf = re.sub(pattern, words, conf)
    conf += "PartitionName=night Nodes=node3 Default=YES DefaultTime=01:00:00 MaxTime=2-00:00:00\n"
    for node in ("ctl", "node3"):
        as_root(slurm_cluster, node, "mkdir -p /etc/slurm-other", "cp /etc/slurm/*.conf /etc/slurm-other")
        slurm_cluster.exec(node, ["tee", CONF], user="root", input=conf)
    accounts(slurm_cluster, KNOW)
    quiet = "</dev/null >/dev/null 2>&1"
    as_root(slurm_cluster, "ctl", "install -d -o slurm /var/spool/slurmctld/other", f"slurmctld -f {CONF} {quiet}")
    as_root(slurm_cluster, "node3", f"slurmd -f {CONF} -N node3 {quiet}")
    idle = ["sinfo", "--clusters=other", "-h", "-o", "%T"]
    eventually(lambda: slurm_cluster.exec("login", idle, check=False).stdout.strip() == "idle", "the other cluster")
    accounts(slurm_cluster, ("add federation both clusters=lab,other",))
    yield slurm_cluster
    for node, pid in (("node3", "/run/other-slurmd.pid"), ("ctl", "/run/slurm/other-slurmctld.pid")):
        as_root(slurm_cluster, node, f"pid=$(cat {pid})", "kill $pid", "tail --pid=$pid -f /dev/null")
    accounts(slurm_cluster, ("delete federation both", "delete cluster other"))


def of_user(lab: Lab, cluster: str) -> list[str]:
    return lab.exec("login", ["squeue", f"--clusters={cluster}", "--local", "--me", "-h", "-o", "%A"]).stdout.split()


def state(context: Context, run_id: str) -> str:
    context.cluster.poller._due = 0.0  # type: ignore[attr-defined]
    return next(run.state for run in context.runs().runs if run.run_id == run_id)


def test_a_profile_is_one_of_several_clusters_and_its_jobs_stay_there(two_clusters: Lab, tmp_path: Path) -> None:
    told = profile(setup_lines=["sleep 600"], slurm_cluster="other")
    context = context_on(LabTransport(two_clusters), tmp_path, told)
    relay = context.cluster.client
    eventually(lambda: federation(relay) == "both", "the federation")
    facts = gather_facts(relay)
    assert ([one.name for one in facts.partitions], [one.name for one in facts.nodes]) == (["night"], ["node3"])
    assert facts.accounts == ("rlteam",)
    found = look_around(relay)
    assert (found.cluster_name, found.other_clusters) == ("other", ("lab",))
    assert propose(found, {}).values["slurm_cluster"] == "other"

    layout = small_layout("slurm.partition=night", "slurm.time=01:00:00")
    launched = submit_attempt(context, new_run_id("elsewhere"), 1, layout)
    assert of_user(two_clusters, "other") == [launched.job_id]
    assert of_user(two_clusters, "lab") == []
    eventually(lambda: state(context, launched.run_id) == "starting", "the start")
    [run] = context.runs().runs
    assert run.job is not None
    assert run.job.nodes == ("node3",)
    slurm = context.cluster.slurm  # type: ignore[attr-defined]
    uuid = run.job.comment.removeprefix("rltui:")
    assert slurm.find_by_comment(uuid, slurm.now() - 300) == launched.job_id
    cancel(context, run)
    eventually(lambda: state(context, launched.run_id) == "cancelled", "the end")
    context.close()
