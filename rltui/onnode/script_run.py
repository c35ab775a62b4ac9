"""Runs a training script of another system, unchanged, in the place where an attempt has its trainer.

    python -m rltui.onnode.script_run --attempt DIR

``script.json`` of the attempt says what to run. The script's processes are a group of their own, so that a request to
end reaches all of them: a shell would hand no signal on to what it waits for.
"""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from rltui.onnode import container, rundir, script_nodes
from rltui.onnode.allocation import NoAllocationError, end_step, without_step_options
from rltui.onnode.line_reader import LineReader
from rltui.onnode.metric_sources import Sources
from rltui.onnode.node_network import NoPortsError
from rltui.onnode.script_exports import script_place
from rltui.onnode.script_output import Follower, fill

POLL_S = 0.5
LOOK_BYTES = 1 << 22
"""Bytes of the output between two words on where the script stands: it may print faster than they are understood."""


def command_of(script: str, words: List[str]) -> List[str]:
    """The command that runs ``script``: by its first line as a kernel does, which a disk without execution refuses."""
    with open(script, "rb") as stream:
        first = stream.readline(4096)
    if first.startswith(b"#!"):
        return [*shlex.split(first[2:].decode("utf-8", "replace")), script, *words]
    return ["python3" if script.endswith(".py") else "bash", script, *words]


class ScriptRun:
    """One start of a script.

    Args:
        attempt: The attempt's directory, with ``script.json`` in it.
    """

    def __init__(self, attempt: str) -> None:
        self.attempt = os.path.abspath(attempt)
        told = rundir.read_json(os.path.join(self.attempt, rundir.SCRIPT_RUN))
        if told is None:
            raise SystemExit("%s holds no readable %s" % (self.attempt, rundir.SCRIPT_RUN))
        self.told: Dict[str, Any] = told
        run = rundir.run_of(self.attempt)
        record = rundir.read_json(os.path.join(run, rundir.RUN)) or {}
        self.places = {
            "attempt": self.attempt,
            "run": run,
            "run_id": os.path.basename(run),
            "wandb_run_id": str(record.get("wandb_run_id", "")),
            "checkpoints": os.path.join(run, rundir.CHECKPOINTS),
        }
        self.folder: str = os.path.expanduser(told["folder"] or "~")
        self.mark = os.environ.get(rundir.ATTEMPT_VARIABLE, "")
        self.samplers: "Optional[subprocess.Popen[bytes]]" = None

    def environment(self) -> Dict[str, str]:
        """What the script sees: ours less what is for our own trainers, and where its records are to go.

        What the user or the cluster has set already stays as it is.
        """
        environment = dict(os.environ)
        environment.pop("PYTHONPATH", None)
        if self.told.get("pythonpath"):
            environment["PYTHONPATH"] = self.told["pythonpath"]
        for name, value in self.told["dialect"]["export"].items():
            environment.setdefault(name, fill(value, self.places))
        return environment

    def sources(self) -> Sources:
        """Where its metrics are looked for beside the console."""
        told = self.told["dialect"]
        tensorboard = fill(told["export"].get("TENSORBOARD_DIR", ""), self.places)
        place = script_place(self.attempt, dict(os.environ))
        file, folder = fill(told["metrics"]["file"], self.places), place.folder if place else self.folder
        return Sources(told["metrics"], file, tensorboard, time.time(), folder)

    def command(self) -> List[str]:
        """The script with its words."""
        return command_of(os.path.join(self.attempt, self.told["script"]), self.told["words"])

    def over_nodes(self, argv: List[str], environment: Dict[str, str]) -> Tuple[List[str], Dict[str, str]]:
        """Command and variables of a script on several nodes, which is started on the first, or on each of them."""
        place = script_nodes.rendezvous(self.attempt, environment)
        job = rundir.read_json(os.path.join(self.attempt, rundir.JOB)) or {}
        if not job.get("ray"):
            self.samplers = script_nodes.start_samplers(self.attempt, place)
        known = {**script_nodes.meeting_variables(place), **environment}
        if not self.told["on_each_node"]:
            return argv, known
        known = without_step_options({**script_nodes.torchrun_variables(place), **known})
        argv = container.enter_on_each_node(argv, self.folder, self.attempt, job.get("code", ""), self.mark)
        return script_nodes.on_each_node(place, argv), known

    def run(self) -> int:
        """Run the script to its end; returns the exit code for the shell."""
        log = LineReader(os.path.join(self.attempt, rundir.OUT_LOG), _size(self.attempt), also_returns=True)
        dialect = self.told["dialect"]
        follower = Follower(self.attempt, dialect, log, self.sources())
        argv, environment = self.command(), self.environment()
        if self.told["hardware"]["nodes"] > 1:
            argv, environment = self.over_nodes(argv, environment)
        if self.told["hardware"]["nodes"] < 2 or not self.told["on_each_node"]:
            names = tuple(self.told["dialect"]["export"])
            argv, environment = container.enter(argv, environment, self.folder, self.attempt, names, self.mark)
        rundir.write_stage(self.attempt, "loading", self.told["script"])
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=self.folder,
            start_new_session=True,
        )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, lambda *_: self.tell(child))
        read_to_the_end(child, follower, log)
        if self.samplers is not None:
            end_step(self.samplers, 0.0)
        # as a shell tells of a signal: a script that is a Python program has none around it
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def tell(self, child: "subprocess.Popen[bytes]") -> None:
        """Tell all of the script to end; in a container its group may be another than that of the runtime's process."""
        groups = {child.pid}
        if container.read() is not None and not self.told["on_each_node"]:
            inside = [process.pid for process in container.entered(self.mark)]
            with contextlib.suppress(ProcessLookupError):
                groups = {os.getpgid(pid) for pid in inside} or groups
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)


def read_to_the_end(child: "subprocess.Popen[bytes]", follower: Follower, log: LineReader) -> None:
    """Look at what the script prints until it has ended and all of it was read."""
    has_ended, problem = False, ""
    while not has_ended or log.is_behind:
        has_ended = child.poll() is not None
        problem = _look(follower, problem, LOOK_BYTES)
        if has_ended and problem:
            break
        if problem or not (has_ended or log.is_behind):
            time.sleep(POLL_S)
    _look(follower, problem, is_last=True)


def _look(follower: Follower, problem: str, limit: Optional[int] = None, is_last: bool = False) -> str:
    """Let the follower look; returns why it could write nothing down, which is told where it is not ``problem``.

    A disk that takes nothing now is no reason to end a script: it may train on, and save somewhere else.
    """
    try:
        follower.look(limit, is_last)
    except OSError as error:
        if str(error) != problem:
            with contextlib.suppress(OSError):
                # no error: the newest of those counts as what ended the attempt, hours later too
                rundir.log_event(follower.attempt, "warning", "what the script says cannot be written down: %s" % error)
        return str(error)
    return ""


def _size(attempt: str) -> int:
    try:
        return os.path.getsize(os.path.join(attempt, rundir.OUT_LOG))
    except OSError:
        return 0


def main() -> int:
    """Entry point: ``python -m rltui.onnode.script_run --attempt DIR``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    options = parser.parse_args()
    rundir.keep_private(options.attempt)
    try:
        return ScriptRun(options.attempt).run()
    except (OSError, NoAllocationError, NoPortsError) as error:
        rundir.log_event(os.path.abspath(options.attempt), "error", "the script cannot be started: %s" % error)
        sys.stderr.write("rltui: the script cannot be started: %s\n" % error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
