"""One attempt from its first process to ``end.json``: what local runs and Slurm jobs have in common."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from rltui.onnode import container, evidence, guard, hands_off, pass_on, processes, progress, rundir
from rltui.onnode.environment import attempt_environment
from rltui.onnode.ray_head import RayHead
from rltui.onnode.ray_process import RayFailedError
from rltui.onnode.rundir import EndedError
from rltui.onnode.standstill_watch import StandstillWatch
from rltui.onnode.symptom_watch import SymptomWatch
from rltui.onnode.tell_once import tell_of

POLL_S = 0.2
BREATH_S = 5.0
"""How long a trainer whose Ray died may take to say why."""
LAST_LOOK_S = 2.0
EVENT_BYTES = 1 << 24
"""At the end of the events, among which the newest error is looked for."""


class Verdict(NamedTuple):
    """How the attempt ended: one of ``rundir.OUTCOMES``, the trainer's exit code where it has one, and the reason."""

    outcome: str
    code: Optional[int]
    reason: str


class Request(NamedTuple):
    """Somebody wants the attempt to end.

    Attributes:
        outcome: What that makes of the attempt, one of ``rundir.OUTCOMES``.
        reason: Who wants it and why, in a few words.
        grace_s: How long the trainer may take to save and end.
    """

    outcome: str
    reason: str
    grace_s: float


class RequestedError(Exception):
    """A wait was given up because of a request."""


