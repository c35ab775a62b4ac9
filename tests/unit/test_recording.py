"""Recordings as files: what is in them, what is refused, and what a run was at a moment."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from rltui.cli.main import main
from rltui.cluster.relay_types import RelayError
from rltui.errors import UsageError
from rltui.layout.secret_words import MASK
from rltui.paths import ensure_private, run_root
from rltui.service import record, recording
from rltui.service.as_of import run_times
from rltui.service.cockpit import Ask
from rltui.service.recording import Manifest, Recording, read_recording
from rltui.service.replay import RecordedClient, RecordedFiles, ReplayClock, ReplayCockpit, moment_of
from rltui.watch.snapshots import RunSummary

FIXTURE = Path(__file__).parents[1] / "fixtures" / "recording" / "grpo-tiny.tar.gz"
"""A real run of ``local/grpo-tiny`` with 240 steps, recorded with ``--follow``; its paths and host were renamed."""

RUN = "grpo-1a2b"
TOKEN, OWN = "5f" * 32, "correct-horse-battery"
MANIFEST = json.dumps({"schema": 1, "run_id": RUN, "recorded_at": 2000.0}).encode()


def archive(path: Path, entries: dict[str, bytes], **odd: object) -> Path:
    """A ``.tar.gz`` with entries of these names; ``odd`` are fields of a last one, such as a link."""
    with tarfile.open(path, "w:gz") as target:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            target.addfile(info, io.BytesIO(data))
        if odd:
            info = tarfile.TarInfo(f"{RUN}/attempts/01/out.log")
            for key, value in odd.items():
                setattr(info, key, value)
            target.addfile(info)
    return path


def whole(**more: bytes) -> dict[str, bytes]:
    """Entries of a recording that can be shown."""
    return {f"{RUN}/recording.json": MANIFEST, f"{RUN}/run.json": b'{"name": "grpo", "created_at": 1000.0}', **more}


def recorded(files: dict[str, bytes], mtime: float = 1900.0, **about: object) -> Recording:
    """A recording with these files of the first attempt."""
    told = {f"attempts/01/{name}": (data, mtime) for name, data in files.items()}
    manifest = Manifest(**({"schema": 1, "run_id": RUN, "recorded_at": 2000.0} | about))
    return Recording(manifest, {"run.json": (b'{"created_at": 1000.0}', 1000.0), **told})


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "/etc/cron.d/evil", f"{RUN}/../../evil", f"{RUN}/attempts/01/../../../evil", "other/run.json",
        f"{RUN}/attempts/01/\x1b]0;owned\x07.log", f"{RUN}/.ssh/authorized_keys", f"{RUN}/a/b/c", RUN,
        f"{RUN}/attempts", f"{RUN}/attempts/01/evidence",
    ],
)  # fmt: skip
def test_an_entry_that_leads_elsewhere_refuses_the_file(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "r.tar.gz", whole(**{name: b"x"}))
    with pytest.raises(UsageError, match="entry that no recording has") as refused:
        read_recording(path)
    assert "\x1b" not in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == ["r.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_plain_file_refuses_the_file(kind: bytes, tmp_path: Path) -> None:
    path = archive(tmp_path / "r.tar.gz", whole(), type=kind, linkname="/etc/passwd")
    with pytest.raises(UsageError, match="entry that no recording has"):
        read_recording(path)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording._Limited, "left_bytes", 1 << 20)
    path = archive(tmp_path / "r.tar.gz", whole(**{f"{RUN}/attempts/01/out.log": bytes(2 << 20)}))
    with pytest.raises(UsageError, match="unpacks to more than"):
        read_recording(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"not gzip at all", "is damaged, or no recording"),
        (FIXTURE.read_bytes()[:30_000], "is damaged, or no recording"),
        (gzip.compress(b"no tar"), "is damaged, or no recording"),
        (b"", "is damaged, or no recording"),
    ],
    ids=["other", "torn", "no tar", "empty"],
)
def test_a_damaged_file_is_told_with_the_next_step(
    data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.tar.gz"
    path.write_bytes(data)
    assert main(["replay", str(path), "--headless"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "`rltui record RUN`" in told


def test_a_newer_schema_and_what_is_none_are_told(tmp_path: Path) -> None:
    newer = MANIFEST.replace(b'"schema": 1', b'"schema": 7, "made_by": "rltui 9.0"')
    path = archive(tmp_path / "r.tar.gz", {**whole(), f"{RUN}/recording.json": newer})
    with pytest.raises(UsageError, match=r"of a newer rltui: rltui 9\.0 wrote it in schema 7") as refused:
        read_recording(path)
    assert refused.value.hint == "Update rltui."
    with pytest.raises(UsageError, match=r"has no recording\.json"):
        read_recording(archive(tmp_path / "o.tar.gz", {f"{RUN}/run.json": b"{}"}))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_recording(tmp_path / "missing")


ODD = (
    '{"step": [1], "time": {}}',
    '{"time": NaN, "t": Infinity, "step": {}}',
    '{"time": -1, "t": 1e300}',
    "[]",
    "\x00\xff",
    "",
    '{"stage": 7, "history": [3, {"at": "x"}, {"stage": [], "at": 1100}], "roles": 5, "at": true, "updated": []}',
    '{"stage": "training", "history": {"at": 1}, "at": "soon", "actors": 3, "status": [], "state": "x", "nodes": 1}',
)


@pytest.mark.parametrize("odd", ODD)
def test_odd_contents_stop_no_replay(odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = f'{odd}\n{{"step": 2, "time": 1200.0, "t": 1200.0}}\n{odd}'.encode("utf-8", "surrogateescape")
    names = ("stage.json", "end.json", "metrics.jsonl", "samples.jsonl", "events.jsonl", "gpu-n1.jsonl", "out.log")
    names += ("actors.json", "status-now.json", "job.json", "script.json", "layout.yaml", "failure.json")
    entries = {f"{RUN}/attempts/01/{name}": lines if "l" in name[-2:] else odd.encode() for name in names}
    changed = [
        {"t": at, "path": path, "text": odd, "size": -1}
        for at in (1100.0, "x", None)
        for path in (odd, "attempts/01/out.log")
    ]
    changes = "".join(json.dumps(one) + "\n" for one in changed) + odd
    path = archive(tmp_path / "r.tar.gz", whole(**entries, **{f"{RUN}/changes.jsonl": changes.encode()}))
    for at in ("0", "50%", "end"):
        assert main(["replay", str(path), "--json", "--at", at]) == 0
        assert json.loads(capsys.readouterr().out)["run"]["summary"]["run_id"] == RUN


@pytest.mark.parametrize(
    "about", ['"utc_offset_s": 1e9', '"recorded_at": 1e300', '"recorded_at": NaN', '"schema": 0', '"run_id": "x"']
)
def test_a_manifest_that_cannot_be_is_refused(about: str, tmp_path: Path) -> None:
    broken = MANIFEST[:-1] + f", {about}}}".encode()
    with pytest.raises(UsageError, match="is no recording"):
        read_recording(archive(tmp_path / "r.tar.gz", {**whole(), f"{RUN}/recording.json": broken}))


@pytest.fixture
def files() -> Iterator[RecordedFiles]:
    lines = [f"1970-01-01 00:{17 + minute}:00 step {minute}\nmore of {minute}\n".encode() for minute in range(3)]
    script = b'{"script": "run.sh", "words": []}'
    opened = RecordedFiles(recorded({"out.log": b"head\n" + b"".join(lines), "script.json": script}))
    yield opened
    opened.close()
    assert not opened.root.exists()


def test_a_recording_reaches_nothing_but_itself(files: RecordedFiles, tmp_path: Path) -> None:
    client = RecordedClient(files)
    tmp_path.joinpath("secret").write_text("mine")
    for path in (str(tmp_path / "secret"), "~/secret", f"{files.path}/../../etc/passwd", "/etc/passwd", ""):
        for ask in (
            client.list,
            client.read,
            lambda path: client.tail(path, 10),
            lambda path: client.collect(path, ["*"]),
        ):
            with pytest.raises(RelayError, match="not in the recording"):
                ask(path)
    for ask in (
        lambda: client.run(["true"]),
        lambda: client.put(str(tmp_path / "new"), b"x"),
        lambda: client.put(f"{files.path}/new", b"x"),
        lambda: client.http("http://127.0.0.1:1"),
        lambda: client.signal(1, "0", 9),
    ):
        with pytest.raises(RelayError, match="This is a recording"):
            ask()
    assert files.root.stat().st_mode & 0o077 == 0


def test_a_log_grows_by_its_lines_times_and_shrinks_again(files: RecordedFiles) -> None:
    client = RecordedClient(files)
    log = f"{files.path}/attempts/01/out.log"
    files.show(1079.0)
    assert client.tail(log, 1000).data.decode().splitlines() == ["head", "1970-01-01 00:17:00 step 0", "more of 0"]
    files.show(1080.0)
    assert client.tail(log, 1000).data.endswith(b"more of 1\n")
    files.show(1000.0)
    with pytest.raises(RelayError, match="No such file"):
        client.tail(log, 1000)


def test_a_log_without_times_grows_evenly_between_the_start_and_its_last_write() -> None:
    stage = json.dumps({"stage": "training", "history": [{"stage": "preflight", "at": 1100.0}]}).encode()
    log = run_times(recorded({"stage.json": stage, "out.log": b"no time\n" * 100})).files["attempts/01/out.log"]
    assert [log.at(1099.0), log.at(1100.0), log.at(1500.0), log.at(1900.0)] == [None, 0, 400, 800]


def test_what_an_actor_said_as_it_died_is_nothing_of_the_time_before() -> None:
    stage = json.dumps({"stage": "training", "history": [{"stage": "preflight", "at": 1100.0}]}).encode()
    said = b"no time\n" * 10
    files = run_times(recorded({"stage.json": stage, "ray-logs/worker-1.err": said})).files
    log = files["attempts/01/ray-logs/worker-1.err"]
    assert [log.at(1800.0), log.at(1900.0)] == [None, len(said)]


def test_the_stage_is_made_again_from_history_events_and_steps() -> None:
    history = [
        {"stage": "loading", "at": 1100.0},
        {"stage": "training", "at": 1200.0},
        {"stage": "saving", "at": 1300.0},
    ]
    stage = {"stage": "saving", "updated": 1300.0, "detail": "step 2", "steps": 9, "history": history}
    metrics = b'{"step": 1, "time": 1250.0}\n{"step": 2, "time": 1320.0}\nno json\n{"time": "NaN"}\n'
    events = b'{"time": 1100.01, "kind": "stage", "text": "loading: making the models ready"}\n'
    files = {"stage.json": json.dumps(stage).encode(), "metrics.jsonl": metrics, "events.jsonl": events}
    told = run_times(recorded(files)).files["attempts/01/stage.json"]

    def at(now: float) -> tuple[object, ...]:
        content = told.at(now)
        assert isinstance(content, bytes)
        said = json.loads(content)
        return said["stage"], said["detail"], said["step"], len(said["history"])

    assert told.at(1099.0) is None
    assert at(1100.0) == ("loading", "making the models ready", None, 1)
    assert at(1250.0) == ("training", "", 1, 2)
    assert at(1300.0) == ("saving", "", 1, 3)
    assert at(1320.0) == ("training", "", 2, 3)


def test_a_real_run_is_as_it_was_at_each_moment(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for at in ("0", "25%", "60%", "end"):
        assert main(["replay", str(FIXTURE), "--json", "--at", at]) == 0
        picture = json.loads(capsys.readouterr().out)["run"]
        run, status = picture["summary"], picture["status"]
        seen.append((run["state"], run["stage"]["step"], len(picture["actors"]), len(status["queues"])))
        assert len(picture["metrics"]["steps"]) == (run["stage"]["step"] or 0)
    assert seen == [("queued", None, 0, 0), ("starting", None, 3, 0), ("running", 82, 3, 2), ("finished", 240, 3, 0)]


def test_what_a_recording_has_of_a_run_and_what_not(
    tmp_path: Path, own_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ensure_private(run_root()) / RUN
    for number in ("01", "02"):
        attempt = folder / "attempts" / number
        attempt.mkdir(parents=True)
        attempt.joinpath("job.json").write_text("{}")
        attempt.joinpath("end.json").write_text(json.dumps({"outcome": "failed", "at": 1100.0}))
        attempt.joinpath("env").write_text(f"JUDGE_API_KEY={OWN}\n")
        attempt.joinpath("ray.json").write_text(json.dumps({"dashboard": "http://127.0.0.1:2", "token": TOKEN}))
        attempt.joinpath("out.log").write_text(f"asked with {OWN}, {TOKEN} refused, HF_TOKEN=hf_{'aB3' * 10}\n")
        attempt.joinpath("my own.log").write_text("a name that no recording may have")
        attempt.joinpath("samples.jsonl").write_text('{"step": 1, "prompt": "p", "answer": "a"}\n')
    about = {"name": "grpo", "algorithm": "grpo", "cluster": "local", "created_at": 1000.0, "nodes": 1}
    folder.joinpath("run.json").write_text(json.dumps(about | {"gpus_per_node": 1, "gpu": "cpu"}))
    target = tmp_path / "r.tar.gz"
    assert main(["record", RUN, "-o", str(target), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], target.stat().st_mode & 0o777) == (str(target), 0o600)
    held = read_recording(target).files
    assert {name.rpartition("/")[2] for name in held} == {
        "run.json",
        "job.json",
        "end.json",
        "out.log",
        "samples.jsonl",
    }
    assert held["attempts/02/out.log"][0].decode() == f"asked with {MASK}, {MASK} refused, HF_TOKEN={MASK}\n"
    assert not [name for name, (data, _) in held.items() for secret in (OWN, TOKEN) if secret.encode() in data]
    assert main(["record", RUN, "-o", str(tmp_path / "no" / "r.tar.gz")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_the_clock_stops_hurries_and_stands_at_both_ends() -> None:
    seconds = [0.0]
    clock = ReplayClock(1000.0, 1100.0, clock=lambda: seconds[0])
    seconds[0] = 10.0
    assert clock.now == 1010.0
    clock.hurry(True)
    seconds[0] = 15.0
    assert (clock.now, clock.speed) == (1020.0, 2.0)
    clock.toggle()
    seconds[0] = 40.0
    assert (clock.now, clock.paused) == (1020.0, True)
    clock.go_to(0.0)
    assert clock.now == 1000.0
    clock.toggle()
    seconds[0] = 500.0
    assert (clock.now, clock.is_over, clock.in_words) == (1100.0, True, "0:01:40 of 0:01:40, 01-01 00:18:20")
    clock.toggle()
    assert (clock.now, clock.paused) == (1000.0, False)


@pytest.mark.parametrize(
    ("text", "after_s"),
    [("0", 0), ("90", 90), ("12m", 720), ("1h30m", 5400), ("1:02:03", 3723), ("2:30", 150), ("0.5", 5000),
     ("25%", 2500), ("end", 10_000), ("1.5m", 90)],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text: str, after_s: float) -> None:
    assert moment_of(text, 1000.0, 11_000.0) == 1000.0 + after_s


@pytest.mark.parametrize("text", ["", "soon", "5h", "-3", "101%", "1:2", "nan"])
def test_what_is_no_time_of_the_recording_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        moment_of(text, 1000.0, 11_000.0)


def test_events_are_jumped_to_and_back_past_the_one_just_gone_to() -> None:
    events = b"".join(json.dumps({"time": at, "kind": "k", "text": f"e{at}"}).encode() + b"\n" for at in (1100, 1200))
    cockpit = ReplayCockpit(recorded({"events.jsonl": events}))
    try:
        assert [cockpit.jump(True) for _ in range(3)][-1] is None
        assert cockpit.said == "k e1200"
        found = cockpit.jump(False)
        assert found is not None
        assert found.text == "k e1100"
        with pytest.raises(UsageError, match="This is a recording"):
            cockpit.preview(Ask("cancel", cockpit.identity))
    finally:
        cockpit.close()


def test_a_straggler_is_named_at_its_moment() -> None:
    def line(at: float, watts: Sequence[float]) -> str:
        cards = [
            {"i": index, "name": "H100", "util": 99.0, "mem": [70.0, 80.0], "w": power, "c": 60.0, "pids": [70 + index]}
            for index, power in enumerate(watts)
        ]
        procs = [{"pid": 70 + index, "title": "ray::Learner.train"} for index in range(4)]
        told = {"t": at, "host": "n7", "cpus": 8, "cpu": 41.0, "mem": [9.0, 31.0], "gpus": cards, "procs": procs}
        return json.dumps(told) + "\n"

    slow = (610.0, 604.0, 190.0, 615.0)
    text = "".join(line(1000.0 + at, slow if at < 400 else (610.0,) * 4) for at in range(0, 900, 10))
    cockpit = ReplayCockpit(recorded({"job.json": b"{}", "gpu-n7.jsonl": text.encode()}, mtime=1000.0), at="5m")
    try:
        cockpit.clock.toggle()
        assert cockpit.watch(cockpit.identity).stragglers == {("n7", 2)}
        cockpit.clock.go_to(1800.0)
        assert cockpit.watch(cockpit.identity).stragglers == frozenset()
    finally:
        cockpit.close()


def test_neither_a_job_that_waits_nor_a_cluster_that_is_away_ends_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    live = RunSummary(
        run_id=RUN, name="grpo", algorithm="grpo", cluster="far", state="running", attempt=1, created_at=50.0,
        nodes=1, gpus_per_node=8, gpu="H100",
    )  # fmt: skip
    states = iter(["unknown", "running", "running", "running", "finished"])
    known = iter(["queued", "finished"])
    looks: list[float] = []

    class Watcher:
        newest = None

        def __init__(self, *_: object) -> None:
            pass

        def snapshot(self) -> SimpleNamespace:
            return SimpleNamespace(summary=structs.replace(live, state=next(states)), taken_at=1.0 + len(looks))

    class Notes(Watcher):
        def look(self, _: object, now: float) -> Iterator[dict[str, float]]:
            looks.append(now)
            if len(looks) == 2:
                raise RelayError("lost", "the connection broke")
            yield {"t": now}

    monkeypatch.setattr(record, "RunWatcher", Watcher)
    monkeypatch.setattr(record, "Notes", Notes)
    monkeypatch.setattr(record, "EVERY_S", 0.0)
    changes: list[dict[str, object]] = []
    context = SimpleNamespace(
        cluster=SimpleNamespace(client=None), find=lambda _: structs.replace(live, state=next(known))
    )
    assert record._watched(context, live, changes).state == "finished"  # type: ignore[arg-type]
    assert [one["t"] for one in changes] == [1.0, 3.0, 4.0, 5.0]
