"""The sampler: one line a second on this node, its GPUs and the attempt's processes, into ``gpu-<host>.jsonl``.

It runs beside the trainer, so it must cost next to nothing: nothing is started, files of /proc are kept open, and what
is slow or changes slowly is read every fifth time. Only where somebody asks for evidence it starts a program that takes
it. It ends with the process that is its ``--parent``.
docs/formats.md has the format of the lines.
"""

import argparse
import collections
import contextlib
import json
import math
import os
import signal
import socket
import sys
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Set, Tuple

if __package__ in (None, ""):  # started by its path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from rltui.onnode import evidence, lost_nodes, processes, rundir
from rltui.onnode.sample_gpus import GpuReader
from rltui.onnode.sample_host import GIB, HostReader
from rltui.onnode.script_servers import ScriptServers

SLOW_EVERY = 5
CAP_BYTES = 32 << 20
MAX_PROCESSES = 20
"""Ray alone starts some twenty processes a node; the largest are what anybody wants to see."""
MOST_UNTOLD = 100
"""Events that wait for a disk to have room again."""
TITLE_LIMIT = 48
"""Characters of a title: with these limits, a node of eight GPUs stays below 1 kB/s."""


class Sink:
    """An append-only file of lines with a cap: at half of it, what there is becomes the older half (``PATH.1``).

    Args:
        path: The file.
        cap_bytes: Most that both halves may take together.
    """

    def __init__(self, path: str, cap_bytes: int = CAP_BYTES) -> None:
        self._path = path
        self._half = cap_bytes // 2
        self._descriptor = -1
        self._size = 0

    def write(self, line: bytes) -> None:
        """Append one line in one write; a disk that is full now may have room for the next one."""
        try:
            if self._descriptor >= 0 and self._size + len(line) > self._half:
                self._rotate()
            if self._descriptor < 0:
                self._open()
            self._size += os.write(self._descriptor, line)
        except OSError:
            self._close()

    def _open(self) -> None:
        self._descriptor = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, rundir.file_mode(self._path)
        )
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self._close()
        # renamed, not cut: who reads on from an offset sees by the inode that it is another file
        os.replace(self._path, self._path + ".1")

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


HALTED = {"T": "stopped", "t": "traced", "Z": "zombie", "D": "disk wait"}
"""States of /proc/PID/stat in which a process does nothing (proc(5)), in words."""

HALTED_S = {"T": 0.0, "t": 0.0, "Z": 10.0, "D": 30.0}
"""How long a process is in such a state before it is worth a word: for a moment, each one may be a zombie or wait.

More than 0: a process is stopped where two looks in a row see it so, and it took no CPU time in between. One that is
let run in turns (cpulimit stops it for the rest of each tenth of a second) is slow, not stopped.
"""

HELD = ("T", "t")
"""States in which a process takes no CPU time."""


class Look(NamedTuple):
    """One process at one look."""

    pid: int
    state: str
    state_s: float
    cpu_percent: float
    resident_gib: float
    parent: int

    @property
    def is_halted(self) -> bool:
        """Whether it does nothing, for longer than is usual."""
        return self.state in HALTED and self.state_s > HALTED_S[self.state]

    def entry(self) -> Dict[str, Any]:
        """Its part of a line of the file."""
        title = processes.title(self.pid)[:TITLE_LIMIT]
        entry = {"pid": self.pid, "title": title, "cpu": round(self.cpu_percent, 1), "rss": round(self.resident_gib, 2)}
        entry["ppid"] = self.parent
        if self.is_halted:
            entry.update(state=HALTED[self.state], state_s=round(self.state_s))
        return entry


class ProcessReader:
    """Reads the attempt's processes with the share of one CPU that each took since the last look.

    Attributes:
        found: All of them, as of the last look.
    """

    def __init__(self, mark: str) -> None:
        self._scanner = processes.scanner(mark)
        self._ticks: Dict[Tuple[int, str], int] = {}
        self._at = 0.0
        self._hertz = float(os.sysconf("SC_CLK_TCK"))
        self._page_gib = os.sysconf("SC_PAGE_SIZE") / GIB
        self._states: Dict[Tuple[int, str], Tuple[str, float]] = {}
        self._told: Set[Tuple[int, str]] = set()
        self.found: List[Tuple[int, processes.Stat]] = []

    def sample(self) -> List[Dict[str, Any]]:
        """Those that stand still and the largest, by pid; the sampler itself is left out."""
        now = time.monotonic()
        elapsed, self._at = now - self._at, now
        before, self._ticks = self._ticks, {}
        found, states = [], {}
        self.found = self._scanner.scan()
        for pid, stat in self.found:
            if stat.state == "X" or pid == os.getpid():
                continue
            identity = (pid, stat.start_time)
            self._ticks[identity] = stat.cpu_ticks
            ticks = stat.cpu_ticks - before.get(identity, stat.cpu_ticks)
            state, since = self._states.get(identity, (stat.state, now))
            lasts = state == stat.state and not (state in HELD and ticks > 0)
            states[identity] = (stat.state, since if lasts else now)
            cpu, resident = 100.0 * ticks / self._hertz / elapsed, stat.resident_pages * self._page_gib
            found.append(Look(pid, stat.state, now - states[identity][1], cpu, resident, stat.parent))
        self._states = states
        shown = [one for one in found if one.is_halted or one.state != "Z"]
        shown.sort(key=lambda one: (one.is_halted, one.cpu_percent / 100.0 + one.resident_gib), reverse=True)
        return [one.entry() for one in sorted(shown[:MAX_PROCESSES])]

    def news(self, sample: List[Dict[str, Any]]) -> List[str]:
        """A sentence for each process that has come to a halt since the last look, or goes on again."""
        titles = {one["pid"]: "%s (pid %d)" % (one["title"] or "a process", one["pid"]) for one in sample}
        halted = {(one["pid"], one["state"]) for one in sample if "state" in one}
        before, self._told = self._told, halted
        began = ["%s: %s" % (titles[pid], state) for pid, state in sorted(halted - before)]
        return began + ["%s: goes on again" % titles[pid] for pid, _ in sorted(before - halted) if pid in titles]