class AttemptRunner:
    """Runs one attempt; where and how its Ray comes up is for subclasses to say.

    Args:
        attempt: The attempt's directory, with ``job.json`` in it.

    Attributes:
        attempt: The same, absolute.
        job: What is to be started.
        uuid: The mark of the attempt's processes.
        environment: Environment of Ray and trainer.
        request: Why the attempt is to end, as soon as somebody wants that.
        notes_servers: Whether what servers on this node say is noted for an rltui that is on another one.
    """

    notes_servers = False

    def __init__(self, attempt: str) -> None:
        self.attempt = os.path.abspath(attempt)
        job = rundir.read_json(os.path.join(self.attempt, rundir.JOB))
        if job is None:
            raise SystemExit("%s holds no readable %s" % (self.attempt, rundir.JOB))
        self.job: Dict[str, Any] = job
        self.uuid: str = job["uuid"]
        self.request: Optional[Request] = None
        self.ray: Optional[RayHead] = None
        self.guard: "Optional[subprocess.Popen[bytes]]" = None
        self.server_notes: "Optional[subprocess.Popen[bytes]]" = None
        self.trainer: "Optional[subprocess.Popen[bytes]]" = None
        self.environment: Dict[str, str] = {}
        self.hung = ""
        self.superseded = False
        self._watched_at = 0.0
        self._standstill = StandstillWatch(self.attempt, self._tell_people)
        self._symptoms = SymptomWatch(self.attempt)
        self.tellings: List[threading.Thread] = []

    def run(self) -> int:
        """Run the attempt to its end; returns the exit code for the shell."""
        rundir.keep_private(self.attempt)
        rundir.keep_room(self.attempt)
        # before it says who it is: whoever reads that may send a signal at once
        pass_on.take_signals(self.attempt, self.uuid, self.on_cancel)
        self.introduce()
        deciding: "Optional[subprocess.Popen[bytes]]" = None
        try:
            verdict = self._attempt()
            hurried = self.in_a_hurry()
            if hurried:  # who is killed before it has cleaned up decides nothing afterwards
                deciding = self._end(verdict)
        finally:
            self.clean_up()
        if not hurried:
            deciding = self._end(verdict)
        if deciding is not None:
            hands_off.await_decision(self.attempt, deciding, self.decision_s)
        for telling in self.tellings:
            telling.join()
        return self.exit_code(verdict)

    def _attempt(self) -> Verdict:
        try:
            self.environment = attempt_environment(self.attempt, self.job)
            os.makedirs(evidence.folder(self.attempt), mode=0o700, exist_ok=True)
            self.prepare()
            rundir.write_stage(self.attempt, "preflight")
            self.preflight()
            self.raise_if_requested()
            if self.needs_ray:
                self.start_ray()
            else:
                self.start_guard("")
            self.start_sampler()
            if self.notes_servers:
                self.start_server_notes()
            return self._train()
        except RequestedError:
            assert self.request is not None
            return Verdict(self.request.outcome, None, self.request.reason)
        except (EndedError, RayFailedError, OSError) as error:
            return Verdict("failed", 1, str(error))
        except Exception as error:  # noqa: BLE001 (the outermost edge: without a word, an end is looked for by hand)
            with open(os.path.join(self.attempt, rundir.OUT_LOG), "a") as log:
                traceback.print_exc(file=log)
            return Verdict("failed", 1, "rltui itself failed, which is a bug: %s: %s" % (type(error).__name__, error))

    @property
    def needs_ray(self) -> bool:
        """Whether what is to be run wants a Ray of ours: a script of another system may start its own, or none."""
        return self.job["ray"] is not None

    # what subclasses fill in

    def introduce(self) -> None:
        """Write down who runs the attempt."""
        me = {"schema": rundir.SCHEMA, "pid": os.getpid(), "host": socket.gethostname(), "uuid": self.uuid}
        me.update(start_time=processes.start_time(os.getpid()), boot=processes.boot_id())
        me["signals"] = pass_on.NAMES
        rundir.write_json(os.path.join(self.attempt, rundir.SUPERVISOR), me)

    def prepare(self) -> None:
        """Wait until the attempt may use the machine."""

    def preflight(self) -> None:
        """Look at the nodes.

        Raises:
            EndedError: One of them cannot run the attempt.
        """
        raise NotImplementedError

    def start_ray(self) -> None:
        """Bring Ray up, into ``self.ray``.

        Raises:
            RayFailedError: It did not come up.
        """
        raise NotImplementedError

    def ray_problem(self) -> str:
        """Why training cannot go on although the trainer still runs, in one sentence; empty: it can."""
        return self.ray.death() if self.ray is not None else ""

    def tell(self, request: Request) -> str:
        """The reason in ``end.json`` for a request that the trainer has heeded."""
        return request.reason

    def in_a_hurry(self) -> bool:
        """Whether this process may be killed before it has cleaned up, so that the end is written first."""
        return False

    @property
    def decision_s(self) -> Optional[float]:
        """How long to wait for the decision of hands-off mode; None: what decides outlives this process."""
        return None

    def comes_again(self) -> bool:
        """Whether the scheduler starts this attempt's job again by itself."""
        return False

    def tick(self) -> None:
        """Called again and again while the trainer runs."""

    def exit_code(self, verdict: Verdict) -> int:
        """The exit code for the shell."""
        return 0 if verdict.outcome == "finished" else 1

    def end_details(self) -> Dict[str, Any]:
        """Further keys of ``end.json``, of schedulers that know more about the end."""
        return {}

    # what all have in common

    def start_guard(self, ray_folder: str) -> None:
        """Start the process that cleans up after this one if it is killed."""
        self.guard = guard.start(self.attempt, self.uuid, ray_folder)

    def start_sampler(self) -> None:
        """Start the sampler of this node."""
        argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", self.attempt, "--mark", self.uuid]
        self._spawn([*argv, "--parent", str(os.getpid())])

    def start_server_notes(self) -> None:
        """Start the process that notes what Ray's dashboard and the trainer's status endpoint say."""
        argv = [sys.executable, "-m", "rltui.onnode.server_notes", "--attempt", self.attempt]
        quiet = subprocess.DEVNULL
        self.server_notes = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=self.environment, start_new_session=True
        )

    def end_server_notes(self) -> None:
        """Let it look at the servers once more while Ray is still there to say who died."""
        if self.server_notes is None or self.server_notes.stdin is None:
            return
        self.server_notes.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server_notes.wait(LAST_LOOK_S)

    def _train(self) -> Verdict:
        if self.ray is not None:
            self.environment.update(self.ray.client_environment(), RAY_ADDRESS=self.ray.address)
            self.environment["RAY_API_SERVER_ADDRESS"] = self.ray.dashboard  # for `ray job submit` in a script
        self.raise_if_requested()
        self.trainer = self._spawn(*trainer_command(self.attempt, self.job, self.environment))
        self._tell_people("started")
        heeded: Optional[Request] = None
        kill_at = 0.0
        # polled: a request, Ray's death, another start and the clock count beside the trainer's end
        while self.trainer.poll() is None:
            if self.request is not None and self.request != heeded:
                # a second request (cancelled while saving for the time limit) only changes how long it may take
                if heeded is None:
                    container.ask_to_end(self.trainer, self.uuid, self.environment)
                heeded, kill_at = self.request, time.monotonic() + self.request.grace_s
            if heeded is not None and time.monotonic() > kill_at:
                self.trainer.kill()
            problem = self.ray_problem()
            if problem and self.request is None:
                self._end_trainer()
                return Verdict("failed", 1, problem)
            for look in (self.tick, self._watch):
                # a disk that is away for a moment, a node without room for a process: no reason to end what trains
                with contextlib.suppress(OSError):
                    look()
            if self.superseded:
                return Verdict("lost", None, "another start took its place")
            time.sleep(POLL_S)
        return self._verdict(self.trainer.returncode)

    def _watch(self) -> None:
        """Have evidence taken of an attempt that stands still; where hands-off mode may start it again, end it then."""
        if time.monotonic() - self._watched_at < progress.WATCH_S * progress.scale():
            return
        self._watched_at = time.monotonic()
        if os.path.exists(os.path.join(self.attempt, rundir.END)):
            self.superseded = True
            step_aside(self.attempt, self.uuid)
        if self.request is not None or self.superseded:
            return
        self._symptoms.tick(self.environment)
        standstill = self._standstill.look(self.environment)
        if standstill and hands_off.is_on(self.attempt):
            self.hung = standstill
            self.request = Request("failed", standstill, self.job["deadlines_s"]["grace"])
            rundir.log_event(self.attempt, "error", "hands-off: %s; the attempt is ended" % standstill)

    def _end_trainer(self) -> None:
        assert self.trainer is not None
        try:
            self.trainer.wait(BREATH_S)
        except subprocess.TimeoutExpired:
            self.trainer.kill()
            self.trainer.wait()

    def _verdict(self, code: int) -> Verdict:
        script = os.path.join(self.attempt, rundir.SCRIPT_RUN)
        # our own trainer, which may be told to end while it exports its model, says by 0 that all steps are done
        if self.request is not None and (code != 0 or os.path.exists(script)):
            return Verdict(self.request.outcome, code, self.tell(self.request))
        if code == 0:
            return Verdict("finished", 0, "all steps done")
        if code < 0:
            return Verdict("failed", code, "the trainer was killed by signal %d (%s)" % (-code, _signal_name(-code)))
        reason = last_error(self.attempt) or "the trainer exited with code %d; see out.log" % code
        return Verdict("failed", code, reason)

    def _spawn(self, argv: List[str], environment: Optional[Dict[str, str]] = None) -> "subprocess.Popen[bytes]":
        # to append: several processes have it open, and what each writes has to land behind the others'
        with open(os.path.join(self.attempt, rundir.OUT_LOG), "ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment or self.environment,
                cwd=self.attempt,
                start_new_session=True,
            )

    def on_cancel(self, *_: Any) -> None:
        """The handler of SIGTERM: the user wants the end."""
        # no more than a note: a handler runs between any two steps of what this process is at
        self.request = Request("cancelled", "cancelled by the user", self.job["deadlines_s"]["grace"])

    def requested(self) -> bool:
        """Whether the attempt is to end."""
        return self.request is not None

    def raise_if_requested(self) -> None:
        """End a wait that nobody needs any more."""
        if self.request is not None:
            raise RequestedError

    def clean_up(self) -> None:
        """Leave nothing of the attempt on this node."""
        self.end_server_notes()
        if self.ray is not None:
            self.ray.stop()
        # Ray's workers end only when they miss their raylet, samplers and what a trainer started not even then
        processes.end_all(self.uuid, grace_s=3.0, exclude=(os.getpid(),))
        if self.ray is not None:
            self.ray.remove_folder()
        if self.guard is not None:
            # last: until here it would do what is left, if this process were killed
            guard.dismiss(self.guard)

    def _end(self, verdict: Verdict) -> "Optional[subprocess.Popen[bytes]]":
        """Write the end down, unless somebody else did; tell of it, and start what decides what is next: returned."""
        details = {**self.end_details(), **({"hung": self.hung} if self.hung else {})}
        if self.superseded or not rundir.write_end(self.attempt, *verdict, **details):
            return None
        self._tell_people("ended")
        return None if self.comes_again() else hands_off.decide(self.attempt)

    def _tell_people(self, kind: str, words: Callable[[], str] = str) -> None:
        """Tell beside what else there is to do, which is not to wait for a network."""
        environment = self.environment or None
        tell = threading.Thread(target=lambda: tell_of(self.attempt, kind, environment, words()), daemon=True)
        self.tellings.append(tell)
        tell.start()


def trainer_command(attempt: str, job: Dict[str, Any], environment: Dict[str, str]) -> Tuple[List[str], Dict[str, str]]:
    """Command and environment of the trainer; what follows a script stays outside, and takes it into a container."""
    if os.path.exists(os.path.join(attempt, rundir.SCRIPT_RUN)):
        return job["argv"], environment
    return container.enter(job["argv"], environment, attempt, attempt, mark=job["uuid"])


def step_aside(attempt: str, uuid: str) -> None:
    """End everything of the attempt here at once: somebody else has written its end.

    Slurm takes a node for dead that does not answer its controller, and starts the job again on another. The first
    start may be well, and both would write into the same checkpoints.
    """
    processes.end_all(uuid, grace_s=0.0, exclude=(os.getpid(),))
    rundir.log_event(attempt, "warning", "ended here, as its end was written elsewhere: it was taken for dead")


def last_error(attempt: str) -> str:
    """The text of the newest event of kind ``error``, or nothing."""
    for line in reversed(rundir.read_tail(os.path.join(attempt, rundir.EVENTS), limit=EVENT_BYTES).split("\n")):
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
