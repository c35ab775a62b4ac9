"""The memory of bad nodes: what evidence is written, what counts for how long, and that two writers lose nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs
from watch_support import append, await_that, write_json

from rltui.check.findings import Finding
from rltui.cli.main import main
from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.profile import BadNode as Avoided
from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.causes.gpu_health import XID_CAUSE
from rltui.diagnose.recent import Symptom
from rltui.errors import UsageError
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.onnode import bad_nodes, xids
from rltui.onnode.bad_nodes import DAY_S, read, record
from rltui.onnode.node_evidence import from_check, from_losses, remember
from rltui.onnode.requeue import folder_of_start
from rltui.service import bad_nodes as service
from rltui.service.cockpit import Ask
from rltui.service.context import Context
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.run_jobs import with_failed_nodes
from rltui.watch.snapshots import RunIdentity, RunSummary

NOW = 1_793_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def names(root: str, now_s: float) -> list[str]:
    return [bad.node for bad in read(root, now_s)]


def test_a_node_is_remembered_for_as_long_as_its_reason_lives(root: str) -> None:
    assert read(root, NOW) == []
    record(root, "n1", "ecc", "Xid (PCI:3b): 48,\n GPU 3 of n1", "r", 1, NOW)
    record(root, "n2", "node-lost", "node failure", "r", 2, NOW + 60)
    [second, first] = read(root, NOW + 61)
    assert (first.node, first.count, first.first, first.last) == ("n1", 1, NOW, NOW)
    assert first.evidence[0].evidence == "Xid (PCI:3b): 48, GPU 3 of n1"
    assert (second.reasons, second.expires) == (("node-lost",), NOW + 60 + DAY_S)
    assert names(root, NOW + 60 + DAY_S) == ["n1"]
    assert names(root, NOW + 7 * DAY_S) == []
    assert os.stat(os.path.join(root, bad_nodes.FILE)).st_mode & 0o777 == 0o600


def test_evidence_of_another_attempt_doubles_the_time_and_of_the_same_one_counts_once(root: str) -> None:
    for attempt, at in ((1, NOW), (1, NOW + 5), (2, NOW + 10)):
        record(root, "n1", "node-lost", "node failure", "r", attempt, at)
    record(root, "n1", "xid", "Xid 119", "r", 2, NOW + 11)
    [bad] = read(root, NOW + 20)
    assert (bad.count, bad.first, bad.last, bad.reasons) == (2, NOW, NOW + 11, ("xid", "node-lost"))
    assert names(root, NOW + 10 + 2 * DAY_S - 1) == ["n1"]
    assert [one.reason for one in read(root, NOW + 2.5 * DAY_S)[0].evidence] == ["xid"]
    for attempt in range(3, 40):
        record(root, "n1", "ecc", "Xid 48", "r", attempt, NOW)
    assert read(root, NOW)[0].expires == NOW + bad_nodes.LONGEST_S


def test_a_straggler_is_bad_after_the_third_attempt_only(root: str) -> None:
    for attempt in (1, 2, 2):
        record(root, "n1", "straggler", "1.4 × its peers", "r", attempt, NOW)
    assert names(root, NOW) == []
    record(root, "n1", "straggler", "1.3 × its peers", "s", 1, NOW)
    assert read(root, NOW)[0].count == 3


def test_what_is_forgotten_does_not_come_back_by_a_late_look_at_an_old_job(root: str) -> None:
    record(root, "n1", "ecc", "Xid 48", "r", 1, NOW)
    bad_nodes.forget(root, "n1", NOW + 10)
    assert names(root, NOW + 11) == []
    record(root, "n1", "node-lost", "node failure", "r", 1, NOW + 5)
    assert names(root, NOW + 12) == []
    record(root, "n1", "ecc", "Xid 48", "r", 1, NOW + 13)
    assert names(root, NOW + 14) == ["n1"]


def test_strange_lines_and_torn_ones_hurt_nobody(root: str) -> None:
    path = Path(root) / bad_nodes.FILE
    path.write_text('[1]\n{"time":1,"node":"a b"}\nxyz\n{"time":"1","node":"n1"}\n{"time":17930000')
    record(root, "n1", "ecc", "Xid 48", "r", 1, NOW)
    assert names(root, NOW) == ["n1"]
    for node, reason in (("n1; rm -rf", "ecc"), ("", "ecc"), ("n1", "moon")):
        with pytest.raises(ValueError, match=r"name of a node|unknown reason"):
            record(root, node, reason, "", "r", 1, NOW)


def test_many_writers_lose_nothing_while_the_file_is_compacted_again_and_again(root: str) -> None:
    program = (
        "import sys; from rltui.onnode import bad_nodes; bad_nodes.MOST_BYTES = 12000\n"
        "for n in range(40):\n"
        f" old = dict(time=1.0, node='gone', reason='ecc', evidence='x' * 80, run=sys.argv[2], attempt=n)\n"
        f" bad_nodes._append(sys.argv[1], old, {NOW})\n"
        f" bad_nodes.record(sys.argv[1], 'n%s-%d' % (sys.argv[2], n % 5), 'ecc', 'x', 'r', n % 5, {NOW} + n)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, root, str(number)]) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert sorted(names(root, NOW + 40)) == sorted(f"n{writer}-{n}" for writer in range(4) for n in range(5))
    assert (Path(root) / bad_nodes.FILE).stat().st_size < 13000, "160 old lines are 22 kB"


def test_a_large_file_is_compacted_to_what_still_counts(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        record(root, f"old{number}", "ecc", "Xid 48", "r", 1, NOW)
    monkeypatch.setattr(bad_nodes, "MOST_BYTES", 4000)
    record(root, "new", "ecc", "Xid 48", "r", 1, NOW + 31 * DAY_S)
    record(root, "newer", "ecc", "Xid 48", "r", 1, NOW + 31 * DAY_S)
    assert names(root, NOW + 31 * DAY_S) == ["new", "newer"]
    assert (Path(root) / bad_nodes.FILE).stat().st_size < 400


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Xid (PCI:0000:3b:00): 79, GPU 3 of n1", "gpu-lost"),
        ("Xid (PCI:0000:3b:00): 48, GPU 3 of n1", "ecc"),
        ("Xid (PCI:0000:3b:00): 119, GPU 3 of n1", "xid"),
        ("Xid (PCI:0000:3b:00): 63, GPU 3 of n1", ""),
        ("Xid (PCI:0000:3b:00): 94, GPU 3 of n1", ""),
        ("Xid (PCI:0000:3b:00): 31, GPU 3 of n1", ""),
        ("Xid (PCI:0000:3b:00): 45, GPU 3 of n1", ""),
        ("Xid (PCI:0000:3b:00): 149, Nonfatal", ""),
        ("no such thing", ""),
    ],
)
def test_only_xids_of_hardware_are_evidence(text: str, reason: str) -> None:
    assert xids.hardware_reason(text) == reason


def test_no_xid_of_a_program_is_a_nodes_fault() -> None:
    for number, cause in XID_CAUSE.items():
        is_evidence = bool(xids.hardware_reason(f"Xid (PCI:0): {number}, GPU 0 of n"))
        assert is_evidence == (cause != "xid_app_fault" and number not in xids.NEWS), number


def reports(**problems: list[str]) -> dict[str, dict[str, Any]]:
    return {node: {"problems": said, "warnings": []} for node, said in problems.items()}


NO_TORCH = "/usr/bin/python3 cannot import torch"


@pytest.mark.parametrize(
    ("problems", "found"),
    [
        (reports(n1=[], n2=[NO_TORCH]), [("n2", "node-check")]),
        (reports(n1=[NO_TORCH], n2=[NO_TORCH]), []),
        (reports(n1=[NO_TORCH], n2=[NO_TORCH], n3=[NO_TORCH], n4=[]), []),
        (reports(n1=[NO_TORCH]), []),
        # the same trouble in other numbers
        (reports(n1=["the run directory (/r) has 0.1 GiB free"], n2=["the run directory (/r) has 0.2 GiB free"]), []),
        (reports(n1=["did not answer within 100 s"], n2=[], n3=[]), [("n1", "node-check")]),
        # of two that differ nobody can say which is odd
        (reports(n1=["another environment: ray 2 instead of 3"], n2=[]), []),
        (reports(n1=["another environment: ray 2 instead of 3"], n2=[], n3=[], n4=[]), [("n1", "node-check")]),
        # GPUs are a node's own, however many nodes there are
        (reports(n1=["7 of 8 GPUs: Unable to determine the device handle for gpu 3: Unknown"]), [("n1", "gpu-lost")]),
        (reports(n1=["GPU 3b waits for a reset (row remapping is pending)"]), [("n1", "ecc")]),
        (reports(n1=["4 of 8 GPUs: nvidia-smi lists no more"]), []),
    ],
)
def test_the_check_blames_nodes_only_for_what_is_their_own(
    problems: dict[str, dict[str, Any]], found: list[tuple[str, str]]
) -> None:
    assert [(one.node, one.reason) for one in from_check(problems)] == found


def test_losing_most_nodes_of_a_job_is_no_single_nodes_fault() -> None:
    nodes = ["n1", "n2", "n3"]
    assert [one.node for one in from_losses({"n2": "node failure"}, nodes)] == ["n2"]
    assert from_losses(dict.fromkeys(nodes, "node failure"), nodes) == []
    assert from_losses({"n2": "Ray's worker ended with code 1"}, nodes) == []
    assert [one.node for one in from_losses({"n1": "node failure"}, ["n1"])] == ["n1"]


def test_the_end_of_an_attempt_writes_what_its_files_say(tmp_path: Path) -> None:
    attempt = tmp_path / "r/attempts/02"
    write_json(
        attempt / "preflight.json", {"nodes": reports(**{"n3.site": ["did not answer"], "n1.site": [], "n2": []})}
    )
    for number, host in ((79, "n1"), (13, "n2"), (79, "stranger")):
        event = {"kind": "xid", "text": f"Xid (PCI:3b): {number}, GPU 0 of {host}", "host": host}
        append(attempt / "events.jsonl", json.dumps(event).encode() + b"\n")
    append(attempt / "events.jsonl", b'{"kind": "stage", "text": "\\"xid\\""}\n"xid" torn')
    remember(str(attempt), ["n1.site", "n2", "n3.site"], {"n2": "node failure on n2"}, NOW)
    found = {bad.node: (bad.reasons, bad.evidence[0].run, bad.evidence[0].attempt) for bad in read(str(tmp_path), NOW)}
    assert found == {
        "n1.site": (("gpu-lost",), "r", 2),
        "n2": (("node-lost",), "r", 2),
        "n3.site": (("node-check",), "r", 2),
    }


def test_a_start_that_slurm_made_again_remembers_the_node_that_it_lost(tmp_path: Path) -> None:
    attempt = tmp_path / "r/attempts/01"
    write_json(attempt / "job.json", {"attempt": 1, "argv": []})
    write_json(attempt / "slurm.json", {"job_id": 7, "nodes": ["n1", "n2"]})
    append(attempt / "nodes.log", b"srun: error: Node failure on n2\n")
    folder_of_start(str(attempt), 7, 1)
    assert [bad.node for bad in read(str(tmp_path), os.stat(attempt / "end.json").st_mtime)] == ["n2"]


def test_a_job_whose_driver_died_with_its_node_is_remembered_through_the_relay(
    client: RelayClient, tmp_path: Path
) -> None:
    about: dict[str, Any] = {"algorithm": "grpo", "cluster": "c", "state": "failed", "attempt": 1, "created_at": 1.0}
    run = RunSummary(run_id="r", name="r", nodes=2, gpus_per_node=1, gpu="cpu", path=str(tmp_path / "r"), **about)
    append(tmp_path / "r/attempts/01/nodes.log", b"srun: error: Node failure on n1\n")
    ended_at = client.hello().time - 30
    job = JobSnapshot(job_id="7", state="failed", word="NODE_FAIL", nodes=("n1", "n2"), ended_at=ended_at)
    for _ in range(2):  # two rltui look
        with_failed_nodes(client, {}, run, job, ended_at + 100)
    assert len((tmp_path / bad_nodes.FILE).read_text().splitlines()) == 1
    [bad] = service.remembered(client, str(tmp_path))
    assert (bad.node, bad.reasons, bad.last) == ("n1", ("node-lost",), ended_at)
    assert "node failure under job 7" in service.report(client, str(tmp_path), "alps", "n1")
    assert service.forget(client, str(tmp_path), "n1").node == "n1"
    with_failed_nodes(client, {}, run, job, ended_at + 100)
    assert service.remembered(client, str(tmp_path)) == ()
    with pytest.raises(UsageError, match="Nothing is remembered"):
        service.forget(client, str(tmp_path), "n1")


def test_a_node_that_holds_up_three_attempts_is_remembered(client: RelayClient, tmp_path: Path) -> None:
    context = cast("Context", SimpleNamespace(cluster=SimpleNamespace(client=client)))
    about: dict[str, Any] = {"algorithm": "grpo", "cluster": "c", "state": "running", "attempt": 1, "created_at": 1.0}
    job = JobSnapshot(job_id="7", state="running", word="RUNNING", nodes=("n1", "n2"))
    run = RunSummary(
        run_id="r", name="r", nodes=2, gpus_per_node=1, gpu="x", path=str(tmp_path / "r"), job=job, **about
    )
    slow = Symptom(cause="straggler", word="straggler", sentence="GPU 0 of n2 takes 200 W at work", node="n2")
    nobodys = structs.replace(slow, node="")
    for number in (1, 1, 2, 3):
        assert service.remembered(client, str(tmp_path)) == ()
        service.record_slow(context.cluster, structs.replace(run, attempt=number), [nobodys, slow])
    [bad] = service.remembered(client, str(tmp_path))
    assert (bad.node, bad.reasons, bad.count) == ("n2", ("straggler",), 3)
    assert len((tmp_path / bad_nodes.FILE).read_text().splitlines()) == 3
    alone = structs.replace(run, job=structs.replace(job, nodes=("n2",)), run_id="alone", attempt=4)
    for other in (
        alone,
        structs.replace(run, through="elsewhere", attempt=5),
        structs.replace(run, job=None, attempt=6),
    ):
        service.record_slow(context.cluster, other, [slow])
    service.record_slow(context.cluster, structs.replace(run, attempt=7), [structs.replace(slow, node="stranger")])
    assert len((tmp_path / bad_nodes.FILE).read_text().splitlines()) == 3


def test_the_offer_has_the_words_that_leave_bad_nodes_out(client: RelayClient, tmp_path: Path) -> None:
    profile = Profile(name="alps", bad_nodes=[Avoided(node="n4")])
    cluster = SimpleNamespace(profile=profile, client=client, run_root=str(tmp_path))
    context = cast("Context", SimpleNamespace(cluster=cluster))
    layout = load_layout(resolve("local/grpo-tiny"), ["slurm.exclude=[n1]"]).layout
    assert service.offers(context.cluster, layout) == ()
    now = client.hello().time
    for node in ("n1", "n2", "n3", "n4"):
        record(str(tmp_path), node, "ecc", "Xid 48", "r", 1, now)
    [finding] = service.offers(context.cluster, layout)
    assert (finding.severity, finding.fix) == ("warning", ("slurm.exclude=[n1, n2, n3]",))
    assert "n2 (GPU memory gave errors" in finding.message
    assert "n4" not in finding.message
    applied = load_layout(resolve("local/grpo-tiny"), finding.fix).layout
    assert service.offers(context.cluster, applied) == ()
    [again] = service.offers(context.cluster, layout, resubmit="r")
    assert "--exclude n2 --exclude n3 leaves them out" in again.message
    cluster.profile = Profile(name="here", scheduler="local")
    assert service.offers(context.cluster, layout) == ()


def test_only_as_many_bad_nodes_are_left_out_as_the_run_can_spare(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimpleNamespace(profile=Profile(name="alps", partition="gpu"), client=client, run_root=str(tmp_path))
    context = cast("Context", SimpleNamespace(cluster=cluster))
    layout = load_layout(resolve("local/grpo-tiny"), []).layout
    for node, run in (("n1", "r"), ("n2", "r"), ("n2", "s"), ("n3", "r")):
        record(str(tmp_path), node, "ecc", "Xid 48", run, 1, client.hello().time)

    def offer(**states: str) -> Finding:
        nodes = tuple(NodeFacts(name=name, partitions=("gpu",), state=state) for name, state in states.items())
        facts = ClusterFacts(partitions=(PartitionFacts(name="gpu"),), nodes=nodes)
        monkeypatch.setattr("rltui.cluster.gather_facts.recent_facts", lambda _: facts)
        [finding] = service.offers(context.cluster, layout)
        return finding

    few = offer(n1="idle", n2="idle", n3="drained")
    assert few.fix == ("slurm.exclude=[n2, n3]",), "the worst one, and one that is out of service anyway"
    assert few.message.endswith("leaves n2, n3 out; without the others too few nodes would be left")
    assert offer(n1="drained", n2="idle", n3="drained").fix == ("slurm.exclude=[n3, n1]",), "n2 is all there is"
    assert offer(n1="idle", n2="idle", n3="idle", n4="idle").message.endswith("leaves them out")


def test_the_cockpits_reviews_and_the_verbs_offer_it_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sbatch = tmp_path / "bin/sbatch"  # there may be a real one here
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: refused by the test' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}:{os.environ['PATH']}")
    root, run = tmp_path / "runs", "grpo-tiny-1a2b"
    write_json(tmp_path / "config_dir/clusters.yaml", {"hpc": {"transport": "local", "run_root": str(root)}})
    about = {"name": "grpo-tiny", "cluster": "hpc", "nodes": 1, "gpus_per_node": 3, "gpu": "cpu", "created_at": NOW}
    write_json(root / run / "run.json", about)
    attempt = root / run / "attempts/01"
    write_json(attempt / "end.json", {"outcome": "failed", "reason": "it ended", "at": NOW})
    write_json(attempt / "job.json", {"uuid": "u"})
    (attempt / "layout.yaml").write_text(dump_layout(load_layout(resolve("local/grpo-tiny")).layout))
    record(str(root), "n7", "ecc", "Xid 48", "r", 1, time.time())
    cockpit = LiveCockpit()
    try:
        assert "NODES" not in [one.code for one in cockpit.review("local/grpo-tiny", (), "hpc").findings], (
            "not asked yet"
        )
        await_that(lambda: bool(cockpit.runs().runs), "the run comes")
        review = cockpit.review("local/grpo-tiny", (), "hpc")
        [offer] = [one for one in review.findings if one.code == "NODES"]
        assert (offer.severity, offer.fix) == ("warning", ("slurm.exclude=[n7]",))
        applied = cockpit.review("local/grpo-tiny", offer.fix, "hpc")
        assert "NODES" not in [one.code for one in applied.findings]
        assert "#SBATCH --exclude=n7" in applied.script
        [warning] = [
            one for one in cockpit.preview(Ask("resubmit", RunIdentity("hpc", run))).findings if one.code == "NODES"
        ]
        assert "--exclude n7 leaves them out" in warning.message
        assert "NODES" not in [
            one.code for one in cockpit.preview(Ask("exclude", RunIdentity("hpc", run), exclude=("n7",))).findings
        ]
        assert cockpit.node_report(RunIdentity("hpc", run), "n7").startswith("Node n7 of hpc: ")
    finally:
        cockpit.close()
    assert main(["resubmit", run, "--dry-run"]) == 0
    assert "--exclude n7 leaves them out" in capsys.readouterr().err
    assert main(["resubmit", run, "--exclude", "n[1-2],n9", "--exclude", "n5", "--dry-run"]) == 0
    assert "+ slurm.exclude: [n1, n2, n9, n5]" in capsys.readouterr().err
    assert main(["resubmit", run, "--exclude", "n[1-2", "--dry-run"]) == 2
    assert "is not closed" in capsys.readouterr().err
    assert main(["resubmit", run, "--unchecked"]) != 0
    said = capsys.readouterr().err
    assert said.index("--exclude n7 leaves them out") < said.index("refused by the test")
    assert main(["launch", "local/grpo-tiny", "--cluster", "hpc", "--unchecked", "--yes"]) != 0
    said = capsys.readouterr().err
    assert said.index("'slurm.exclude=[n7]' leaves them out") < said.index("refused by the test")
