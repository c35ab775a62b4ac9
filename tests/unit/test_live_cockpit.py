"""The cockpit's services over real run directories on this machine: what screens and the verbs beside them show."""

from __future__ import annotations

import json
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from watch_support import attempt_of, await_that

from rltui.cli.cockpit import OpenedLater
from rltui.cli.main import main
from rltui.cluster.prompts import Door, Field, PendingQuestion, Question
from rltui.cluster.transport import NeedsAttentionError
from rltui.errors import RltuiError
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.memory.layouts import estimate_roles
from rltui.paths import config_dir, run_root
from rltui.service.cockpit import Ask
from rltui.service.failures import FailureWords
from rltui.service.launch import RefusedError
from rltui.service.live_cockpit import LiveCockpit
from rltui.watch.snapshots import RunIdentity, RunSummary

NOW = 1_793_000_000.0
RUN = "grpo-tiny-1a2b"
IDENTITY = RunIdentity("local", RUN)
DEADLINE_S = 60.0
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.10 GiB. GPU 0 has a total capacity of 79.10 GiB"


pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.fixture
def attempt() -> Path:
    """A run that died of memory at step 3, with two logs, samples of a node, metrics and events."""
    path = attempt_of(RUN, created_at=NOW, gpu="H100-SXM-80GB")
    path.joinpath("layout.yaml").write_text(dump_layout(load_layout(resolve("local/grpo-tiny")).layout))
    path.joinpath("stage.json").write_text(
        json.dumps({"stage": "ended", "since": NOW, "updated": NOW, "step": 3, "steps": 9})
    )
    path.joinpath("end.json").write_text(
        json.dumps({"outcome": "failed", "exit_code": 1, "reason": "the trainer failed", "at": NOW})
    )
    path.joinpath("out.log").write_text(
        "".join(f"10:00:{second:02d} step {second}\n" for second in range(40)) + OOM + "\n"
    )
    path.joinpath("node-n1.log").write_text("10:00:20 hello from n1\n")
    card = {"i": 0, "name": "H100", "util": 97.0, "mem": [70.0, 80.0], "w": 600.0, "c": 61.0, "pids": [77]}
    line = {"t": NOW, "host": "n1", "cpus": 8, "cpu": 41.0, "mem": [9.0, 31.0], "gpus": [card]}
    process = {"pid": 77, "title": "ray::Learner.train", "cpu": 99.0, "rss": 3.0}
    path.joinpath("gpu-n1.jsonl").write_text(json.dumps(line | {"procs": [process]}) + "\n")
    path.joinpath("metrics.jsonl").write_text(
        "".join(f'{{"step": {step}, "reward": 0.{step}}}\n' for step in (1, 2, 3))
    )
    path.joinpath("events.jsonl").write_text(json.dumps({"time": NOW, "kind": "stage", "text": "training"}) + "\n")
    return path


@pytest.fixture
def cockpit(attempt: Path) -> Iterator[LiveCockpit]:
    live = LiveCockpit()
    yield live
    live.close()


def test_a_log_that_breaks_the_reading_ends_it_for_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagnose(run: RunSummary) -> str:
        if run.run_id == "odd":
            raise ValueError("what nobody thought of")
        return "oom"

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    row = RunSummary(
        run_id="odd", name="far", algorithm="grpo", cluster="far", state="failed", attempt=1, created_at=50.0,
        nodes=1, gpus_per_node=8, gpu="H100",
    )  # fmt: skip
    words = FailureWords(diagnose, lambda _: "")
    words.fill([row])
    await_that(lambda: ("far", "odd", 1) not in words._asked, "the odd log is read")
    runs = [row, structs.replace(row, run_id="plain")]
    await_that(lambda: [one.failure for one in words.fill(runs)] == ["", "oom"], "the other is read too", 10.0)
    near, far = structs.replace(row, run_id="one", cluster="near"), structs.replace(row, run_id="one")
    by_cluster = FailureWords(lambda run: f"word of {run.cluster}", lambda _: "")
    both = ["word of near", "word of far"]
    await_that(lambda: [one.failure for one in by_cluster.fill([near, far])] == both, "each its own word", 10.0)


