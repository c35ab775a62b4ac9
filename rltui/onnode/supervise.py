"""Runs one attempt on this machine: waits its turn, starts Ray, sampler and trainer, and leaves nothing behind.

One process an attempt, detached from rltui, so that a run goes on when the cockpit is closed or killed; SIGTERM
cancels it.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

from rltui.onnode import preflight, processes, ray_head, rundir
from rltui.onnode.local_queue import LocalQueue

POLL_S = 0.2


class CancelledError(Exception):
    """The user asked for the end."""


class EndedError(Exception):
    """The attempt cannot go on; the text is its reason."""


class Verdict(NamedTuple):
    """How the attempt ended: one of ``rundir.OUTCOMES``, the trainer's exit code where it has one, and the reason."""

    outcome: str
    code: Optional[int]
    reason: str


class Supervisor:
    """One attempt from ticket to ``end.json``.

    Args:
        attempt: The attempt's directory, with ``job.json`` in it.
    """

    def __init__(self, attempt: str) -> None:
        self.attempt = os.path.abspath(attempt)
        job = rundir.read_json(os.path.join(self.attempt, rundir.JOB))
        if job is None:
            raise SystemExit("%s holds no readable %s" % (self.attempt, rundir.JOB))
        self.job: Dict[str, Any] = job
        self.uuid: str = job["uuid"]
        self.cancelled = False
        self.ray: Optional[ray_head.RayHead] = None
        self.guard: "Optional[subprocess.Popen[bytes]]" = None
        self.trainer: "Optional[subprocess.Popen[bytes]]" = None
        self.environment = self._environment()

    def run(self) -> int:
        """Run the attempt to its end; returns the exit code for the shell."""
        os.umask(0o077)
        signal.signal(signal.SIGTERM, self._on_cancel)
        signal.signal(signal.SIGINT, self._on_cancel)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._introduce()
        resources = self.job["resources"]
        run_root = os.path.dirname(os.path.dirname(os.path.dirname(self.attempt)))
        queue = LocalQueue(os.path.join(run_root, ".queue"), preflight.capacity())
        queue.take(self.uuid, self.job["run_id"], resources["cpus"], resources["gpus"])
        try:
            verdict = self._attempt(queue)
        finally:
            self._clean_up()
            queue.leave(self.uuid)
        return self._end(verdict)

    def _attempt(self, queue: LocalQueue) -> Verdict:
        try:
            self._await_turn(queue)
            rundir.write_stage(self.attempt, "preflight")
            problems = preflight.problems(self.attempt, self.job)
            if problems:
                raise EndedError("; ".join(problems))
            self._start_ray()
            self._start_sampler()
            return self._train()
        except CancelledError:
            return Verdict("cancelled", None, "cancelled by the user")
        except (EndedError, ray_head.RayFailedError, OSError) as error:
            return Verdict("failed", 1, str(error))

    def _await_turn(self, queue: LocalQueue) -> None:
        last = ""
        while True:
            self._raise_if_cancelled()
            turn = queue.turn(self.uuid)
            if turn.granted:
                if turn.gpu_indices:
                    self.environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, turn.gpu_indices))
                return
            if turn.detail != last:
                last = turn.detail
                rundir.write_stage(self.attempt, "queued", turn.detail)
            time.sleep(POLL_S)

    def _start_ray(self) -> None:
        spec = self.job["ray"]
        rundir.write_stage(self.attempt, "ray-up", "0/1 nodes")
        self.ray = ray_head.RayHead(
            ray_head.RaySpec(self.job["argv"][0], self.attempt, self.uuid, spec["cpus"], spec["gpus"]), self.environment
        )
        self.guard = self._start_guard(self.ray.folder)
        self.ray.start(self.job["deadlines_s"]["ray_up"], lambda: self.cancelled)
        self._raise_if_cancelled()
        rundir.write_stage(self.attempt, "ray-up", "1/1 nodes")

    def _start_guard(self, ray_folder: str) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "rltui.onnode.guard", self.attempt, self.uuid, ray_folder]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)

    def _start_sampler(self) -> None:
        argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", self.attempt, "--uuid", self.uuid]
        self._spawn([*argv, "--parent", str(os.getpid())])

    def _train(self) -> Verdict:
        assert self.ray is not None
        self.environment.update(self.ray.client_environment(), RAY_ADDRESS=self.ray.address)
        self._raise_if_cancelled()
        self.trainer = self._spawn(self.job["argv"])
        killed_at = None
        while self.trainer.poll() is None:
            if self.cancelled and killed_at is None:
                killed_at = time.monotonic()
                self.trainer.terminate()
            if killed_at is not None and time.monotonic() - killed_at > self.job["deadlines_s"]["grace"]:
                self.trainer.kill()
            if self.ray.process is not None and self.ray.process.poll() is not None and not self.cancelled:
                self._end_trainer()
                return Verdict("failed", 1, "Ray died (exit code %s); see ray.log" % self.ray.process.returncode)
            time.sleep(POLL_S)
        return self._verdict(self.trainer.returncode)

    def _end_trainer(self) -> None:
        assert self.trainer is not None
        try:
            self.trainer.wait(5.0)
        except subprocess.TimeoutExpired:
            self.trainer.kill()
            self.trainer.wait()

    def _verdict(self, code: int) -> Verdict:
        if self.cancelled:
            return Verdict("cancelled", code, "cancelled by the user")
        if code == 0:
            return Verdict("finished", 0, "all steps done")
        if code < 0:
            return Verdict("failed", code, "the trainer was killed by signal %d (%s)" % (-code, _signal_name(-code)))
        reason = last_error(self.attempt) or "the trainer exited with code %d; see out.log" % code
        return Verdict("failed", code, reason)

    def _spawn(self, argv: List[str]) -> "subprocess.Popen[bytes]":
        with open(os.path.join(self.attempt, rundir.OUT_LOG), "ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.attempt,
                start_new_session=True,
            )

    def _environment(self) -> Dict[str, str]:
        environment = dict(os.environ)
        environment.update(read_environment(os.path.join(self.attempt, rundir.ENVIRONMENT)))
        environment[rundir.ATTEMPT_VARIABLE] = self.uuid
        environment["PYTHONPATH"] = self.job["code"]
        environment["PYTHONUNBUFFERED"] = "1"
        # setproctitle would overwrite the environment that the kernel shows, and with it the mark above
        environment["SPT_NOENV"] = "1"
        environment.pop("RAY_ADDRESS", None)
        return environment

    def _introduce(self) -> None:
        me = {"schema": rundir.SCHEMA, "pid": os.getpid(), "host": socket.gethostname(), "uuid": self.uuid}
        me["start_time"] = processes.start_time(os.getpid())
        rundir.write_json(os.path.join(self.attempt, rundir.SUPERVISOR), me)

    def _on_cancel(self, *_: Any) -> None:
        self.cancelled = True

    def _raise_if_cancelled(self) -> None:
        if self.cancelled:
            raise CancelledError

    def _clean_up(self) -> None:
        if self.ray is not None:
            self.ray.stop()
        processes.end_all(self.uuid, grace_s=3.0, exclude=(os.getpid(),))
        if self.ray is not None:
            self.ray.remove_folder()
        if self.guard is not None and self.guard.stdin is not None:
            try:
                self.guard.stdin.write(b"done\n")
                self.guard.stdin.close()
            except BrokenPipeError:  # the guard itself was killed; there is nothing left to guard
                pass

    def _end(self, verdict: Verdict) -> int:
        outcome, code, reason = verdict
        rundir.write_stage(self.attempt, "ended", reason)
        end = {"schema": rundir.SCHEMA, "outcome": outcome, "exit_code": code, "reason": reason, "at": time.time()}
        rundir.write_json(os.path.join(self.attempt, rundir.END), end)
        rundir.log_event(self.attempt, "end", "%s: %s" % (outcome, reason))
        return 0 if outcome == "finished" else 1


