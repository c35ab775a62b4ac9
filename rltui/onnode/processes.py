"""Finding and ending exactly the processes of one attempt, by what the kernel says of them, never by name.

A process belongs to an attempt when its environment carries ``RLTUI_ATTEMPT=<uuid>``. Programs that rewrite their
title (setproctitle, as in Ray's dashboard, unless SPT_NOENV is set) can overwrite that part of their environment; such
a process still belongs when its parent does. A process is one pid *and* one start time: a pid alone may be somebody
else's by the next look. Where there is no /proc (macOS) nothing is found and nothing is ended.
"""

import os
import signal
import subprocess
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from rltui.onnode.rundir import ATTEMPT_VARIABLE

POLL_S = 0.02
KILL_DEADLINE_S = 5.0
"""How long a killed process may take to vanish; one in uninterruptible sleep can take for ever."""

TITLE_LIMIT = 80
"""Longest title in characters."""


class Process(NamedTuple):
    """One process: pid and start time together name it, whatever happens to the pid later."""

    pid: int
    start_time: str
    title: str


class Stat(NamedTuple):
    """What /proc/PID/stat says (proc(5)); times are in clock ticks."""

    state: str
    parent: int
    cpu_ticks: int
    start_time: str
    resident_pages: int


def read_stat(pid: int) -> Optional[Stat]:
    """Return what the kernel says of ``pid``, or None where there is no such process."""
    content = contents("/proc/%d/stat" % pid)
    # the name is in parentheses and may hold spaces and parentheses itself: fields count from the last one
    fields = content[content.rfind(b")") + 2 :].split()
    if len(fields) < 22:
        return None
    # fields 14 and 15 (time without that of children), 22 and 24 of proc(5), counted from the state, which is the third
    return Stat(
        fields[0].decode(), int(fields[1]), int(fields[11]) + int(fields[12]), fields[19].decode(), int(fields[21])
    )


def start_time(pid: int) -> Optional[str]:
    """Return when ``pid`` started, in clock ticks since boot, or None where there is no such process."""
    found = read_stat(pid)
    return found.start_time if found else None


def alive(pid: int, start_time: str) -> bool:
    """Whether the process that had ``pid`` and ``start_time`` still runs; a zombie does not."""
    found = read_stat(pid)
    return found is not None and found.start_time == start_time and found.state not in "ZX"


def boot_id() -> str:
    """What names the time since this machine was started; empty where the kernel does not say."""
    return contents("/proc/sys/kernel/random/boot_id").decode().strip()


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal: one without it would be ended by it."""
    return _in_mask("/proc/%d/status" % pid, b"SigCgt:", number)


def handling(pid: int, number: int) -> Set[int]:
    """Threads that do not take the signal now: their handler of it runs, or they never take it."""
    try:
        threads = [int(name) for name in os.listdir("/proc/%d/task" % pid)]
    except OSError:
        return set()
    return {thread for thread in threads if _in_mask("/proc/%d/task/%d/status" % (pid, thread), b"SigBlk:", number)}


def _in_mask(path: str, name: bytes, number: int) -> bool:
    """Whether the signal is in the mask ``name`` of a status file (proc(5))."""
    masks = [int(line.split()[1], 16) for line in contents(path).splitlines() if line.startswith(name)]
    # the lowest bit is that of signal 1
    return any(mask >> (number - 1) & 1 for mask in masks)


def by_attempt(uuid: str) -> List[Process]:
    """Return this user's running processes that belong to the attempt ``uuid``, by pid."""
    return [
        Process(pid, stat.start_time, title(pid)) for pid, stat in AttemptScanner(uuid).scan() if stat.state not in "ZX"
    ]


