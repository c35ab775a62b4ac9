"""The supervisor on a real Ray: whatever happens, the attempt ends with a word and nothing is left running."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from forks import server_of_session, write_forking_python
from rltui.onnode import processes, ray_head, ray_process, rundir
from rltui.onnode.environment import read_environment
from waiting import DEADLINE_S, eventually

pytestmark = [pytest.mark.trainers]

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parent / "ray_job.py"


class Attempt:
    """An attempt with its supervisor as a child of the test; ``python`` starts its Ray and its trainer."""

    def __init__(self, run: Path, then: str, python: str = sys.executable, **changes: object) -> None:
        self.path = run / "attempts" / "01"
        self.path.mkdir(parents=True)
        self.uuid = uuid4().hex
        job = {
            "schema": 1,
            "uuid": self.uuid,
            "run_id": run.name,
            "attempt": 1,
            "argv": [python, str(JOB), "--attempt", str(self.path), "--then", then],
            "code": str(ROOT),
            "modules": ["ray"],
            "ray": {"cpus": 2, "gpus": 0},
            "resources": {"cpus": 1, "gpus": 0},
            "deadlines_s": {"ray_up": 180, "grace": 2},
            **changes,
        }
        (self.path / "job.json").write_text(json.dumps(job))
        self.supervisor: subprocess.Popen[bytes] | None = None

    def start(self, cpus: int = 8) -> "Attempt":
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLTUI_LOCAL_CPUS": str(cpus)}
        argv = [sys.executable, "-m", "rltui.onnode.supervise", "--attempt", str(self.path)]
        self.supervisor = subprocess.Popen(argv, env=environment, start_new_session=True)
        return self

    def stage(self) -> str:
        return str((rundir.read_json(str(self.path / "stage.json")) or {}).get("stage"))

    def end(self) -> dict[str, object]:
        eventually((self.path / "end.json").exists, "end.json")
        return rundir.read_json(str(self.path / "end.json")) or {}

    def await_ready(self) -> None:
        eventually((self.path / "ready").exists, "the job's ready file")

    def signal(self, number: int) -> None:
        assert self.supervisor is not None
        self.supervisor.send_signal(number)

    def wait(self) -> int:
        assert self.supervisor is not None
        return self.supervisor.wait(DEADLINE_S)

    def left(self) -> list[processes.Process]:
        return processes.by_attempt(self.uuid)

    def ray_folder(self) -> Path:
        return Path(ray_process.ray_folder(self.uuid))

    def assert_nothing_left(self) -> None:
        eventually(lambda: not self.left(), f"the end of {self.left()}")
        eventually(lambda: not self.ray_folder().exists(), "the removal of Ray's folder")


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    made: list[Attempt] = []

    write_forking_python(tmp_path / "python", server_of_session())

    def make(then: str, python: str = str(tmp_path / "python"), **changes: object) -> Attempt:
        made.append(Attempt(tmp_path / f"run-{len(made)}", then, python, **changes))
        return made[-1]

    yield make
    for attempt in made:
        if attempt.supervisor is not None and attempt.supervisor.poll() is None:
            attempt.supervisor.kill()
            attempt.supervisor.wait()
        processes.end_all(attempt.uuid, grace_s=0.5, exclude=())


def test_a_run_that_is_submitted_twice_runs_once_and_leaves_nothing(attempts: Callable[..., Attempt]) -> None:
    attempt = attempts("finish", sys.executable).start()  # its Ray is whole, as a user's is
    eventually((attempt.path / "supervisor.json").exists, "the first supervisor")
    first = (attempt.path / "supervisor.json").read_text()
    again = subprocess.run(
        [sys.executable, "-m", "rltui.onnode.supervise", "--attempt", str(attempt.path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=DEADLINE_S,
    )
    assert again.returncode == 0
    assert attempt.wait() == 0, attempt.end()
    assert (attempt.path / "supervisor.json").read_text() == first
    assert attempt.end()["outcome"] == "finished"
    assert attempt.stage() == "ended"
    attempt.assert_nothing_left()
    litter = Path((attempt.path / "litter").read_text())
    assert litter.is_relative_to(attempt.ray_folder())
    assert len(os.fsencode(litter)) < 107 - len("/listener-12345678")
    history = (rundir.read_json(str(attempt.path / "stage.json")) or {})["history"]
    assert [entry["stage"] for entry in history] == ["preflight", "ray-up", "training", "ended"]
    for secret in ("ray.json", "ray.token"):
        assert (attempt.path / secret).stat().st_mode & 0o077 == 0


def test_a_crash_is_told_while_a_neighbour_goes_on_whose_killed_supervisor_is_told_too(
    attempts: Callable[..., Attempt],
) -> None:
    neighbour = attempts("wait").start()
    crashing = attempts("crash").start()
    assert crashing.wait() == 1
    assert crashing.end()["reason"] == "learner 1 on node7 died: out of memory"
    crashing.assert_nothing_left()
    neighbour.await_ready()
    lines = [" ".join(processes.words_of(process.pid)) for process in neighbour.left()]  # a title has 80 characters
    assert any("raylet" in line for line in lines), "the neighbour's Ray was touched"
    assert not [line for line in lines if "ray::IDLE" in line or "ray/autoscaler" in line], "what nobody asked for"
    neighbour.signal(signal.SIGKILL)
    neighbour.wait()
    assert neighbour.end()["outcome"] == "lost"
    neighbour.assert_nothing_left()


def test_gpus_that_this_machine_has_not_are_said_before_ray_starts(
    attempts: Callable[..., Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_LOCAL_GPUS", "1")
    attempt = attempts("finish", resources={"cpus": 1, "gpus": 2}).start()
    assert attempt.wait() == 1
    assert "for nodes of 2 GPUs, this machine has 1: " in str(attempt.end()["reason"])
    history = (rundir.read_json(str(attempt.path / "stage.json")) or {})["history"]
    assert [entry["stage"] for entry in history] == ["preflight", "ended"]
    attempt.assert_nothing_left()


def test_a_ray_that_is_not_up_in_time_is_said_with_the_key_that_gives_it_longer(
    attempts: Callable[..., Attempt],
) -> None:
    attempt = attempts("finish", deadlines_s={"ray_up": 0.1, "grace": 2}).start()
    assert attempt.wait() == 1
    assert " within 0.1 s (deadlines.ray_s), at a load of " in str(attempt.end()["reason"])
    attempt.assert_nothing_left()


def test_a_stubborn_trainer_is_killed_after_its_grace(attempts: Callable[..., Attempt]) -> None:
    attempt = attempts("stubborn").start()
    attempt.await_ready()
    attempt.signal(signal.SIGTERM)
    attempt.wait()
    assert attempt.end()["outcome"] == "cancelled"
    attempt.assert_nothing_left()


def test_ray_killed_under_the_trainer_is_named(attempts: Callable[..., Attempt]) -> None:
    attempt = attempts("wait").start()
    attempt.await_ready()
    endpoint = rundir.read_json(str(attempt.path / "ray.json")) or {}
    os.kill(endpoint["pid"], signal.SIGKILL)
    attempt.wait()
    assert "Ray died" in str(attempt.end()["reason"])
    attempt.assert_nothing_left()


def test_runs_queue_for_the_machine_and_a_queued_one_can_be_cancelled(attempts: Callable[..., Attempt]) -> None:
    def without_ray(program: str) -> Attempt:
        return attempts("", ray=None, modules=[], argv=[sys.executable, "-c", program]).start(cpus=1)

    first = without_ray("import time; open('ready', 'w').close(); time.sleep(600)")
    first.await_ready()
    second, third = without_ray("pass"), without_ray("pass")
    eventually(lambda: second.stage() == third.stage() == "queued", "the others' queueing")
    detail = (rundir.read_json(str(second.path / "stage.json")) or {})["detail"]
    assert detail.startswith("behind run-0 for 1 CPU slots")
    third.signal(signal.SIGTERM)
    third.wait()
    assert third.end()["outcome"] == "cancelled"
    first.signal(signal.SIGTERM)
    first.wait()
    assert first.end()["outcome"] == "cancelled"
    assert second.wait() == 0
    assert second.end()["outcome"] == "finished"


def test_taken_ports_and_no_shared_memory_do_not_stop_ray(
    attempts: Callable[..., Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = attempts("finish")
    real, calls = ray_head.free_ports, []
    with contextlib.ExitStack() as held:
        taken = []
        for address in (ray_process.LOOPBACK, "127.0.0.1"):  # of the GCS at the first try, of the dashboard at the next
            holder = held.enter_context(socket.socket())
            holder.bind((address, 0))
            holder.listen()
            taken.append(holder.getsockname()[1])

        def ports(count: int) -> list[int]:
            place, found = len(calls), real(count)
            calls.append(count)
            return [*found[:place], taken[place], *found[place + 1 :]] if place < len(taken) else found

        monkeypatch.setattr(ray_head, "free_ports", ports)
        monkeypatch.setattr(ray_process, "shared_memory_works", lambda: False)
        spec = ray_process.RaySpec(sys.executable, str(attempt.path), attempt.uuid, 1, 0)
        head = ray_head.RayHead(spec, {**os.environ, rundir.ATTEMPT_VARIABLE: attempt.uuid})
        try:
            head.start(180, lambda: False, tries=5)
            assert len(calls) >= 1 + len(taken)
            titles = [one.title for one in processes.by_attempt(attempt.uuid)]
            heads = {title.split("-")[2] for title in titles if title.startswith("ray-dashboard-")}
            assert heads == {"EventHead", "NodeHead", "StateHead"}
            assert not any("ray.util.client.server" in title for title in titles)
        finally:
            head.stop()
            processes.end_all(attempt.uuid, grace_s=1, exclude=())
            head.remove_folder()
    attempt.assert_nothing_left()


def test_what_torch_has_compiled_outlives_the_attempt(tmp_path: Path) -> None:
    spec = ray_process.RaySpec(sys.executable, str(tmp_path), uuid4().hex, 1, 0)
    given = ray_process.RayProcess(spec, {}).environment
    assert given["TMPDIR"].startswith(given["RAY_TMPDIR"])
    assert not given["TORCHINDUCTOR_CACHE_DIR"].startswith(given["RAY_TMPDIR"])
    own = ray_process.RayProcess(spec, {"TORCHINDUCTOR_CACHE_DIR": "/scratch/alice"}).environment
    assert own["TORCHINDUCTOR_CACHE_DIR"] == "/scratch/alice"


def test_logs_of_ray_that_cannot_be_kept_do_not_keep_an_attempt_from_telling_its_end(tmp_path: Path) -> None:
    """Else the guard would call a run lost that is finished."""
    ray = ray_process.RayProcess(ray_process.RaySpec(sys.executable, str(tmp_path), uuid4().hex, 1, 0), {})
    ray.folder = str(tmp_path / "ray")
    logs = tmp_path / "ray/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "gcs_server.out").write_text("hello\n")
    (tmp_path / "ray-logs").symlink_to("/dev/full")
    ray.remove_folder()
    assert not (tmp_path / "ray").exists()


def test_what_is_missing_is_told_before_ray_starts(attempts: Callable[..., Attempt]) -> None:
    attempt = attempts("finish", modules=["ray", "no_such_module"]).start()
    assert attempt.wait() == 1
    reason = str(attempt.end()["reason"])
    assert "cannot import no_such_module" in reason
    assert "pip install 'rltui[trainers]'" in reason
    assert not (attempt.path / "ray.log").exists()


def test_a_full_disk_is_told_before_ray_starts(attempts: Callable[..., Attempt], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        attempt = Attempt(small / "run", "finish").start()
        assert attempt.wait() == 1
        assert "0.1 GiB free, 1 are needed" in str(attempt.end()["reason"])
        attempt.assert_nothing_left()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_without_shared_memory_ray_gets_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ray_process.shared_memory_works(str(tmp_path / "none"))
    monkeypatch.setattr(ray_process, "shared_memory_works", lambda: False)
    spec = ray_process.RaySpec("python3", str(tmp_path), "u", 1, 0)
    assert f"--plasma-directory={tmp_path}" in ray_process.node_options(spec, str(tmp_path))


def test_environment_files_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("A=1\n# B=2\nC=x=y $(touch nothing)\n\nnonsense\n")
    assert read_environment(str(path)) == {"A": "1", "C": "x=y $(touch nothing)"}
    assert read_environment(str(tmp_path / "none")) == {}