def read_environment(path: str) -> Dict[str, str]:
    """NAME=value lines of an environment file; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name: value for name, value in pairs}  # noqa: C416 (the pairs are lists, not tuples)


def last_error(attempt: str) -> str:
    """The text of the newest event of kind ``error``, or nothing."""
    import json

    try:
        with open(os.path.join(attempt, rundir.EVENTS), encoding="utf-8", errors="replace") as stream:
            lines = stream.readlines()
    except OSError:
        return ""
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("kind") == "error":
            return str(event.get("text", ""))
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def detach(attempt: str, deadline_s: float = 20.0) -> int:
    """Start the supervisor in a session of its own and wait until it has written its identity."""
    with open(os.path.join(attempt, "supervisor.log"), "ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "rltui.onnode.supervise", "--attempt", attempt],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=attempt,
            start_new_session=True,
        )
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if rundir.read_json(os.path.join(attempt, rundir.SUPERVISOR)) is not None:
            return 0
        if child.poll() is not None:
            break
        time.sleep(0.02)
    sys.stderr.write("the supervisor did not start; see %s/supervisor.log\n" % attempt)
    return 1


def main() -> int:
    """Entry point: ``python -m rltui.onnode.supervise --attempt DIR [--detach]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument("--detach", action="store_true", help="start in the background and return")
    options = parser.parse_args()
    if options.detach:
        return detach(options.attempt)
    supervisor = Supervisor(options.attempt)
    try:
        # a second supervisor for the same submission (a reply that was lost, a race) ends here
        os.mkdir(os.path.join(supervisor.attempt, ".lock-" + supervisor.uuid), 0o700)
    except FileExistsError:
        return 0
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