def send(pid: int, start_time: str, number: int) -> bool:
    """Send signal ``number`` to exactly that process; returns whether it was there to get it.

    Raises:
        PermissionError: The process belongs to somebody else.
    """
    try:
        # first the handle, then the look: from here on the pid cannot become another's unseen
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        # Python 3.8, Linux before 5.3 or a container's filter: a pid could change hands between the look and the signal
        handle = -1
    try:
        if not alive(pid, start_time):
            return False
        if handle < 0:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def end_all(uuid: str, grace_s: float, exclude: Iterable[int] = ()) -> List[Process]:
    """End every process of the attempt: SIGTERM, ``grace_s`` seconds to comply, then SIGKILL.

    Processes that are started meanwhile are found by looking again, and get no grace of their own.

    Args:
        uuid: The attempt.
        grace_s: Seconds between the two signals.
        exclude: Pids to spare; the calling process is always spared.

    Returns:
        The processes that were ended and are gone.
    """
    spared = {os.getpid(), *exclude}
    known = _belonging(uuid, spared)
    for process in known.values():
        send(process.pid, process.start_time, signal.SIGTERM)
    _await_end(known.values(), grace_s)
    deadline = time.monotonic() + KILL_DEADLINE_S
    while True:
        # one that is only known by its parent is found no more when that is gone, so what was known stays so
        known.update(_belonging(uuid, spared))
        left = [process for process in known.values() if alive(process.pid, process.start_time)]
        for process in left:
            send(process.pid, process.start_time, signal.SIGKILL)
        if not left or time.monotonic() >= deadline:
            return [process for process in known.values() if process not in left]
        _await_end(left, deadline - time.monotonic())


def _belonging(uuid: str, spared: Iterable[int]) -> Dict[Tuple[int, str], Process]:
    return {process[:2]: process for process in by_attempt(uuid) if process.pid not in spared}


