"""Stands in for a trainer where only its life cycle matters: a real Ray driver with one real actor.

``python ray_job.py --attempt DIR --then finish|wait|crash|stubborn``
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ray

from rltui.onnode import rundir


@ray.remote
class Worker:
    """An actor, so that Ray has processes that could be left behind."""

    def pid(self) -> int:
        """Its process."""
        return os.getpid()


def main() -> None:
    """Connect, start the actor, write ``ready`` and do as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempt", required=True)
    parser.add_argument("--then", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.then == "stubborn" else _leave)
    ray.init(address=os.environ["RAY_ADDRESS"], logging_level="ERROR")
    worker = Worker.remote()
    pid = ray.get(worker.pid.remote(), timeout=60)
    rundir.write_stage(options.attempt, "training", step=1, steps=10)
    Path(options.attempt, "litter").write_text(tempfile.mkdtemp(prefix="pymp-"))
    subprocess.Popen(["sleep", "600"], start_new_session=True)  # what a trainer started and forgot
    Path(options.attempt, "ready").write_text(str(pid))
    if options.then == "crash":
        rundir.log_event(options.attempt, "error", "learner 1 on node7 died: out of memory")
        sys.exit(3)
    deadline = time.monotonic() + (0 if options.then == "finish" else 600)
    while time.monotonic() < deadline:
        time.sleep(0.1)


def _leave(*_: object) -> None:
    sys.exit(143)


if __name__ == "__main__":
    main()