def test_the_failure_word_comes_into_the_list_by_and_by(cockpit: LiveCockpit) -> None:
    await_that(lambda: bool(cockpit.runs().runs), "the run comes")
    [run] = cockpit.runs().runs
    assert (run.run_id, run.state) == (RUN, "failed")
    await_that(lambda: any(run.failure.startswith("cuda_oom") for run in cockpit.runs().runs), "the word comes")
    assert cockpit.watch(IDENTITY).summary.failure.startswith("cuda_oom")


def test_a_picture_has_all_logs_and_the_one_that_is_wanted(cockpit: LiveCockpit) -> None:
    picture = cockpit.watch(IDENTITY)
    assert [(file.name, file.node) for file in picture.logs] == [("out.log", ""), ("node-n1.log", "n1")]
    assert picture.log.lines[-1] == OOM
    assert cockpit.watch(IDENTITY, "node-n1.log").log.lines == ("10:00:20 hello from n1",)
    merged = cockpit.watch(IDENTITY, "*").log
    assert merged.name == "*"
    at = merged.lines.index("[node-n1] 10:00:20 hello from n1")
    assert {line.split()[1] for line in merged.lines[:at]} <= {f"10:00:{second:02d}" for second in range(21)}
    assert cockpit.watch(IDENTITY).log.lines[-1] == OOM
    assert [gpu.pids for host in picture.hosts for gpu in host.gpus] == [(77,)]


def test_evidence_can_be_read_in_its_place(cockpit: LiveCockpit) -> None:
    report = cockpit.why(IDENTITY)
    found = report.findings[0].evidence[0]
    file, line, text = found.file, found.line, found.text
    part = cockpit.log_part(IDENTITY, file, line)
    assert OOM in text
    assert part.lines[line - part.first_line] == OOM
    with pytest.raises(RltuiError):
        cockpit.log_part(IDENTITY, "../../../run.json", 1)
    with pytest.raises(RltuiError):
        cockpit.log_part(IDENTITY, "nothing.log", 1)


def test_a_resubmission_is_previewed_with_its_difference_and_findings(cockpit: LiveCockpit) -> None:
    preview = cockpit.preview(Ask("edit", IDENTITY, ("train.steps=7",)))
    assert "+ train.steps: 7" in preview.diff
    assert preview.overrides == ("train.steps=7",)
    [command] = cockpit.preview(Ask("edit", IDENTITY, ("slurm.exclude=[n1, n2]",))).commands
    assert shlex.split(command) == ["rltui", "resubmit", RUN, "slurm.exclude=[n1, n2]"]
    without = cockpit.preview(Ask("exclude", IDENTITY, (), ("n1",))).consequences
    assert "runs on this machine all the same, the only one: nothing keeps away from n1" in without


def test_the_form_of_a_run_is_of_its_newest_attempt(cockpit: LiveCockpit, attempt: Path) -> None:
    fields = {one.key: one for one in cockpit.fields(cockpit.layout_file(IDENTITY), ("train.steps=7",))}
    assert (fields["train.steps"].value, fields["train.steps"].is_set) == (7, True)
    before = load_layout(resolve("local/grpo-tiny")).layout
    assert fields["train.steps"].before == before.train.steps
    assert fields["hardware.nodes"].value == before.hardware.nodes
    attempt.joinpath("layout.yaml").unlink()
    with pytest.raises(RltuiError, match="it runs a script"):
        cockpit.layout_file(IDENTITY)


def test_a_cockpit_that_is_opened_later_is_the_live_one(attempt: Path) -> None:
    later = OpenedLater()
    later.close()
    await_that(lambda: [run.run_id for run in later.runs().runs] == [RUN], "the run comes")
    later.close()


