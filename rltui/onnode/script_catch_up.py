"""Reads what adopted jobs have said since the last look; run by rltui whenever somebody looks at them.

    python -m rltui.onnode.script_catch_up ATTEMPT…

Nothing of rltui runs beside a job that it did not start, so who looks reads what is new: ``adopted.json`` says where
the job's output goes, ``catch-up.json`` how far it has been read.
"""

import fcntl
import os
import socket
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

from rltui.onnode import processes, rundir
from rltui.onnode.line_reader import UNREAD, LineReader
from rltui.onnode.metric_sources import Sources
from rltui.onnode.script_exports import script_place
from rltui.onnode.script_output import Follower

MOST_BYTES = 1 << 22
"""Bytes of a log that one look reads: a long one is caught up with by and by."""
BUDGET_S = 2.0
"""How long one look may take; who looks waits for it, and what is left is read by the next."""
LOCK = ".catch-up.lock"


class Logs:
    """The files that a job's output goes to, read as one.

    Args:
        paths: Where they are; they need not be there yet.
        states: Where earlier readers of them stood.
    """

    def __init__(self, paths: List[str], states: Dict[str, Dict[str, Any]]) -> None:
        self.readers = [LineReader(path, also_returns=True) for path in paths]
        for reader in self.readers:
            reader.restore(states.get(reader.path, UNREAD))

    def read(self, limit: Optional[int] = None) -> Iterator[str]:
        """Yield their new lines, file by file."""
        for reader in self.readers:
            yield from reader.read(limit)

    def unread_end(self) -> List[str]:
        """The last lines of what is not read yet, of the first file that has any."""
        return next(filter(None, (reader.unread_end() for reader in self.readers)), [])

    def state(self) -> Dict[str, Dict[str, Any]]:
        """Where each reader stands, by path."""
        return {reader.path: reader.state() for reader in self.readers}

    def written_at(self) -> float:
        """When something was last written, epoch seconds: no line that is read now is younger."""
        times = [os.path.getmtime(reader.path) for reader in self.readers if os.path.exists(reader.path)]
        return max(times) if times else time.time()


def catch_up(attempt: str) -> bool:
    """Read what the job of ``attempt`` has said since the last look; False where another rltui is at it."""
    with open(os.path.join(attempt, LOCK), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # Lustre without flock, NFS without lockd: two may read at once then
            pass
        _read_new(attempt)
    return True


def _read_new(attempt: str) -> None:
    rundir.keep_private(attempt)
    adopted = rundir.read_json(os.path.join(attempt, rundir.ADOPTED))
    script = rundir.read_json(os.path.join(attempt, rundir.SCRIPT_RUN))
    state = rundir.read_json(os.path.join(attempt, rundir.CATCH_UP)) or {}
    if adopted is None or script is None or state.get("is_whole"):
        return
    # asked before the log is read: what a process wrote until its end is then read before the end is written
    has_end, is_gone = os.path.exists(os.path.join(attempt, rundir.END)), _is_gone(adopted)
    logs = Logs(adopted["logs"], state.get("logs", {}))
    dialect = script["dialect"]
    place = script_place(attempt, dict(os.environ))
    sources = Sources(dialect["metrics"], adopted.get("metrics", ""), folder=place.folder if place else "")
    follower = Follower(attempt, dialect, logs, sources, logs.written_at, "training")
    if "follower" in state:
        follower.restore(state["follower"])
    else:  # nobody can tell what it did before it says so, and it has begun
        rundir.write_stage(attempt, "training")
    follower.look(MOST_BYTES)
    kept: Dict[str, Any] = {"logs": logs.state(), "follower": follower.state()}
    kept["is_whole"] = has_end and logs.state() == state.get("logs")
    rundir.write_json(os.path.join(attempt, rundir.CATCH_UP), kept)
    if is_gone and not has_end:
        _write_end(attempt, adopted, follower)


def _is_gone(adopted: Dict[str, Any]) -> bool:
    """Whether it is a process of this machine that has ended; a job's end is its scheduler's to tell."""
    if not adopted.get("pid") or adopted.get("host") != socket.gethostname():
        return False
    return not processes.alive(adopted["pid"], adopted["start_time"])


def _write_end(attempt: str, adopted: Dict[str, Any], follower: Follower) -> None:
    step, steps = follower.reached
    if step is not None and steps is not None and step >= steps:
        outcome, reason = "finished", "all %s steps are done, and process %d has ended" % (steps, adopted["pid"])
    elif "cancelled_at" in adopted:
        outcome, reason = "cancelled", "cancelled by the user"
    else:
        outcome = "lost"
        reason = "process %d has ended; it was not rltui's, so nobody kept its exit code" % adopted["pid"]
    rundir.write_end(attempt, outcome, None, reason)


def main(attempts: List[str]) -> int:
    """Entry point: ``python -m rltui.onnode.script_catch_up ATTEMPT…``."""
    os.umask(0o077)
    until, failed = time.monotonic() + BUDGET_S, 0
    for attempt in sorted(map(os.path.abspath, attempts), key=_looked_at):
        failed += not _is_caught_up(attempt)
        if time.monotonic() > until:
            break
    return 1 if failed else 0


def _looked_at(attempt: str) -> float:
    """When it was last read: those that waited longest come first."""
    return rundir.written_at(os.path.join(attempt, rundir.CATCH_UP))


def _is_caught_up(attempt: str) -> bool:
    """Read on, and say so where that cannot be done: one broken attempt is none of the others' concern."""
    try:
        catch_up(attempt)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write("%s: %s\n" % (attempt, error))
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
