"""Everybody's queue: how squeue's answer becomes jobs, how often it is asked, and what this machine and Ray know."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_slurm import DOWN, ScriptedSlurm, row_text
from watch_support import await_next_file_time

from rltui.cli import queue as verb
from rltui.cli.main import main
from rltui.cluster.hosts import LocalCluster
from rltui.cluster.profile import Profile
from rltui.cluster.profiles import Profiles
from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.everybody import FIELDS, gpus_of, read_everybody
from rltui.cluster.slurm.poller import ACTIVE_S, AFTER_CHANGE_S
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import UsageError
from rltui.onnode import host_tickets, processes
from rltui.onnode.host_tickets import RUNNING, WAITING, Ticket
from rltui.service.cluster_queue import ClusterQueue, QueueReader, queue_of, usual_cluster
from rltui.service.context import Context

MARK = "^0123456789ab^"
NODE = (
    "NodeName=node{n} CPUAlloc=0 CPUTot=8 RealMemory=1000 Gres=gpu:h100:4 GresUsed=gpu:h100:{used} State={state} "
    "Partitions=gpu\n"
)


def job(job_id: str, **more: str) -> dict[str, str]:
    known = {"id": job_id, "state": "PENDING", "uid": "2002", "user": "bob", "partition": "gpu", "priority": "10"}
    return known | {"reason": "Priority", "count": "1", "left": "10:00", "name": "work"} | more


def held(job_id: str, nodes: str, **more: str) -> dict[str, str]:
    return job(job_id, **({"state": "RUNNING", "nodes": nodes, "left": "1:00:00", "reason": "None"} | more))


def answer(*rows: dict[str, str]) -> str:
    return "".join(row_text(FIELDS, row, MARK) for row in rows)


class WholeQueue(ScriptedSlurm):
    """Answers for everybody's jobs, and for the nodes."""

    def answer(self, tool: str, words: list[str]) -> Completed:
        if tool == "scontrol" and "node" in words:
            return Completed(
                0, NODE.format(n=1, used=4, state="ALLOCATED") + NODE.format(n=2, used=1, state="MIXED"), ""
            )
        if tool == "squeue" and "PriorityLong" in words[-1] and not self.knows_long_format:
            return Completed(1, "", "squeue: error: Invalid job format specification: tres-alloc")
        if tool == "squeue" and any(word.startswith("--states=PD,") for word in words):
            mark = "^" + words[-1].split("^")[1] + "^"
            return Completed(0, "".join(row_text(FIELDS, row, mark) for row in self.queue), "")
        return super().answer(tool, words)


def slurm_of(script: ScriptedSlurm) -> SlurmCluster:
    """A Slurm cluster whose client talks to the script."""
    cluster = SlurmCluster(Profile(name="lab", transport="local", scheduler="slurm"), SimpleNamespace(place="x"))  # type: ignore[arg-type]
    cluster.slurm = SlurmClient(script, script.clock)  # type: ignore[arg-type]
    return cluster


def test_places_are_by_priority_and_held_jobs_have_none() -> None:
    rows = [
        job("11", priority="5", uid="2001", user="alice"),
        job("12", priority="50"),
        job("13", priority="0", reason="JobHeldUser"),
        job("14_[3-9%1]", priority="40"),
        job("15", priority="70", partition="debug"),
        held("16", "node[1-2]", left="UNLIMITED"),
        held("17", "node3"),
        job("18", state="CONFIGURING", nodes="node4", left="0:30"),
    ]
    jobs = read_everybody(answer(*rows), MARK, "2001")
    assert [one.job_id for one in jobs] == ["12", "15", "14_[3-9%1]", "11", "13", "18", "17", "16"]
    places = {one.job_id: (one.position, one.waiting) for one in jobs}
    assert places["12"] == (1, 3)
    assert places["15"] == (1, 1)
    assert places["11"] == (3, 3)
    assert places["13"] == places["16"] == (None, None)
    by_id = {one.job_id: one for one in jobs}
    assert [one.job_id for one in jobs if one.is_mine] == ["11"]
    assert by_id["16"].nodes == ("node1", "node2")
    assert by_id["16"].left_s is None
    assert (by_id["18"].state, by_id["18"].left_s) == ("running", 30.0), "its nodes boot: they are taken"


