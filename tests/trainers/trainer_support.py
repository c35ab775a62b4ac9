"""What the trainer's tests share: a Ray of their own, and attempts run by the real program in processes of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forks import forked, server_of_session, workers_from
from free_ports import free_ports
from rltui.layout.load import dump_layout, load_layout
from rltui.onnode import rundir
from rltui.onnode.ray_process import ON_DEMAND, TRIES
from rltui.onnode.ray_start import START, START_OWN
from waiting import WAIT_S, eventually

if TYPE_CHECKING:
    from trainers.checkpoint import Checkpoints, TrainingState

ROOT = Path(__file__).resolve().parents[2]
LAYOUT = ROOT / "layouts" / "local" / "grpo-tiny.yaml"
FORKS = "TESTS_FORKS"
"""Variable with the path of the server from which this Ray's workers and trainers are forked."""
QUICK_S = 0.05
"""Between two looks for what a test wants to catch before the trainer is much further."""


@contextmanager
def ray_cluster(num_cpus: int, cache: Path) -> Iterator[dict[str, str]]:
    """A Ray of one node with a token, ended with everything it started; yields the environment of its clients."""
    folder = Path(tempfile.mkdtemp(prefix="rltui-ray-", dir="/tmp"))  # Ray's socket paths must be short
    ports = free_ports(4)
    (folder / "token").write_text(secrets.token_hex(32))
    environment = {
        **os.environ,
        **ON_DEMAND,
        "PYTHONPATH": str(ROOT),
        "RLTUI_CACHE_DIR": str(cache),
        rundir.ATTEMPT_VARIABLE: "tests-trainers",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_ADDRESS": f"127.0.0.1:{ports[0]}",
        # else the same for every Ray of the machine, and each process of pytest has one
        "DASHBOARD_METRIC_PORT": str(ports[3]),
        FORKS: server_of_session(),
    }
    options = ["--head", "--block", "--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"]
    options += ["--no-monitor"]  # as the product does
    options += [f"--port={ports[0]}", f"--num-cpus={num_cpus}", "--num-gpus=0", f"--temp-dir={folder}"]
    options += ["--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"]
    options += [f"--dashboard-agent-listen-port={ports[1]}", f"--metrics-export-port={ports[2]}"]
    try:
        with ray_process(options, environment, folder / "ray.out", workers_from(environment[FORKS]) + START_OWN):
            yield environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ray_node(environment: dict[str, str], num_cpus: int) -> Iterator[None]:
    """A second node of the Ray of ``environment``, on this machine."""
    ports = free_ports(2)
    options = [f"--address={environment['RAY_ADDRESS']}", "--block", f"--num-cpus={num_cpus}", "--num-gpus=0"]
    options += ["--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"]
    options += [
        f"--dashboard-agent-listen-port={ports[0]}",
        f"--metrics-export-port={ports[1]}",
        "--disable-usage-stats",
    ]
    log = Path(environment["RAY_AUTH_TOKEN_PATH"]).parent / "node.out"
    with ray_process(options, environment, log):
        yield


@contextmanager
def ray_process(options: list[str], environment: dict[str, str], log: Path, program: str = START) -> Iterator[None]:
    """``ray start`` in the foreground, up with its node; with its end, all it started ends.

    Ray gives up after 30 s where a machine is that busy, and the product then tries again, too.
    """
    words = [sys.executable, "-c", program, "start", *options]
    with ExitStack() as ended:
        for _ in range(TRIES):
            with log.open("wb") as out:
                ray = subprocess.Popen(words, env=environment, stdout=out, stderr=out)
            ended.callback(end_ray, ray)
            # drivers fail between the moment that the head's port answers and the one that its node is known there
            eventually(lambda one=ray: "Ray runtime started" in log.read_text() or one.poll() is not None, "Ray")
            if ray.poll() is None:
                break
        assert ray.poll() is None, log.read_text()
        yield


def end_ray(ray: subprocess.Popen[bytes]) -> None:
    """End a ``ray start``, which ends what it started."""
    ray.terminate()
    try:
        ray.wait(20)
    except subprocess.TimeoutExpired:
        ray.kill()
        ray.wait()