def test_a_review_has_the_script_of_its_cluster() -> None:
    config_dir().mkdir(parents=True)
    config_dir().joinpath("clusters.yaml").write_text("hpc:\n  host: login.example.org\n  scheduler: slurm\n")
    live = LiveCockpit()
    try:
        assert [one.name for one in live.clusters()] == ["local", "hpc"]
        review = live.review("local/grpo-tiny", ("train.steps=7",), "hpc")
        assert review.cluster == "hpc"
        assert "#SBATCH" in review.script
        assert review.commands == ("rltui launch local/grpo-tiny train.steps=7 --cluster hpc",)
        assert live.review("local/grpo-tiny").script == ""
    finally:
        live.close()


def test_a_review_has_the_memory_of_each_role_and_moment(cockpit: LiveCockpit) -> None:
    memory = "\n".join(cockpit.review("opd/text-8").memory)
    assert all(role in memory for role in ("learner", "rollout", "teacher"))
    assert "backward" in memory
    assert cockpit.review("local/grpo-tiny").memory == (), "CPU slots have no card"


def test_a_review_has_what_plan_expects_within_a_keystroke(cockpit: LiveCockpit) -> None:
    expected = "\n".join(cockpit.review("opd/text-8").plan)
    trust_in_plan = "held-out published points of dense models are within a factor of "
    for words in (") s a step: ", "score", "response tokens/s", "GPU-hours", trust_in_plan):
        assert words in expected
    took_s = []
    for number in range(10):
        began = time.process_time()
        assert cockpit.review("opd/text-8", (f"train.steps={number + 1}",)).plan
        took_s.append(time.process_time() - began)
    assert min(took_s) < 0.1, "all of it, as somebody types"
    assert "engines that are not vLLM's" in cockpit.review("opd/text-8", ("roles.rollout.engine=hf",)).plan[0]
    assert cockpit.review("local/grpo-tiny").plan == (), "CPU slots have no data sheet"


def test_what_takes_longer_to_know_of_a_launch(cockpit: LiveCockpit) -> None:
    assert "has not answered" in cockpit.outlook("local/grpo-tiny").problem
    await_that(lambda: bool(cockpit.runs().runs), "the run comes")
    seen = cockpit.outlook("local/grpo-tiny", ("train.steps=7",))
    assert seen.start == "nothing waits in front of it"
    assert (seen.last_run, seen.changes) == (RUN, ("- train.steps: 2000", "+ train.steps: 7"))
    assert not cockpit.outlook("local/grpo-tiny").changes
    assert cockpit.outlook("local/opd-tiny").last_run == ""


def test_a_review_knows_what_the_profile_of_its_cluster_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "8")  # what stands in the way is not this machine's lack of a card
    config_dir().mkdir(parents=True)
    config_dir().joinpath("clusters.yaml").write_text("hpc: {scheduler: slurm, max_time: '01:00:00'}\n")
    live = LiveCockpit()
    try:
        words = ("slurm.time=02:00:00",)
        assert live.review("local/grpo-tiny", words).can_launch
        review = live.review("local/grpo-tiny", words, "hpc")
        assert [(finding.code, finding.severity) for finding in review.findings] == [("S611", "error")]
        review = live.review("local/grpo-tiny", (*words, "slurm.partition=long"), "hpc")
        assert [(finding.code, finding.severity) for finding in review.findings] == [("S611", "warning")]
        assert review.can_launch, "the layout's partition is another one than the profile's"
        assert not live.review("verl-ppo/ppo-2x8-split").can_launch
        with pytest.raises(RefusedError, match="local is one machine") as refused:
            live.launch("verl-ppo/ppo-2x8-split", ("train.seed=7",))
        assert "train.seed=7 --cluster local --live` shows everything" in refused.value.hint, "what was launched"
    finally:
        live.close()


def test_a_door_carries_a_question_to_somebody_and_the_answers_back() -> None:
    shown: list[PendingQuestion] = []
    question = Question(kind="password", title="ada@hpc", fields=(Field("Password:"),))
    answers: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: answers.append(Door(shown.append).ask(question)))
    thread.start()
    await_that(lambda: bool(shown), "the question comes")
    shown[0].answer(("secret",))
    shown[0].answer(None)  # what is given counts
    thread.join(DEADLINE_S)
    assert answers == [("secret",)]
    with pytest.raises(NeedsAttentionError, match="did not answer"):
        Door(lambda pending: pending.answer(None)).ask(question)


