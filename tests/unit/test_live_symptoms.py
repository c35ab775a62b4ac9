"""What a live run suffers from, in the list of the cockpit, in the shell's, and in full: over real run directories."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from watch_support import TOKEN, Server, actor, attempt_of, await_that, state_answer

from rltui.cli.main import main
from rltui.cluster.relay_connection import Connection
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.onnode.processes import start_time
from rltui.onnode.server_notes import STATE_API
from rltui.service import why
from rltui.service.live_cockpit import LiveCockpit
from rltui.service.run_filter import matches
from rltui.service.run_picture import METRICS_BYTES
from rltui.service.symptoms import warn_of
from rltui.tui.glyphs import UNICODE
from rltui.tui.views import gpus
from rltui.tui.views import runs as rows
from rltui.tui.views.stage import section
from rltui.watch.snapshots import RunIdentity

RUN = "grpo-tiny-1a2b"
IDENTITY = RunIdentity("local", RUN)
STEP = {"time/total": 60.0, "time/generate": 9.0, "time/reward": 41.0, "time/train": 8.0, "reward": 0.3}


@pytest.fixture
def attempt(own_folders: Path) -> Path:
    """A run that trains as far as its files tell, with this process as its supervisor, and waits for its judge."""
    path = attempt_of(RUN, created_at=time.time() - 900, gpus=3)
    layout = load_layout(resolve("v100-code/grpo-3b-2xv100")).layout
    path.joinpath("layout.yaml").write_text(dump_layout(layout))
    mine = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
    path.joinpath("supervisor.json").write_text(json.dumps(mine))
    write_steps(path, 12, STEP)
    return path


def write_steps(attempt: Path, count: int, values: dict[str, float], until: float = 0.0) -> None:
    """So many steps a minute apart, the last of them now or ``until``."""
    until = until or time.time()
    stage = {"stage": "training", "since": until - 900, "updated": until, "step": count, "steps": 500}
    attempt.joinpath("stage.json").write_text(json.dumps(stage))
    lines = ({"step": n, "time": until - 60.0 * (count - n), **values} for n in range(1, count + 1))
    attempt.joinpath("metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def cockpit(attempt: Path) -> Iterator[LiveCockpit]:
    del attempt
    live = LiveCockpit()
    yield live
    live.close()


def symptoms(cockpit: LiveCockpit) -> list[str]:
    """What is said of each run that is listed: none before the cluster has answered."""
    return [run.symptom for run in cockpit.runs().runs]


def text_of(lines: Any) -> str:
    return "\n".join(line.plain for line in lines)


def test_the_word_comes_into_the_list_and_goes_with_its_cause(attempt: Path, cockpit: LiveCockpit) -> None:
    await_that(lambda: symptoms(cockpit) == ["reward-bound"], "the word comes")
    [run] = cockpit.runs().runs
    assert "reward-bound" in text_of([rows.row(run, rows.plan(100, 20), False, UNICODE)])
    narrow = structs.replace(run, stage=structs.replace(run.stage, detail="evaluating the policy"))
    assert text_of([rows.row(narrow, rows.plan(90, 20), False, UNICODE)]).rstrip().endswith("reward-bound")
    assert matches(run, "why:reward")
    picture = cockpit.watch(IDENTITY)
    assert picture.summary.symptom == "reward-bound"
    first = section(picture, UNICODE, ())
    assert "reward-bound  ! shows" in text_of(first.body(80, first.rows_wanted))
    balanced = {"time/generate": 31.0, "time/reward": 1.0, "time/train": 26.0}
    write_steps(attempt, 14, STEP | balanced)
    await_that(lambda: symptoms(cockpit) == [""], "the word's end comes")


def test_lists_ask_nobody_for_the_word(attempt: Path, cockpit: LiveCockpit, monkeypatch: pytest.MonkeyPatch) -> None:
    await_that(lambda: symptoms(cockpit) == ["reward-bound"], "the word comes")
    asked: list[str] = []
    start = Connection.start

    def count(self: Connection, op: str, fields: dict[str, Any], timeout_s: float) -> Any:
        asked.append(op)
        return start(self, op, fields, timeout_s)

    monkeypatch.setattr(Connection, "start", count)
    cockpit.runs()
    quiet = sorted(asked)
    asked.clear()
    write_steps(attempt, 13, STEP | {"time/reward": 1.0, "time/generate": 49.0})
    await_that(lambda: bool(asked.clear()) or symptoms(cockpit) == ["rollout-bound"], "the next word comes")
    assert sorted(asked) == quiet


def test_why_tells_of_a_live_run(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", RUN]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Rewards hold up the step: waiting for rewards takes 68 % of each step (41 of 60 s)." in said
    assert "Reward workers 8 → 32" in said
    assert "roles.reward.workers=32" in said
    assert main(["why", RUN, "--json"]) == 1
    [diagnosis] = json.loads(capsys.readouterr().out)["diagnoses"]
    assert (diagnosis["id"], diagnosis["word"]) == ("reward_bound", "reward-bound")
    assert diagnosis["remedies"][0]["set"] == {"roles.reward.workers": 32}
    assert main(["ps"]) == 0
    assert "training: reward-bound" in capsys.readouterr().out
    assert main(["ps", "--json"]) == 0
    assert [run["symptom"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["reward-bound"]


def test_the_clock_of_whoever_looks_is_no_matter(
    attempt: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del attempt
    ahead = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert main(["ps"]) == 0
    assert "training: reward-bound" in capsys.readouterr().out


HUNG = "no answer from learner 0 (pid 6 on n1), learner 1 (pid 7 on n1) within 15 s while training"


def test_a_node_that_fell_silent_is_named_in_lists_once_steps_do_not_come(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    for host, age_s in (("n1", 1), ("n2", 95), ("n3", 96)):
        file = attempt / f"gpu-{host}.jsonl"
        file.write_text("{}\n")
        os.utime(file, (now - age_s, now - age_s))
    write_steps(attempt, 12, STEP, until=now - 600)
    os.utime(attempt / "metrics.jsonl", (now - 600, now - 600))
    assert main(["ps"]) == 0
    assert "training: n2 silent and 1 more" in capsys.readouterr().out
    write_steps(attempt, 13, STEP)
    assert main(["ps"]) == 0
    assert "silent" not in capsys.readouterr().out, "it makes steps, so only the sampler is gone"


def test_a_process_that_is_stopped_is_named_in_lists_at_once_and_when_it_ended_the_run(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    write_steps(attempt, 12, STEP, until=now - 40)
    stopped = {"kind": "process", "host": "n1", "text": "ray::Learner.train (pid 7): stopped on n1", "time": now - 30}
    attempt.joinpath("events.jsonl").write_text(json.dumps({"schema": 1, **stopped}) + "\n")
    assert main(["ps"]) == 0
    assert "training: Learner stopped (pid 7 on n1)" in capsys.readouterr().out
    write_steps(attempt, 13, STEP)
    assert main(["ps"]) == 0
    assert "training: reward-bound" in capsys.readouterr().out, "it has gone on"
    write_steps(attempt, 12, STEP, until=now - 40)
    end = {"outcome": "failed", "reason": HUNG, "exit_code": 1, "at": now}
    attempt.joinpath("end.json").write_text(json.dumps(end))
    assert main(["ps", "--json"]) == 0
    assert [run["failure"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["process_awaited"]
    main(["why", RUN, "--json"])
    assert json.loads(capsys.readouterr().out)["diagnoses"][0]["id"] == "process_awaited"


@pytest.mark.parametrize(("pid", "named"), [(7, True), (8, False)])
def test_evidence_of_a_process_that_another_was_started_for_accuses_nobody(
    attempt: Path, capsys: pytest.CaptureFixture[str], pid: int, named: bool
) -> None:
    now = time.time()
    write_steps(attempt, 12, STEP, until=now - 1000)
    answer = {"host": "n1", "at": now - 100, "processes": [{"pid": 7, "title": "ray::EngineActor", "state": "T"}]}
    attempt.joinpath("evidence").mkdir()
    attempt.joinpath(f"evidence/{int(1000 * (now - 101))}-n1.json").write_text(json.dumps(answer))
    roles = [
        {"kind": "roles", "text": "", "time": at, "roles": [{"role": "engine 0", "pid": number, "host": "n1"}]}
        for at, number in ((now - 2000, 7), (now - 50, 8))
        if number <= pid
    ]
    attempt.joinpath("events.jsonl").write_text("".join(json.dumps({"schema": 1, **one}) + "\n" for one in roles))
    main(["why", RUN, "--json"])
    said = {one["id"]: one["summary"] for one in json.loads(capsys.readouterr().out)["diagnoses"]}
    assert ("engine 0 (pid 7 on n1)" in said.get("process_awaited", "")) == named
    assert ("process_awaited" in said) == named


@pytest.mark.parametrize("age_s", [0, 400])
def test_what_a_node_said_before_it_fell_silent_is_of_the_past(
    attempt: Path, capsys: pytest.CaptureFixture[str], age_s: int
) -> None:
    engine = {"name": "0", "pid": 7, "running": 1, "waiting": 0, "silent_s": 90}
    told = {"t": time.time() - age_s, "host": "n1", "cpus": 8, "cpu": 1.0, "mem": [1, 64]}
    line = json.dumps({**told, "procs": [], "engines": [engine]})
    attempt.joinpath("gpu-n1.jsonl").write_text(line + "\n")
    main(["why", RUN, "--json"])
    named = [one["id"] for one in json.loads(capsys.readouterr().out)["diagnoses"]]
    assert ("engine_silent" in named) == (not age_s)


def test_a_node_that_fell_silent_is_named_while_the_others_speak(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, age_s in (("n1", 1), ("n2", 95)):
        line = json.dumps({"t": time.time() - age_s, "host": host, "cpus": 8, "cpu": 1.0, "mem": [1, 64], "procs": []})
        attempt.joinpath(f"gpu-{host}.jsonl").write_text(line + "\n")
    main(["why", RUN, "--json"])
    said = {one["id"]: one for one in json.loads(capsys.readouterr().out)["diagnoses"]}
    assert re.search(r"node n2: its sampler has been silent for \d{2,} s", said["node_silent"]["summary"])
    assert any("--exclude n2" in word for one in said["node_silent"]["remedies"] for word in one["commands"])
    main(["show", RUN])
    assert re.search(r"! n2 has sent no sample for \d{2,} s", capsys.readouterr().out)


def test_a_run_that_went_on_while_its_nodes_were_asked_does_not_stand_still(
    attempt: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt.joinpath("adopted.json").write_text(json.dumps({"schema": 1}))
    write_steps(attempt, 12, STEP, until=time.time() - 7200)

    def answer(*_: object) -> bool:
        write_steps(attempt, 13, STEP)
        return True

    monkeypatch.setattr(why, "asked_nodes", answer)
    main(["why", RUN, "--json"])
    named = [one["id"] for one in json.loads(capsys.readouterr().out)["diagnoses"]]
    assert "run_stalled" not in named


def test_each_silent_failure_is_an_event_once_an_attempt_and_a_slow_step_is_none(attempt: Path) -> None:
    assert warn_of(attempt) == []
    write_steps(attempt, 40, STEP | {"truncated_fraction": 0.5})
    assert warn_of(attempt) == ["answers_truncated", "reward_flat"]
    assert warn_of(attempt) == []
    texts = [json.loads(line) for line in (attempt / "events.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["text"].partition(":")[0]) for one in texts] == [
        ("symptom", "truncated"),
        ("symptom", "reward flat"),
    ]


def test_why_still_tells_in_the_morning_what_went_wrong_at_night(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy left its reference at step 100 of 3,300: all the steps that are read of the end are alike."""
    write_steps(attempt, 3300, {"time/total": 60.0, "reward": 0.3})
    path = attempt / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = (json.dumps({**line, "kl": 2.5 if line["step"] > 100 else 0.02}) for line in lines)
    path.write_text("".join(each + "\n" for each in told))
    assert path.stat().st_size > METRICS_BYTES
    assert main(["why", RUN]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the KL divergence from the reference is 2.5 a token, 0.02 before" in said


XIDS = (
    {"kind": "xid", "host": "n1", "text": "Xid (PCI:0000:0A:00): 31, GPU 0 of n1"},  # the program's own
    {"kind": "xid", "host": "n2", "text": "Xid (PCI:0000:0B:00): 79, GPU 3 of n2"},
    {"kind": "xid", "host": "n2", "text": "Xid (PCI:0000:0B:00): 154, GPU 3 of n2"},  # what the driver wants done
    {"kind": "roles", "text": "learner 0 on n1"},
)


def test_a_lost_card_is_named_where_the_run_is_listed_and_is_not_free(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = attempt.parents[1] / "run.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"gpu": "h100-80"}))
    lines = [json.dumps({"schema": 1, "time": time.time(), **event}) + "\n" for event in XIDS]
    attempt.joinpath("events.jsonl").write_text("".join(lines))
    told = {"t": time.time(), "host": "n2", "cpus": 8, "cpu": 1.0, "mem": [1, 64]}
    cards = [{"i": 2, "util": 0, "mem": [0, 80], "pids": []}, {"i": 3}, {"i": 4}]
    attempt.joinpath("gpu-n2.jsonl").write_text(json.dumps({**told, "gpus": cards}) + "\n")
    assert main(["ps"]) == 0
    assert "training: Xid 79: GPU 3 of n2 is lost" in capsys.readouterr().out
    write_steps(attempt, 12, STEP, until=time.time() - 7200)
    os.utime(attempt / "metrics.jsonl", (time.time() - 7200,) * 2)
    assert main(["ps"]) == 0
    assert "training: Xid 79: GPU 3 of n2 is lost, no step" in capsys.readouterr().out
    assert main(["gpus", RUN]) == 0
    rows_of = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("n2")}
    assert rows_of["2"].endswith("free")
    assert rows_of["3"].endswith("does not answer, Xid 79")
    assert rows_of["4"].endswith("does not answer")


def test_a_lost_card_is_named_in_the_cockpit(attempt: Path, cockpit: LiveCockpit) -> None:
    about = attempt.parents[1] / "run.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"gpu": "h100-80"}))
    events = "".join(json.dumps({"schema": 1, "time": time.time(), **event}) + "\n" for event in XIDS)
    attempt.joinpath("events.jsonl").write_text(events)
    told = {"t": time.time(), "host": "n2", "cpus": 8, "cpu": 1.0, "mem": [1, 64], "gpus": [{"i": 3}]}
    attempt.joinpath("gpu-n2.jsonl").write_text(json.dumps(told) + "\n")
    await_that(lambda: symptoms(cockpit) == ["Xid 79: GPU 3 of n2 is lost"], "the fault comes")
    page = gpus.GpuTable(cockpit.watch(IDENTITY), 120, UNICODE, wall=False)
    assert "does not answer, Xid 79" in text_of(page.row(index) for index in range(page.count))


def test_a_run_that_stands_still_is_not_tuned(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_steps(attempt, 12, STEP, until=time.time() - 7200)
    assert main(["why", RUN, "--json"]) == 1
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["diagnoses"]] == ["run_stalled"]
    assert main(["ps", "--json"]) == 0
    assert [run["symptom"] for run in json.loads(capsys.readouterr().out)["runs"]] == [""]


def test_a_script_of_another_system_is_understood_by_its_metrics(
    attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt.joinpath("layout.yaml").unlink()
    write_steps(attempt, 12, {"timing_s/step": 60.0, "timing_s/gen": 50.0, "timing_s/update_actor": 8.0})
    assert main(["why", RUN, "--json"]) == 1
    [diagnosis] = json.loads(capsys.readouterr().out)["diagnoses"]
    assert diagnosis["word"] == "rollout-bound"
    assert all(not remedy["set"] for remedy in diagnosis["remedies"])


def test_cards_and_engines_are_read_by_why(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_steps(attempt, 12, {"time/total": 60.0, "time/generate": 32.0, "time/train": 25.0})
    procs = [{"pid": 70 + index, "title": "ray::Learner.train"} for index in range(4)]
    watts = (610.0, 604.0, 190.0, 615.0)
    cards = [
        {"i": index, "name": "H100", "util": 99.0, "mem": [70.0, 80.0], "w": power, "c": 60.0, "pids": [70 + index]}
        for index, power in enumerate(watts)
    ]
    line = {"t": time.time(), "host": "n7", "cpus": 8, "cpu": 41.0, "mem": [9.0, 31.0], "gpus": cards, "procs": procs}
    attempt.joinpath("gpu-n7.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["why", RUN, "--json"]) == 1
    [diagnosis] = json.loads(capsys.readouterr().out)["diagnoses"]
    assert diagnosis["word"] == "straggler"
    assert "GPU 2 of n7 takes 190 W" in diagnosis["summary"]
    assert {"slurm.exclude": "[n7]"} in [remedy["set"] for remedy in diagnosis["remedies"]]


def actors_note(**states: str) -> str:
    rows = [
        {"actor_id": name, "class_name": name.rstrip("0123456789"), "name": name, "state": state, "pid": 0}
        for name, state in states.items()
    ]
    return json.dumps({"schema": 1, "at": time.time(), "problem": "", "state": {"data": {"result": {"result": rows}}}})


@pytest.mark.parametrize(
    ("since_s", "stage", "states", "said"),
    [
        (240, "loading", {"Unit1": "PENDING_CREATION", "Unit2": "PENDING_CREATION", "Runner": "ALIVE"}, "Unit x2"),
        (60, "loading", {"Unit1": "PENDING_CREATION"}, ""),  # they come up
        (240, "loading", {"Unit1": "ALIVE", "Unit2": "DEAD"}, ""),
        (240, "training", {"Unit1": "PENDING_CREATION"}, ""),  # one that was started again
    ],
)
def test_actors_that_ray_has_no_place_for_are_named_while_a_run_starts(
    attempt: Path, capsys: pytest.CaptureFixture[str], since_s: float, stage: str, states: dict[str, str], said: str
) -> None:
    attempt.joinpath("stage.json").write_text(json.dumps({"stage": stage, "since": time.time() - since_s}))
    attempt.joinpath("actors.json").write_text(actors_note(**states))
    main(["why", RUN, "--json"])
    found = json.loads(capsys.readouterr().out)["diagnoses"]
    told = [one for one in found if one["id"] == "ray_pg_infeasible"]
    assert [said in one["summary"] for one in told] == ([True] if said else [])


@pytest.mark.parametrize(("host", "asks"), [("", True), (os.uname().nodename, True), ("node7", False)])
def test_ray_is_asked_for_actors_on_its_own_node_only(
    attempt: Path, capsys: pytest.CaptureFixture[str], host: str, asks: bool
) -> None:
    attempt.joinpath("stage.json").write_text(json.dumps({"stage": "loading", "since": time.time() - 240}))
    with Server().running() as server:
        server.pages = {STATE_API: (200, state_answer(actor(state="PENDING_CREATION")))}
        told = {"schema": 1, "address": "x", "dashboard": server.url, "token": TOKEN, "pid": 1, "host": host}
        attempt.joinpath("ray.json").write_text(json.dumps(told))
        main(["why", RUN, "--json"])
    assert bool(server.asked) == asks
    found = json.loads(capsys.readouterr().out)["diagnoses"]
    assert ("ray_pg_infeasible" in [one["id"] for one in found]) == asks