def _await_end(processes: Iterable[Process], deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    for process in processes:
        while alive(process.pid, process.start_time) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def title(pid: int) -> str:
    """What ``pid`` calls itself, short: ``ray::Learner.train`` as it is, ``/usr/bin/python x`` as ``python x``."""
    words = words_of(pid)
    if words == [""]:  # a zombie has no command line any more
        words = [contents("/proc/%d/comm" % pid).decode("utf-8", "replace").strip()]
    if words[0].startswith("/"):
        words[0] = words[0].split(" ")[0].rsplit("/", 1)[-1]
    # a title is whatever its program writes there, and it goes to terminals
    text = "".join(letter if letter.isprintable() else " " for letter in " ".join(words))
    return text.strip()[:TITLE_LIMIT]


class AttemptScanner:
    """Finds the processes of one attempt again and again, cheaply.

    Reading every environment of a big node costs more than a sampler may take, so the answer for a process is kept.
    A process is judged on two looks before it counts as foreign: between fork and exec it shows its parent's
    environment. All is judged afresh once in ``REFRESH_LOOKS`` looks, because pids are used again.

    Args:
        value: The attempt's uuid; the value of ``variable``.
        variable: What its processes carry.
    """

    REFRESH_LOOKS = 12

    def __init__(self, value: str, variable: str = ATTEMPT_VARIABLE) -> None:
        self._mark = ("%s=%s" % (variable, value)).encode()
        self._any_mark = ("%s=" % variable).encode()
        self._foreign: Dict[int, int] = {}
        self._ours: Dict[int, str] = {}
        self._looks = 0

    def scan(self) -> List[Tuple[int, Stat]]:
        """Return pid and stat of every process of the attempt, by pid."""
        if self._looks % self.REFRESH_LOOKS == 0:
            self._foreign.clear()
        self._looks += 1
        pids = _pids()
        self._foreign = {pid: looks for pid, looks in self._foreign.items() if pid in pids}
        ours: Dict[int, Stat] = {}
        orphans: List[Tuple[int, Stat]] = []
        for pid in sorted(pids):
            if self._foreign.get(pid, 0) < 2:
                self._judge(pid, ours, orphans)
        self._adopt(orphans, ours)
        self._ours = {pid: stat.start_time for pid, stat in ours.items()}
        return sorted(ours.items())

    def _judge(self, pid: int, ours: Dict[int, Stat], orphans: List[Tuple[int, Stat]]) -> None:
        stat = read_stat(pid)
        if stat is None:
            return
        if self._ours.get(pid) == stat.start_time:
            ours[pid] = stat
            return
        variables = _environment(pid)
        if self._mark in variables:
            ours[pid] = stat
            return
        self._foreign[pid] = self._foreign.get(pid, 0) + 1
        # with another attempt's mark it is that one's, whoever its parent is
        if variables and not any(variable.startswith(self._any_mark) for variable in variables):
            orphans.append((pid, stat))

    def _adopt(self, orphans: List[Tuple[int, Stat]], ours: Dict[int, Stat]) -> None:
        """Move unmarked processes whose parent is ours to ``ours``, down to grandchildren of any degree."""
        grown = True
        while grown:
            grown = False
            for pid, stat in orphans:
                if pid not in ours and stat.parent in ours:
                    ours[pid] = stat
                    self._foreign.pop(pid, None)
                    grown = True


class TreeScanner:
    """Finds a process and all that it started, again and again."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def scan(self) -> List[Tuple[int, Stat]]:
        """Return pid and stat of each of them, by pid."""
        found = ((one.pid, read_stat(one.pid)) for one in tree(self._pid))
        return sorted((pid, stat) for pid, stat in found if stat is not None)


def scanner(mark: str) -> Union[AttemptScanner, TreeScanner]:
    """What finds the processes of ``mark``: an attempt's uuid, ``job``: of this Slurm job, ``pid:P``: P and its own."""
    if mark == "job":
        return AttemptScanner(os.environ.get("SLURM_JOB_ID", ""), "SLURM_JOB_ID")
    return TreeScanner(int(mark[4:])) if mark.startswith("pid:") else AttemptScanner(mark)


def tree(pid: int) -> List[Process]:
    """The process ``pid`` of this user and all that it started, itself first; none where it is not ours."""
    stats = {one: stat for one in _pids() if (stat := read_stat(one)) is not None and stat.state not in "ZX"}
    found = [pid] if pid in stats else []
    for parent in found:  # grows while it is read
        found += [one for one, stat in stats.items() if stat.parent == parent]
    return [Process(one, stats[one].start_time, title(one)) for one in found]


def words_of(pid: int) -> List[str]:
    """The command line of ``pid``; one empty word where nobody gives it away."""
    return contents("/proc/%d/cmdline" % pid, 1 << 16).decode("utf-8", "replace").rstrip("\0").split("\0")


def folder_of(pid: int) -> str:
    """The working directory of ``pid``; empty where nobody gives it away."""
    return link("/proc/%d/cwd" % pid)


def environment_of(pid: int) -> Dict[str, str]:
    """The variables that ``pid`` was started with."""
    pairs = (variable.decode("utf-8", "replace").partition("=") for variable in _environment(pid))
    return {name: value for name, _, value in pairs if name}


def attempt_of(pid: int) -> str:
    """The uuid of the attempt whose mark ``pid`` carries; empty where it carries none."""
    return environment_of(pid).get(ATTEMPT_VARIABLE, "")


def output_files(pids: Sequence[int]) -> Tuple[str, ...]:
    """The files that standard output and errors of the processes go to, through ``tee`` too; at most two."""
    found: Dict[str, None] = {}
    pipes: Set[str] = set()
    for pid in pids:
        for number in (1, 2):
            target = link("/proc/%d/fd/%d" % (pid, number))
            if target.startswith("pipe:"):
                pipes.add(target)
            elif target.startswith("/") and os.path.isfile(target):
                found[target] = None
    # both ends of a pipe have one inode, so whoever reads from it is the tee
    readers = [pid for pid in _pids() if pipes and link("/proc/%d/fd/0" % pid) in pipes]
    for pid in readers:
        for number in range(1, 8):
            target = link("/proc/%d/fd/%d" % (pid, number))
            if target.startswith("/") and os.path.isfile(target):
                found[target] = None
    return tuple(found)[:2]


def contents(path: str, limit: int = -1) -> bytes:
    """The first ``limit`` bytes of a file, of all of it by default; none where nobody gives it away."""
    try:
        with open(path, "rb") as stream:
            return stream.read(limit)
    except OSError:
        return b""


def link(path: str) -> str:
    """Where a link of /proc points to; empty where nobody gives it away, or it is gone by now."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def said_by(argv: Sequence[str], timeout_s: float, environment: Optional[Dict[str, str]] = None) -> Optional[str]:
    """What a command prints; None where it is not there, fails, or does not end in time."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, env=environment, timeout=timeout_s, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def attempts_here() -> Set[str]:
    """Uuids of the attempts of which a process of this user carries the mark on this machine."""
    mark = ("%s=" % ATTEMPT_VARIABLE).encode()
    found = (variable for pid in _pids() for variable in _environment(pid) if variable.startswith(mark))
    return {variable[len(mark) :].decode("utf-8", "replace") for variable in found}


def _pids() -> Set[int]:
    """Pids of this user's processes."""
    me = os.getuid()
    found: Set[int] = set()
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                if entry.name.isdigit():
                    try:
                        if entry.stat().st_uid == me:
                            found.add(int(entry.name))
                    except OSError:  # it ended between the listing and the look
                        continue
    except OSError:
        return set()
    return found


def _environment(pid: int) -> List[bytes]:
    try:
        # as it was at the process's exec: what that has set for itself since is not there
        with open("/proc/%d/environ" % pid, "rb") as stream:
            return stream.read().split(b"\0")
    except OSError:
        return []