@pytest.mark.parametrize(
    ("verb", "key", "words"),
    [
        ("gpus", "hosts", "ray::Learner.train"),
        ("actors", "actors", ""),
        ("queues", "status", ""),
        ("metrics", "series", "reward"),
        ("events", "events", "training"),
    ],
)
def test_the_verbs_show_what_the_tabs_show(
    verb: str, key: str, words: str, attempt: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, RUN]) == 0
    said = capsys.readouterr()
    assert words in said.out
    assert said.out or RUN in said.err, "nothing to show is said on stderr"
    assert main([verb, RUN, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    assert answer["run_id"] == RUN
    assert key in answer


def test_a_list_in_the_shell_has_the_numbers_of_every_run(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(60):
        shutil.copytree(attempt.parents[1], run_root() / f"copy-{number:02d}")
    assert main(["ps", "--json"]) == 0
    assert [run["reward"] for run in json.loads(capsys.readouterr().out)["runs"]] == [0.3] * 61


def test_earlier_attempts_stay_explained(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = attempt.parent / "02"
    second.mkdir()
    for name in ("layout.yaml", "stage.json"):
        shutil.copy(attempt / name, second / name)
    (second / "job.json").write_text('{"uuid": "u"}')
    (second / "end.json").write_text(json.dumps({"outcome": "finished", "reason": "all steps done", "at": NOW + 99}))
    (attempt / "end.json").write_text(
        json.dumps({"outcome": "lost", "reason": "node failure on n1", "at": NOW, "bad_nodes": {"n1": "node failure"}})
    )
    assert main(["why", RUN]) == 0
    capsys.readouterr()
    assert main(["why", RUN, "--attempt", "1"]) == 1
    assert "GPU" in capsys.readouterr().out
    assert main(["why", RUN, "--attempt", "9"]) == 2
    assert "It has 1 to 2" in capsys.readouterr().err
    assert main(["show", RUN]) == 0
    assert "attempt 1 lost: node failure on n1" in capsys.readouterr().out
    assert main(["show", RUN, "--json"]) == 0
    [before] = json.loads(capsys.readouterr().out)["attempts_before"]
    assert (before["attempt"], before["bad_nodes"]) == (1, {"n1": "node failure"})


def test_a_gpu_that_fell_off_the_bus_is_not_shown_as_free(attempt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cards = [{"i": index, "name": "H100", "util": 0.0, "mem": [0.0, 80.0], "pids": []} for index in (0, 1)]
    line = {"t": NOW, "host": "n1", "cpus": 8, "cpu": 41.0, "mem": [9.0, 31.0], "gpus": cards}
    (attempt / "gpu-n1.jsonl").write_text(json.dumps(line) + "\n")
    event = {"time": NOW, "kind": "xid", "text": "Xid (PCI:0000:1b:00.0): 79, GPU 1 of n1", "host": "n1"}
    (attempt / "events.jsonl").write_text(json.dumps(event) + "\n")
    assert main(["gpus", RUN]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[-1] for row in rows] == ["free", "79"]


def test_what_was_estimated_for_each_role_stands_beside_its_cards(cockpit: LiveCockpit, attempt: Path) -> None:
    attempt.joinpath("layout.yaml").write_text(dump_layout(load_layout(resolve("opd/text-8")).layout))
    assert cockpit.watch(IDENTITY).role_memory == (), "the first picture does not wait for it"
    found = {one.letter: one for one in cockpit.watch(IDENTITY).role_memory}
    expected = {role.role: role.peak_gib for role in estimate_roles(load_layout(resolve("opd/text-8")).layout).roles}
    assert {one.letter: one.estimated_gib for one in found.values()} == {
        "L": expected["learner"], "E": expected["rollout"], "T": expected["teacher"],
    }  # fmt: skip
    assert found["L"].moment
