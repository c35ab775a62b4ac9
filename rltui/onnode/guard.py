"""Waits beside a supervisor; if that dies without a word, ends what it left and says so in ``end.json``.

Its standard input is a pipe from the supervisor. ``done`` on it means that all is well; its end without ``done`` means
that the supervisor is gone (kill -9, out of memory), whatever the platform.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys

from rltui.onnode import hands_off, processes, rundir
from rltui.onnode.ray_process import remove


def start(attempt: str, uuid: str, ray_folder: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start the guard of this process; see ``main`` for what it is told."""
    argv = [sys.executable, "-m", "rltui.onnode.guard", attempt, uuid, ray_folder, *options]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)


def dismiss(guard: "subprocess.Popen[bytes]") -> None:
    """Tell the guard that all is well."""
    if guard.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it was killed itself; there is nothing left to guard
            guard.stdin.write(b"done\n")
            guard.stdin.close()


def main() -> int:
    """Entry point: ``python -m rltui.onnode.guard ATTEMPT UUID RAY_FOLDER [--node]``.

    With ``--node`` it guards one node of several: it cleans that up, and the attempt's end is for others to tell.
    """
    attempt, uuid, ray_folder = sys.argv[1:4]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # Slurm sends them to all that a job has on a node
        signal.signal(number, lambda *_: None)  # SIG_IGN would be inherited by what decides and tells
    if "done" in sys.stdin.read():
        return 0
    ended = processes.end_all(uuid, grace_s=10.0, exclude=(os.getpid(),))
    if ray_folder:
        remove(ray_folder)
    if "--node" not in sys.argv[4:]:
        boot = (rundir.read_json(os.path.join(attempt, rundir.SUPERVISOR)) or {}).get("boot")
        reason = "the supervisor was killed; %d processes of the attempt were ended" % len(ended)
        if boot and boot != processes.boot_id():
            reason = "%s was restarted while the attempt ran" % socket.gethostname()
        if rundir.write_end(attempt, "lost", None, reason):
            _say(attempt)
    return 0


def _say(attempt: str) -> None:
    """Have it decided how the run goes on, and tell of its end."""
    hands_off.decide(attempt)
    from rltui.onnode.tell_once import tell_of  # a guard waits for days and seldom tells

    tell_of(attempt, "ended")


if __name__ == "__main__":
    sys.exit(main())
