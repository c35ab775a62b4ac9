"""What a cluster's runs remember of its bad nodes: one file in the run root, written by evidence, forgotten by itself.

Each line of ``.bad-nodes.jsonl`` is one piece of evidence, or that somebody had a node forgotten. The file belongs to
all runs of a run root; many may write at once. The module stands alone: rltui also sends its text through the relay.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import sys
import tempfile
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

FILE = ".bad-nodes.jsonl"
LOCK = ".bad-nodes.lock"

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

TIME_TO_LIVE_S: Mapping[str, float] = {
    # only a repair or another card helps, and sites take about a week for one
    "gpu-lost": 7 * DAY_S,
    "ecc": 7 * DAY_S,
    # a reset or a reboot may have mended it
    "xid": 3 * DAY_S,
    # it comes back rebooted, and looked at, by the next day; Slurm keeps it out until it answers
    "node-lost": DAY_S,
    # mounts, disks and images are mended within a day, and every job looks at its nodes again
    "node-check": DAY_S,
    # heat or a neighbour's load often passes
    "straggler": 2 * DAY_S,
}
"""How long a first piece of evidence of each reason counts; each further one doubles it, up to ``LONGEST_S``."""

LONGEST_S = 30 * DAY_S
"""Longer than this no node is remembered for anything."""

LEAST_COUNT: Mapping[str, int] = {"straggler": 3}
"""Reasons that say something of a node only where several attempts gave them: once it may be the run's own doing."""

MOST_BYTES = 1 << 18
LOCK_S = 5.0
LOCK_POLL_S = 0.02

_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\Z")
# Lustre that was mounted without flock has no locks (ENOSYS), nor has NFS without lockd (ENOLCK)
_UNLOCKABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Evidence(NamedTuple):
    """One thing that spoke against a node: reason (a key of ``TIME_TO_LIVE_S``), its words, when and in which run."""

    reason: str
    evidence: str
    run: str
    attempt: int
    at: float


@dataclasses.dataclass(frozen=True)
class BadNode:
    """A node that runs had better keep away from.

    Attributes:
        node: Its name, as the scheduler calls it.
        count: Attempts that gave evidence against it.
        first: When the first of it came, epoch seconds.
        last: When the last came.
        reasons: Why, the newest first.
        expires: When it is forgotten, epoch seconds.
        evidence: All of it, the oldest first.
    """

    node: str
    count: int
    first: float
    last: float
    reasons: Tuple[str, ...]
    expires: float
    evidence: Tuple[Evidence, ...]


def record(run_root: str, node: str, reason: str, evidence: str, run: str, attempt: int, now_s: float) -> None:
    """Write evidence against ``node`` down; the same reason of the same attempt counts once.

    Args:
        run_root: The folder of the runs.
        node: Its name, as the scheduler calls it.
        reason: A key of ``TIME_TO_LIVE_S``.
        evidence: A sentence or a log line for people.
        run: The run's id.
        attempt: Number of its attempt.
        now_s: Epoch seconds.

    Raises:
        ValueError: That is no name of a node, or an unknown reason.
        OSError: It cannot be written.
    """
    if reason not in TIME_TO_LIVE_S:
        raise ValueError("unknown reason %r" % reason)
    words = " ".join(evidence.split())[:300]
    entry = {"time": now_s, "node": _checked(node), "reason": reason, "evidence": words, "run": run, "attempt": attempt}
    known = _known(_lines(os.path.join(run_root, FILE))).get(node, {})
    if (reason, run, attempt) not in known:
        _append(run_root, entry, now_s)


def forget(run_root: str, node: str, now_s: float) -> None:
    """Let nothing that was known of ``node`` until now count any more.

    Raises:
        ValueError: That is no name of a node.
        OSError: It cannot be written.
    """
    _append(run_root, {"time": now_s, "node": _checked(node), "forget": True}, now_s)


def read(run_root: str, now_s: float) -> List[BadNode]:
    """The nodes that are bad at ``now_s``, those with the newest evidence first; none where nothing is written."""
    return merged(_lines(os.path.join(run_root, FILE)), now_s)


def merged(lines: Iterable[str], now_s: float) -> List[BadNode]:
    """The bad nodes that the file's ``lines`` tell of; lines that are torn or strange are skipped."""
    found = [_judged(node, list(pieces.values()), now_s) for node, pieces in _known(lines).items()]
    return sorted(filter(None, found), key=lambda bad: -bad.last)