@pytest.mark.parametrize(
    ("tres", "per_job", "per_node", "nodes", "gpus"),
    [
        ("cpu=8,mem=1G,node=2,gres/gpu=8", "", "gres:gpu:4", 2, ("", 8)),
        ("cpu=8,gres/gpu=8,gres/gpu:h100=8", "", "", 2, ("h100", 8)),
        ("cpu=8,gres/gpu:h100=6,gres/gpu:a100=2", "", "", 2, ("h100", 8)),
        ("cpu=8,node=2", "", "gres:gpu:h100:4", 2, ("h100", 8)),
        ("cpu=8,node=2", "gres/gpu=3", "", 2, ("", 3)),
        ("", "", "gres/gpu:h100=4", 3, ("h100", 12)),
        ("", "", "gres:gpu", 3, ("", 3)),
        ("", "", "gpu:4,nvme:1", 1, ("", 4)),
        ("cpu=8,node=2", "", "N/A", 2, ("", 0)),
        ("", "", "", 2, ("", None)),
        ("gres/gpu=99999999999999", "", "", 1, ("", 0)),
    ],
)
def test_gpus_of_a_job(tres: str, per_job: str, per_node: str, nodes: int, gpus: tuple[str, int | None]) -> None:
    assert gpus_of(tres, per_job, per_node, nodes) == gpus


def test_names_of_others_are_harmless_and_short() -> None:
    hostile = "\x1b]0;owned\x07\x1b[31mevil\u202e\r\n" + "x" * 5000
    [one] = read_everybody(answer(job("7", name=hostile, user="mal\x1b[2Jlory", reason="\x9b31mWhy")), MARK, "1")
    assert one.name.startswith("evil")
    assert (one.user, one.reason) == ("mallory", "Why")
    assert len(one.name) <= 200
    assert one.name.isprintable()
    with pytest.raises(SlurmUnansweredError, match="cannot be read"):
        read_everybody(answer(job("7"), job("no id")), MARK, "1")


def test_a_look_is_one_squeue_and_one_scontrol_at_the_pollers_pace() -> None:
    script = WholeQueue()
    script.queue = [job("11", uid="2001"), held("12", "node1", tres="gres/gpu=4")]
    reader = QueueReader(slurm_of(script), script.clock, chance=lambda: 0.0)
    found = reader.look()
    assert (found.gpus_free, found.gpus, len(found.waiting), len(found.holding)) == (3, 8, 1, 1)
    asked = [call[0] for call in script.calls]
    assert (asked.count("squeue"), sum("node" in call for call in script.calls)) == (1, 1)
    for _ in range(5):
        assert reader.look() is found
    script.now += AFTER_CHANGE_S - 1
    assert reader.look(again=True) is found, "not even a key makes it ask at once"
    script.now += 1
    assert reader.look() is found
    assert reader.look(again=True).taken_at == script.now
    script.now += ACTIVE_S
    reader.look()
    assert script.count("squeue") == 3
    assert len(script.calls) == len(asked) + 2 * 2, "who one is and what the site hides is asked once"


def test_a_controller_that_is_down_is_asked_less_and_the_old_picture_keeps_its_time() -> None:
    script = WholeQueue()
    script.queue = [job("11")]
    reader = QueueReader(slurm_of(script), script.clock, chance=lambda: 0.0)
    first = reader.look()
    script.failures["squeue"] = DOWN
    script.now += ACTIVE_S
    away = reader.look()
    assert away.jobs == first.jobs
    assert away.taken_at == first.taken_at
    assert "connect failure" in away.problem
    script.now += ACTIVE_S
    assert script.count("squeue") == 2
    reader.look()
    assert script.count("squeue") == 2, "after one failure it waits twice as long"
    del script.failures["squeue"]
    script.now += ACTIVE_S
    assert not reader.look().problem


def test_a_cluster_that_was_connected_to_anew_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    script = WholeQueue()
    script.failures["squeue"] = DOWN
    cluster = slurm_of(script)
    monkeypatch.setattr(cluster, "close", lambda: None)
    context = Context(cluster=cluster)
    assert "connect failure" in context.queue.look().problem
    del script.failures["squeue"]
    assert context.queue.look().problem, "it waits longer after a failure"
    context.close()
    assert not context.queue.look().problem


def test_an_old_squeue_is_asked_in_its_own_words_from_then_on() -> None:
    script = WholeQueue()
    script.knows_long_format = False
    script.queue = [job("11", node="gres:gpu:2", count="2")]
    client = SlurmClient(script, script.clock)  # type: ignore[arg-type]
    assert client.everybody()[0].gpus == 4
    assert script.count("squeue") == 2
    client.everybody()
    assert script.count("squeue") == 3


def test_where_jobs_are_hidden_no_place_is_told() -> None:
    script = WholeQueue()
    script.config = "PrivateData             = jobs\n"
    script.queue = [job("11", uid="2001")]
    found = queue_of(slurm_of(script))
    assert found.jobs[0].position is None
    assert "hides other users' jobs" in found.note


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable, folder in (("RUN_ROOT", "runs"), ("STATE_DIR", "state"), ("CACHE_DIR", "c"), ("CONFIG_DIR", "f")):
        monkeypatch.setenv(f"RLTUI_{variable}", str(tmp_path / folder))
    monkeypatch.setenv("RLTUI_LOCAL_CPUS", "4")
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "2")
    return tmp_path / "runs"


