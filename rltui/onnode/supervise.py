"""Runs one attempt on this machine: waits its turn, starts Ray, sampler and trainer, and leaves nothing behind.

One process an attempt, detached from rltui, so that a run goes on when the cockpit is closed or killed; SIGTERM
cancels it.
"""

import argparse
import os
import subprocess
import sys
import time
from typing import Dict, Optional

from rltui.onnode import host_cards, host_tickets, preflight, rundir
from rltui.onnode.attempt_runner import POLL_S, AttemptRunner
from rltui.onnode.host_queue import HostQueue
from rltui.onnode.ray_head import RayHead
from rltui.onnode.ray_process import RaySpec
from rltui.onnode.rundir import EndedError
from rltui.onnode.sample_gpus import CARDS_VARIABLE

LOOK_EVERY_S = 2.0
"""Between two looks at the cards: the driver takes a moment to answer."""

START_S = 80.0
"""How long a supervisor may take to start: many times overloaded, or from a slow disk, Python alone takes a minute."""


class Supervisor(AttemptRunner):
    """One attempt on this machine, from ticket to ``end.json``."""

    def __init__(self, attempt: str) -> None:
        super().__init__(attempt)
        self.notes_servers = bool(os.environ.get("RLTUI_MACHINES"))
        self.queue: Optional[HostQueue] = None

    def prepare(self) -> None:
        """Take a ticket and wait for its turn."""
        resources = self.job["resources"]
        self.queue = HostQueue(host_tickets.folder_of_tickets(), preflight.capacity())
        self.queue.take(self.uuid, self.job["run_id"], resources["cpus"], resources["gpus"])
        last, in_use, looked_at = "", {}, 0.0  # type: str, Dict[int, str], float
        while True:
            self.raise_if_requested()
            if resources["gpus"] and time.monotonic() - looked_at > LOOK_EVERY_S:
                in_use, looked_at = cards_in_use(), time.monotonic()
            turn = self.queue.turn(in_use)
            if turn.granted:
                cards = ",".join(map(str, turn.gpu_indices))
                self.environment.update({"CUDA_VISIBLE_DEVICES": cards, CARDS_VARIABLE: cards or "none"})
                # as the driver counts them, not the fastest first
                self.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
                return
            if turn.detail != last:
                last = turn.detail
                rundir.write_stage(self.attempt, "queued", turn.detail)
            time.sleep(POLL_S)

    def tick(self) -> None:
        """Renew the ticket, by which others see that the slots and cards are still held."""
        if self.queue is not None:
            self.queue.keep()

    def preflight(self) -> None:
        """Look at GPUs, disk and Python.

        Raises:
            EndedError: Something is missing.
        """
        problems = preflight.missing_gpus(self.job["resources"]["gpus"], preflight.capacity().gpus)
        problems += preflight.problems(self.attempt, self.job)
        if problems:
            raise EndedError("; ".join(problems))

    def start_ray(self) -> None:
        """Start Ray on loopback.

        Raises:
            RayFailedError: It did not come up.
        """
        spec = self.job["ray"]
        rundir.write_stage(self.attempt, "ray-up", "0/1 nodes")
        python = self.job["argv"][0]
        self.ray = RayHead(RaySpec(python, self.attempt, self.uuid, spec["cpus"], spec["gpus"]), self.environment)
        # before Ray: it may take a minute to come up, and this process may be killed while it waits
        self.start_guard(self.ray.folder)
        self.ray.start(self.job["deadlines_s"]["ray_up"], self.requested)
        self.raise_if_requested()
        rundir.write_stage(self.attempt, "ray-up", "1/1 nodes")

    def clean_up(self) -> None:
        """End what belongs to the attempt and give the ticket back."""
        super().clean_up()
        if self.queue is not None:
            self.queue.leave()


def cards_in_use() -> Dict[int, str]:
    """Cards that somebody is on, and who; all of them where the driver does not say.

    Where there is no driver to ask, the number of cards is somebody's word (``RLTUI_LOCAL_GPUS``), and none is in use.
    """
    if not host_cards.has_driver():
        return {}
    try:
        return {card.number: card.in_use for card in host_cards.cards() if card.in_use}
    except OSError as error:
        return {index: str(error) for index in range(preflight.capacity().gpus)}


def detach(attempt: str, deadline_s: float = START_S) -> int:
    """Start the supervisor in a session of its own and wait until it has written its identity.

    One that is too slow for that is barred from starting later: whoever is told that it did not start, starts another.
    """
    with open(os.path.join(attempt, "supervisor.log"), "ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "rltui.onnode.supervise", "--attempt", attempt],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=attempt,
            # the hangup at the end of a login's session must not reach it
            start_new_session=True,
        )
    deadline = time.monotonic() + deadline_s
    has_ended = False
    while not has_ended:
        has_ended = child.poll() is not None  # asked first: one that has ended may have begun
        if rundir.read_json(os.path.join(attempt, rundir.SUPERVISOR)) is not None:
            return 0
        if time.monotonic() > deadline and not has_ended and _is_barred(attempt):
            child.kill()
            child.wait()
        time.sleep(0.02)
    sys.stderr.write("the supervisor did not start; see %s/supervisor.log\n" % attempt)
    return 1


def _is_barred(attempt: str) -> bool:
    """Take the lock that the supervisor of the attempt takes; False where it has, and will soon say who it is."""
    job = rundir.read_json(os.path.join(attempt, rundir.JOB)) or {}
    try:
        os.mkdir(rundir.lock_folder(attempt, job["uuid"]), 0o700)
    except FileExistsError:
        return False
    return True


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
        os.mkdir(rundir.lock_folder(supervisor.attempt, supervisor.uuid), 0o700)
    except FileExistsError:
        return 0
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