def _known(lines: Iterable[str]) -> Dict[str, Dict[Tuple[str, str, int], Evidence]]:
    """By node and (reason, run, attempt), the first evidence after the node was last forgotten.

    Times decide, not the order of the lines: who looks at an old job late must not bring back what was forgotten.
    """
    entries = [entry for entry in map(_parsed, lines) if entry is not None]
    forgotten: Dict[str, float] = {}
    for entry in entries:
        if entry.get("forget"):
            forgotten[entry["node"]] = max(entry["time"], forgotten.get(entry["node"], 0.0))
    known: Dict[str, Dict[Tuple[str, str, int], Evidence]] = {}
    for entry in entries:
        if not entry.get("forget") and entry["time"] > forgotten.get(entry["node"], 0.0):
            one = Evidence(entry["reason"], entry["evidence"], entry["run"], entry["attempt"], float(entry["time"]))
            known.setdefault(entry["node"], {}).setdefault((one.reason, one.run, one.attempt), one)
    return known


def _judged(node: str, pieces: List[Evidence], now_s: float) -> Optional[BadNode]:
    """``node`` by all ``pieces`` of evidence; None where none of it counts any more."""
    ends: Dict[str, float] = {}
    pieces = [piece for piece in pieces if now_s - piece.at < LONGEST_S]
    for reason in {piece.reason for piece in pieces}:
        times = [piece.at for piece in pieces if piece.reason == reason]
        if len(times) >= LEAST_COUNT.get(reason, 1):
            lives_s = TIME_TO_LIVE_S.get(reason, DAY_S) * 2.0 ** min(10, len(times) - LEAST_COUNT.get(reason, 1))
            ends[reason] = max(times) + min(LONGEST_S, lives_s)
    kept = sorted((piece for piece in pieces if ends.get(piece.reason, 0.0) > now_s), key=lambda piece: piece.at)
    if not kept:
        return None
    reasons = tuple(dict.fromkeys(piece.reason for piece in reversed(kept)))
    count = len({(piece.run, piece.attempt) for piece in kept})
    expires = max(ends[reason] for reason in reasons)
    return BadNode(node, count, kept[0].at, kept[-1].at, reasons, expires, tuple(kept))


def _checked(node: str) -> str:
    if not _NODE.match(node):
        raise ValueError("%r is no name of a node" % node[:80])
    return node


def _parsed(line: str) -> Optional[Dict[str, Any]]:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("time"), (int, float)):
        return None
    if not _NODE.match(str(entry.get("node", ""))) or not isinstance(entry["node"], str):
        return None
    if not entry.get("forget"):
        words = all(isinstance(entry.get(name), str) for name in ("reason", "evidence", "run"))
        if not words or not isinstance(entry.get("attempt"), int):
            return None
    return entry


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().split("\n")
    except FileNotFoundError:
        return []


def _append(run_root: str, entry: Dict[str, Any], now_s: float) -> None:
    path = os.path.join(run_root, FILE)
    line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n"
    with _locked(run_root) as is_locked:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # what a writer left torn when it was killed must not spoil the next line
            torn = size > 0 and os.pread(descriptor, 1, size - 1) not in (b"\n", b"")
            os.write(descriptor, (b"\n" if torn else b"") + line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_locked and size > MOST_BYTES:
            _compact(path, now_s)


def _compact(path: str, now_s: float) -> None:
    """Write anew what still counts, the newest of it where even that is too much; only under the lock."""
    all_lines = _lines(path)
    entries: List[Dict[str, Any]] = []
    for node, pieces in _known(all_lines).items():
        for one in pieces.values():
            entries.append({"time": one.at, "node": node, "reason": one.reason, "evidence": one.evidence})
            entries[-1].update(run=one.run, attempt=one.attempt)
    entries += [entry for entry in filter(None, map(_parsed, all_lines)) if entry.get("forget")]
    entries = sorted((one for one in entries if now_s - one["time"] < LONGEST_S), key=lambda one: one["time"])
    lines = [json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries]
    while sum(map(len, lines)) > MOST_BYTES // 2:
        lines = lines[len(lines) // 4 + 1 :]
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _locked(run_root: str) -> Iterator[bool]:
    """The right to write, for a moment; False where the file system has no locks or a holder hangs.

    Without it a line is appended all the same, in one write; only compacting needs to be alone.
    """
    # a file of its own: a lock is on an inode, and compacting puts another one in the other's place
    descriptor = os.open(os.path.join(run_root, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in _UNLOCKABLE or time.monotonic() > deadline:
                return False
        time.sleep(LOCK_POLL_S)


def main() -> int:
    """Entry point: ``record`` or ``forget``, and the function's arguments as JSON; without ``now_s`` it is now."""
    arguments = {"now_s": time.time(), **json.loads(sys.argv[2])}
    if sys.argv[1] == "record":
        record(**arguments)
    else:
        forget(**arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