def ask_status(attempt: Attempt, token: str | None = None, path: str = "/api/status") -> tuple[int, dict[str, Any]]:
    """The status endpoint's answer; with its own token unless another is given."""
    endpoint = json.loads((attempt.path / rundir.STATUS_ENDPOINT).read_text())
    headers = {"Authorization": f"Bearer {endpoint['token'] if token is None else token}"}
    try:
        request = urllib.request.Request(endpoint["url"] + path, headers=headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def roles_of(attempt: Attempt) -> list[dict[str, Any]]:
    """Where each role is, from the newest event that says so."""
    return list(eventually(lambda: [e["roles"] for e in attempt.lines(rundir.EVENTS) if "roles" in e], "roles")[-1])


def pid_of(attempt: Attempt, role: str) -> int:
    """The process id of a role."""
    return next(int(entry["pid"]) for entry in roles_of(attempt) if entry["role"] == role)


def save_checkpoint(
    checkpoints: Checkpoints, state: TrainingState, needed_bytes: int, write: Callable[[str], None]
) -> Path:
    """A whole checkpoint of ``state`` at once, its learners' part by ``write``."""
    write(str(checkpoints.begin(state, needed_bytes)))
    return checkpoints.complete(state)


def at_generation(call: int, deed: str) -> str:
    """A preamble of an attempt: ``deed``, Python about ``loop``, as its ``call``-th generation begins.

    However fast the trainer is, and however slow the test, it is done then.
    """
    return f"""
import os, signal, time
from trainers.loop import Loop
generate, calls = Loop.generate, []
def with_deed(loop, *arguments):
    calls.append(1)
    if len(calls) == {call}:
        {deed}
    return generate(loop, *arguments)
Loop.generate = with_deed
"""


def trains_beside(owner: str, method: str, steps: int) -> str:
    """A preamble: each step is trained on only once work on the next one's samples has begun, or the run fails.

    Args:
        owner: The class that does that work, with its module.
        method: The method that is called for some of the samples, first among its arguments.
        steps: Of the run; the last has no next one.
    """
    return f"""
import pkgutil, threading
from trainers.loop import Loop
owner = pkgutil.resolve_name("{owner}")
optimize, work = Loop.optimize, owner.{method}
changed, begun = threading.Condition(), []
def optimize_beside(loop, number, *arguments):
    samples = loop.layout.train.prompts_per_step * loop.layout.train.samples_per_prompt
    with changed:
        assert changed.wait_for(lambda: number == {steps} or len(begun) > number * samples, {WAIT_S}), "nothing beside"
    return optimize(loop, number, *arguments)
def work_beside(self, samples, *arguments):
    with changed:
        begun.extend(samples)
        changed.notify_all()
    return work(self, samples, *arguments)
Loop.optimize, owner.{method} = optimize_beside, work_beside
"""


def kill_at(call: int, role: str) -> str:
    """A preamble that kills a role such as ``engine 0``, see ``at_generation``."""
    kind, number = role.split()
    return at_generation(call, f"os.kill(loop.fleet.of({kind!r})[{number}].pid, signal.SIGKILL)")


class Attempt:
    """One attempt of a run, carried out by ``python -m trainers.ALGORITHM``.

    Args:
        run: The run's directory.
        number: Of the attempt.
        overrides: Words such as ``train.steps=40``, on top of ``base``.
        base: Layout file.
    """

    def __init__(self, run: Path, number: int, overrides: Sequence[str], base: Path = LAYOUT) -> None:
        self.run = run
        self.path = run / "attempts" / f"{number:02d}"
        self.path.mkdir(parents=True)
        layout = load_layout(base, overrides).layout
        (self.path / rundir.LAYOUT).write_text(dump_layout(layout), encoding="utf-8")
        self.program = f"trainers.{layout.algorithm}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, environment: dict[str, str], preamble: str = "") -> Attempt:
        """Start the trainer; ``preamble`` is Python that breaks something in its process first."""
        words = ["-m", self.program, "--attempt", str(self.path)]
        if preamble:
            program = f"{preamble}\nimport sys; from {self.program} import main; sys.exit(main(sys.argv[1:]))"
            words = ["-c", program, *words[2:]]
        python = forked(environment[FORKS]) if FORKS in environment else [sys.executable]
        with (self.path / rundir.OUT_LOG).open("ab") as log:
            self.process = subprocess.Popen([*python, *words], env=environment, stdout=log, stderr=log, cwd=self.path)
        return self

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The trainer's process."""
        assert self.process is not None
        return self.process

    def wait(self, deadline_s: float = WAIT_S) -> int:
        """The exit code; the process is killed when the deadline passes."""
        try:
            return self.running.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"the trainer did not end within {deadline_s:g} s:\n{self.log()[-3000:]}") from None

    def end(self) -> None:
        """Kill the trainer if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        """All output."""
        return (self.path / rundir.OUT_LOG).read_text(encoding="utf-8", errors="replace")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The objects of a JSON lines file, as far as it is written."""
        file = self.path / name
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].split("\n") if line]

    def metrics(self) -> list[dict[str, Any]]:
        """One object a step."""
        return self.lines(rundir.METRICS)

    def column(self, name: str) -> list[Any]:
        """A metric of each step, without what an evaluation before the first says."""
        return [line[name] for line in self.metrics() if "loss" in line]

    def events(self, kind: str) -> list[str]:
        """Texts of the events of ``kind``."""
        return [event["text"] for event in self.lines(rundir.EVENTS) if event["kind"] == kind]

    def stage(self) -> dict[str, Any]:
        """What ``stage.json`` says."""
        return rundir.read_json(str(self.path / rundir.STAGE)) or {}

    def await_step(self, step: int) -> None:
        """Wait until ``step`` is in the metrics; a trainer that ended before is a failure."""

        def reached() -> bool:
            done = [line["step"] for line in self.metrics()]
            assert self.running.poll() is None or step in done, self.log()[-3000:]
            return step in done

        eventually(reached, f"step {step}", poll_s=QUICK_S)

    def rewards(self, first: int, last: int) -> list[float]:
        """True rewards of steps ``first`` to ``last``."""
        by_step = {line["step"]: line["reward"] for line in self.metrics()}
        return [by_step[step] for step in range(first, last + 1)]

    def mean_reward(self, first: int, last: int) -> float:
        """Mean true reward of steps ``first`` to ``last``."""
        return statistics.fmean(self.rewards(first, last))


@dataclass
class Learned:
    """A finished run, and what its status endpoint said while it trained."""

    attempt: Attempt
    exit_code: int
    status: dict[str, Any]
    denied: tuple[int, int]
    status_mode: int


def killed_behind(step: int) -> str:
    """A program that kills its trainer three steps after ``step``, once the checkpoint of that one is whole."""
    whole = f"../../{rundir.CHECKPOINTS}/step-{step:06d}/{rundir.CHECKPOINT_COMPLETE}"
    return f"""
import os, signal, time
from trainers.loop import Loop
generate = Loop.generate
def dying(self, number, *arguments):
    if number == {step + 3}:
        while not os.path.exists("{whole}"):  # it is written beside the steps
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    return generate(self, number, *arguments)
Loop.generate = dying
"""
