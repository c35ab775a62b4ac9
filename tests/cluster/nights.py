"""``make night``: nights (night.py) one after another until the time is over, side by side or on a real Slurm.

``make night [HOURS=0.1] [SEED=1] [AT_ONCE=1] [LAB=1] [ARGS="--skip N"]`` prints a line after each, and after every ten,
at the end and after ctrl+c what became of all faults. The same seed has the same faults in the same order; a night that
went wrong is had again by the ``--skip`` of its line.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from night import SCALE, Here, Night, There, spend
from night_faults import BY_SLURM, FOR_A_PERSON, FOR_A_PERSON_HERE, ON_THE_LAB, RECOVERABLE
from night_report import report

if TYPE_CHECKING:
    from lab import Lab

FAULTS_A_NIGHT = 10


def scale_under_load(at_once: int) -> float:
    """``SCALE``, and longer deadlines where this machine has less than a core for each night: it is slow, not stuck.

    Each night has its own: what else the machine does changes within an hour.
    """
    cores = os.cpu_count() or 1
    return SCALE * max(1.0, at_once, os.getloadavg()[0] / cores)


@dataclass
class Nights:
    """Nights one after another, several at once, until the time is over."""

    until: float
    seed: int
    only: list[str]
    skip: int = 0
    lab: Lab | None = None
    done: list[Night] = field(default_factory=list)
    ended: int = 0
    lock: Any = field(default_factory=threading.Lock)
    is_over: threading.Event = field(default_factory=threading.Event)
    """Set: no further fault."""
    all_ended: threading.Event = field(default_factory=threading.Event)
    sides: int = 0
    began: float = field(default_factory=time.monotonic)

    def start(self, at_once: int) -> None:
        """Spend nights, so many side by side, until ``all_ended``."""
        self.sides = at_once
        for _ in range(at_once):
            threading.Thread(target=self.go_on, daemon=True).start()

    def go_on(self) -> None:
        """Spend nights; at least one."""
        first = True
        while not self.is_over.is_set() and (first or time.monotonic() < self.until):
            self.spend_one()
            first = False
        with self.lock:
            self.sides -= 1
            if not self.sides:
                self.all_ended.set()

    def spend_one(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="night-"))
        place = There(folder, self.lab) if self.lab is not None else Here(folder, scale=scale_under_load(self.sides))
        of_place = (*BY_SLURM, *ON_THE_LAB) if self.lab is not None else ()
        with self.lock:
            number = self.skip + len(self.done)
            night = Night(place, seed=self.seed * 1000 + number)
            self.done.append(night)
        choice = self.only or [*RECOVERABLE * 3, *FOR_A_PERSON_HERE, *of_place]
        faults = random.Random(night.seed).choices(choice, k=FAULTS_A_NIGHT)
        try:
            spend(night, itertools.takewhile(lambda _: not self.is_over.is_set(), faults))
        except Exception as error:  # noqa: BLE001 (whatever it was, this night went wrong, and the others go on)
            night.wrong.append(f"broke: {type(error).__name__}: {error}; its files: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if self.lab is not None:
            self.lab.reset()
        self._say(night, number)

    def _say(self, night: Night, number: int) -> None:
        with self.lock:
            self.ended += 1
            faults, minutes = sum(len(one.outcomes) for one in self.done), (time.monotonic() - self.began) / 60
            alone = sum(one.submitted_s is not None for one in night.outcomes)
            words = f"{len(night.outcomes)} faults, {alone} ended without a person, {len(night.wrong)} wrong"
            print(f"night {number} (--skip {number}): {words}; {faults} faults in {minutes:.1f} min", flush=True)
            if night.wrong:
                print("\n".join(night.wrong), flush=True)
            if self.ended % 10 == 0:
                print("\n".join(self.told()), end="\n\n", flush=True)

    def told(self) -> list[str]:
        """The report of all nights so far."""
        outcomes = [one for night in self.done for one in night.outcomes]
        return report(outcomes, [line for night in self.done for line in night.wrong], FOR_A_PERSON)


def main() -> int:
    """Entry point of ``make night``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="nights of this seed to leave out")
    parser.add_argument("--only", nargs="+", metavar="FAULT", default=[], help="of the faults these")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="nights side by side, on this machine")
    parser.add_argument("--lab", action="store_true", help="on the lab's real Slurm, one night at a time")
    options = parser.parse_args()
    if options.lab and options.at_once > 1:
        parser.error("--lab goes without --at-once: there is one lab, and a fault of a node hits whoever is on it")
    until = time.monotonic() + options.hours * 3600
    print(f"seed {options.seed}; ctrl+c ends it after the faults under way", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        lab = None
        if options.lab:
            from lab import Lab

            lab = Lab().start()
            stack.callback(lab.stop)
        nights = Nights(until, options.seed, options.only, options.skip, lab)
        stay(nights, options.at_once)
        print("\n".join(["", *nights.told()]), flush=True)
    return 1 if any(night.wrong for night in nights.done) else 0


def stay(nights: Nights, at_once: int) -> None:
    """Spend them; after ctrl+c until the faults under way are over, after another one not even that."""
    nights.start(at_once)
    try:
        nights.all_ended.wait()
    except KeyboardInterrupt:
        nights.is_over.set()
        print("ends after the faults under way; ctrl+c again ends it now", flush=True)
        try:
            nights.all_ended.wait()
        except KeyboardInterrupt:
            for night in nights.done:
                night.kill()


if __name__ == "__main__":
    sys.exit(main())
