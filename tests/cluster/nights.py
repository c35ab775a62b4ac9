"""``make night``: nights (night.py) one after another until the time is over, side by side or on the lab's real Slurm.

``make night [HOURS=0.1] [SEED=1] [AT_ONCE=1] [LAB=1]`` prints after each what became of all faults so far.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
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
    """``SCALE``, and longer deadlines where this machine has less than a core for each night: it is slow, not stuck."""
    cores = os.cpu_count() or 1
    return SCALE * max(1.0, at_once, os.getloadavg()[0] / cores)


@dataclass
class Nights:
    """Nights one after another, several at once, until the time is over."""

    until: float
    seed: int
    only: list[str]
    scale: float
    lab: Lab | None = None
    done: list[Night] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def go_on(self) -> None:
        """Spend nights; at least one."""
        first = True
        while first or time.monotonic() < self.until:
            self.spend_one()
            first = False

    def spend_one(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="night-"))
        place = There(folder, self.lab) if self.lab is not None else Here(folder, scale=self.scale)
        of_place = (*BY_SLURM, *ON_THE_LAB) if self.lab is not None else ()
        with self.lock:
            night = Night(place, seed=self.seed * 1000 + len(self.done))
            self.done.append(night)
        choice = self.only or [*RECOVERABLE * 3, *FOR_A_PERSON_HERE, *of_place]
        try:
            spend(night, random.Random(night.seed).choices(choice, k=FAULTS_A_NIGHT))
        except Exception as error:  # noqa: BLE001 (whatever it was, this night went wrong, and the others go on)
            night.wrong.append(f"{type(error).__name__}: {error}; its files: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if self.lab is not None:
            self.lab.reset()
        with self.lock:
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
    parser.add_argument("--only", nargs="+", metavar="FAULT", default=[], help="of the faults these")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="nights side by side, on this machine")
    parser.add_argument("--lab", action="store_true", help="on the lab's real Slurm, one night at a time")
    options = parser.parse_args()
    if options.lab and options.at_once > 1:
        parser.error("--lab goes without --at-once: there is one lab, and a fault of a node hits whoever is on it")
    until, scale = time.monotonic() + options.hours * 3600, scale_under_load(options.at_once)
    with contextlib.ExitStack() as stack:
        lab = None
        if options.lab:
            from lab import Lab

            lab = Lab().start()
            stack.callback(lab.stop)
        nights = Nights(until, options.seed, options.only, scale, lab)
        threads = [threading.Thread(target=nights.go_on) for _ in range(options.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 1 if any(night.wrong for night in nights.done) else 0


if __name__ == "__main__":
    sys.exit(main())
