"""The signals of a driver: those that mean nothing to it are passed on to what waits for them, and to nothing else."""

import contextlib
import os
import signal
from typing import Callable

from rltui.onnode import processes, rundir

NAMES = ("USR1", "QUIT")


def take_signals(attempt: str, uuid: str, on_cancel: Callable[..., None]) -> None:
    """Take all signals that a driver may be sent.

    Args:
        attempt: The attempt's directory.
        uuid: The mark of its processes.
        on_cancel: What to do on those that ask for the end.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, on_cancel)
    # ignored, not handled: what is started from here inherits that, as under nohup
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for name in NAMES:
        signal.signal(getattr(signal, "SIG" + name), lambda number, _: pass_on(attempt, uuid, number))


def pass_on(attempt: str, uuid: str, number: int) -> None:
    """Send a signal to those of the attempt's processes on this node that have a handler for it.

    One without would be ended by it: so would be the shell of a script whose program it is meant for.
    """
    found = [one for one in processes.by_attempt(uuid) if one.pid != os.getpid() and _listens(one.pid, number)]
    told = [one for one in found if processes.send(one.pid, one.start_time, number)]
    name = signal.Signals(number).name
    whom = ", ".join("%d %s" % (one.pid, one.title[:40]) for one in told[:8])
    words = "passed on to %s" % whom if told else "no process of the run has a handler for it, so none got it"
    with contextlib.suppress(OSError):  # of a full disk; raised in a handler, it would end whatever runs just now
        rundir.log_event(attempt, "signal", "%s: %s" % (name, words))


def _listens(pid: int, number: int) -> bool:
    """Whether a program handles the signal by intent: Go's runtime catches all of them, and SIGQUIT is its end."""
    return processes.catches(pid, number) and not processes.catches(pid, signal.SIGURG)