class Sampler:
    """Puts the lines together.

    Args:
        mark: What the processes that are shown are known by (``processes.scanner``).
        attempt: The attempt's directory.

    Attributes:
        halts: Processes that came to a halt with the newest line that told of processes, a sentence each.
    """

    def __init__(self, mark: str, attempt: str) -> None:
        self._host = host_name()
        self._reader = HostReader()
        self._gpus = GpuReader()
        self._processes = ProcessReader(mark)
        self._servers = ScriptServers(attempt, self._host)
        self._lines = 0
        self.halts: List[str] = []

    def xids(self) -> List[str]:
        """What the driver reported of each GPU since the last call, worded as the kernel's log has it."""
        return [
            "Xid (PCI:%s): %d, GPU %d of %s" % (self._gpus.bus_id(index), xid, index, self._host)
            for index, xid in self._gpus.xids()
        ]

    def line(self) -> bytes:
        """The next line of the sampler's file; processes and slow fields are in every few only."""
        slow = self._lines % SLOW_EVERY == 0
        self._lines += 1
        entry: Dict[str, Any] = {"t": round(time.time(), 2), "host": self._host, "cpus": self._reader.cpus}
        entry["cpu"] = self._reader.cpu_percent()
        entry["mem"] = self._reader.memory_gib()
        gpus = self._gpus.sample(slow)
        if gpus:
            entry["gpus"] = gpus
        if slow:
            entry.update(self._reader.room())
            entry["procs"] = self._processes.sample()
            self.halts = self._processes.news(entry["procs"])
            self._servers.look(self._processes.found)
            if self._servers.engines is not None:
                entry["engines"] = self._servers.engines
        return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def host_name() -> str:
    """This node's short name, fit for a file's name."""
    short = socket.gethostname().split(".")[0]
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in short) or "node"


def sample_until_end(
    attempt: str, mark: str, interval_s: float, parent: Optional[Tuple[int, str]], most_s: float = math.inf
) -> None:
    """Write lines until the parent (pid and start time) or the attempt's directory is gone, or for ``most_s``."""
    sampler = Sampler(mark, attempt)
    sink = Sink(os.path.join(attempt, lost_nodes.sampler_file(host_name())))
    requests = evidence.Watch(attempt, mark, host_name())
    untold: "Deque[Tuple[str, str]]" = collections.deque(maxlen=MOST_UNTOLD)
    due = time.monotonic()
    until = due + most_s
    while due < until and (parent is None or processes.alive(*parent)) and not rundir.is_gone(attempt):
        untold += [("xid", text) for text in sampler.xids()]
        sink.write(sampler.line())
        untold += [("process", "%s on %s" % (text, host_name())) for text in sampler.halts]
        sampler.halts = []
        # a disk that is full now, or a node without room for a process, is what the samples are to show
        with contextlib.suppress(OSError):
            requests.look()
        with contextlib.suppress(OSError):
            while untold:
                rundir.log_event(attempt, untold[0][0], untold[0][1], host=host_name())
                untold.popleft()
        due = max(due + interval_s, time.monotonic())  # after a standstill there is nothing to catch up with
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    """Entry point; 0 after a signal or the parent's end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument(
        "--mark", required=True, help="whose processes: the attempt's uuid, job (this Slurm job), pid:P"
    )
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between lines")
    parser.add_argument("--parent", type=int, help="pid of the process to end with")
    parser.add_argument("--for", dest="most_s", type=float, default=math.inf, help="seconds after which it ends")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    parent = None
    if options.parent is not None:
        started = processes.start_time(options.parent)
        if started is None and os.path.isdir("/proc/self"):
            return 0
        parent = (options.parent, started) if started else None
    sample_until_end(options.attempt, options.mark, max(0.1, options.interval), parent, options.most_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