def take_tickets() -> None:
    folder = os.environ["RLTUI_QUEUE"]
    started = processes.start_time(os.getpid()) or ""
    for number, label in enumerate(("first-run", "second-run", "third-run")):
        state, cards = (RUNNING, (0, 1)) if not number else (WAITING, ())
        ticket = Ticket(label[0] + str(number), label, 1, 2, os.getpid(), started, state, cards, time.time() - 120)
        host_tickets.write(folder, ticket)
        await_next_file_time(Path(folder))
    host_tickets.write(folder, Ticket("dead", "gone", 1, 1, 2**22 - 1, "1"))
    Path(folder, ".rltui-ticket-torn").write_text('{"uuid": ')


def test_this_machines_queue_is_its_tickets(root: Path) -> None:
    take_tickets()
    cluster = LocalCluster()
    found = queue_of(cluster)
    cluster.close()
    assert [(one.name, one.state, one.position, one.gpus) for one in found.jobs] == [
        ("second-run", "pending", 1, 2),
        ("third-run", "pending", 2, 2),
        ("first-run", "running", None, 2),
    ]
    assert (found.gpus_free, found.gpus) == (0, 2)
    assert found.jobs[0].job_id == str(os.getpid())


def test_what_wants_no_card_says_what_it_waits_for(root: Path) -> None:
    started = processes.start_time(os.getpid()) or ""
    for uuid, label, state in (("a", "runs", RUNNING), ("b", "waits", WAITING)):
        host_tickets.write(os.environ["RLTUI_QUEUE"], Ticket(uuid, label, 3, 0, os.getpid(), started, state, ()))
    cluster = LocalCluster()
    found = queue_of(cluster)
    cluster.close()
    assert [(one.name, one.reason) for one in found.jobs] == [("waits", "waits for 3 CPU slots"), ("runs", "")]


def test_the_verb_prints_it_and_json_has_all(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root.mkdir()
    take_tickets()
    assert main(["queue"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("local: 0 of 2 GPUs free, 2 waiting, 1 running with 2 GPUs, you are #1 (")
    assert any(line.split()[:1] == ["#2"] and line.endswith("third-run") for line in lines)
    assert main(["queue", "local", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["queue"]["jobs"][1]["name"] == "third-run"
    assert main(["queue", "--partition", "gpu"]) == 2
    assert "no partition 'gpu'" in capsys.readouterr().err


def test_the_usual_cluster_is_the_only_one_with_slurm() -> None:
    def profiles(*names: str) -> Profiles:
        kinds = {name: "hosts" if name.startswith("gpu") else "slurm" for name in names}
        return SimpleNamespace(by_name={name: Profile(name=name, scheduler=kind) for name, kind in kinds.items()})  # type: ignore[return-value, arg-type]

    assert usual_cluster(profiles()) == "local"
    assert usual_cluster(profiles("gpu1")) == "gpu1"
    assert usual_cluster(profiles("gpu1", "gpu2")) == "local"
    assert usual_cluster(profiles("gpu1", "hpc")) == "hpc"
    assert usual_cluster(profiles("hpc")) == "hpc"
    with pytest.raises(UsageError, match="several") as error:
        usual_cluster(profiles("hpc", "abc"))
    assert "abc, hpc" in error.value.hint


def test_the_line_says_where_you_stand() -> None:
    jobs = read_everybody(answer(job("11"), job("12", uid="2001"), held("13", "n1", tres="gres/gpu=4")), MARK, "2001")
    assert verb.summary(ClusterQueue(cluster="hpc", jobs=jobs)) == (
        "hpc: 2 waiting, 1 running with 4 GPUs, you are #2 (12)"
    )


class LargeSite(WholeQueue):
    """A thousand nodes, half of whose GPUs are taken."""

    def answer(self, tool: str, words: list[str]) -> Completed:
        if tool == "scontrol" and "node" in words:
            nodes = (NODE.format(n=number, used=4 * (number % 2), state="MIXED") for number in range(1000))
            return Completed(0, "".join(nodes), "")
        return super().answer(tool, words)


def test_ten_thousand_jobs_on_a_thousand_nodes_are_one_picture_of_two_questions() -> None:
    script = LargeSite()
    script.queue = [held(str(one), f"node{one}") if one < 1000 else job(str(one)) for one in range(1, 10_001)]
    began = time.process_time()
    seen = QueueReader(slurm_of(script), script.clock, chance=lambda: 0.0).look()
    assert (len(seen.holding), len(seen.waiting), seen.gpus, seen.gpus_free) == (999, 9001, 4000, 2000)
    assert {one.position for one in seen.waiting} == set(range(1, 9002))
    assert (script.count("squeue"), sum("node" in call for call in script.calls)) == (1, 1)
    assert time.process_time() - began < 5.0, "half a second on a busy core"
