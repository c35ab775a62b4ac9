"""Tickets of a machine's queue: one small file each, that everybody there can read and only its owner can write.

They lie in a folder in which nobody can change the files of others: ``/tmp``, or what ``RLTUI_QUEUE`` names. What a
ticket says is its owner's word and may be a lie; whose it is and since when it waits is the kernel's. It counts only
while the process that it names runs and is its owner's, so nobody can take a place for a process that is not his.
"""

import contextlib
import json
import os
import pwd
import stat
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from rltui.onnode import processes

FOLDER_VARIABLE = "RLTUI_QUEUE"
"""Folder of the tickets; all who share a machine must use the same one."""

PREFIX = ".rltui-ticket-"
WAITING = "waiting"
RUNNING = "running"
LONGEST = 4096
"""Bytes of a ticket."""
MOST_OF_A_USER = 256
MOST_CARDS = 1024


class Ticket(NamedTuple):
    """One attempt's place in the queue.

    Attributes:
        uuid: The attempt.
        label: Its run, for people.
        cpus: CPU slots that it holds or asks for.
        gpus: Cards that it holds or asks for.
        pid: Its supervisor.
        start_time: When that started, as the kernel counts.
        state: ``WAITING`` or ``RUNNING``.
        gpu_indices: The cards that it holds.
        since: When it got into this state, epoch seconds, by its owner's word.
        uid: Who owns it, by the kernel's word.
        arrived_ns: When its file was last written, by the kernel's word; it is written once while it waits.
    """

    uuid: str
    label: str
    cpus: int
    gpus: int
    pid: int
    start_time: str
    state: str = WAITING
    gpu_indices: Tuple[int, ...] = ()
    since: float = 0.0
    uid: int = 0
    arrived_ns: int = 0


def folder_of_tickets() -> str:
    """The folder of this machine's tickets.

    Raises:
        OSError: It is not there, or others could put other tickets in the place of ours.
    """
    folder = os.environ.get(FOLDER_VARIABLE) or "/tmp"
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        raise OSError("the queue's folder %s, which %s names, is not there" % (folder, FOLDER_VARIABLE)) from None
    if found.st_uid not in (0, os.getuid()):
        raise OSError("the queue's folder %s belongs to %s, who could change it" % (folder, user_name(found.st_uid)))
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise OSError("everybody can change the files in the queue's folder %s; run: chmod +t %s" % (folder, folder))
    return folder


def path_of(folder: str, uuid: str) -> str:
    """The file of a ticket."""
    return os.path.join(folder, PREFIX + uuid)


def write(folder: str, ticket: Ticket) -> None:
    """Write a ticket of this user's in one step."""
    told = {name: value for name, value in ticket._asdict().items() if name not in ("uid", "arrived_ns")}
    handle, temporary = tempfile.mkstemp(prefix=".rltui-new-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(told, stream)
            # mkstemp makes files that nobody else can read, and others have to see who holds what
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, path_of(folder, ticket.uuid))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def remove(folder: str, uuid: str) -> None:
    """Remove a ticket; harmless where there is none, or it is somebody else's."""
    with contextlib.suppress(OSError):
        os.unlink(path_of(folder, uuid))


def living(folder: str) -> List[Ticket]:
    """Every ticket whose process lives; files of this user's dead ones are removed."""
    found: List[Ticket] = []
    count: Dict[int, int] = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith(PREFIX):
            continue
        uuid = name[len(PREFIX) :]
        ticket = read(folder, uuid)
        if ticket is None or not is_alive(ticket):
            _remove_own(folder, uuid)
            continue
        count[ticket.uid] = count.get(ticket.uid, 0) + 1
        if count[ticket.uid] <= MOST_OF_A_USER:
            found.append(ticket)
    return found


def read(folder: str, uuid: str) -> Optional[Ticket]:
    """The ticket in its file; None where that holds none. Links are not followed, pipes not waited for."""
    try:
        descriptor = os.open(path_of(folder, uuid), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LONGEST:
            return None
        value = json.loads(os.read(descriptor, LONGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    # ctime: mtime can be set to any moment (utime(2)), and its owner would be first in line
    return parse(value, uuid, about.st_uid, about.st_ctime_ns)


def parse(value: Any, uuid: str, uid: int, arrived_ns: int) -> Optional[Ticket]:
    """The ticket in an object that anybody may have written; None where it is none."""
    if not isinstance(value, dict) or value.get("uuid") != uuid or value.get("state") not in (WAITING, RUNNING):
        return None
    numbers: List[Any] = [value.get(name) for name in ("cpus", "gpus", "pid")]
    texts: List[Any] = [value.get(name) for name in ("label", "start_time")]
    cards, since = value.get("gpu_indices"), value.get("since", 0.0)
    if not isinstance(cards, list) or len(cards) > MOST_CARDS or type(since) not in (int, float):
        return None
    if not all(type(one) is int and 0 <= one < 1 << 31 for one in numbers + cards):
        return None
    if not all(isinstance(text, str) and len(text) <= 200 and text.isprintable() for text in texts):
        return None
    (cpus, gpus, pid), (label, start_time) = numbers, texts
    held = tuple(sorted(set(cards)))
    return Ticket(uuid, label, cpus, gpus, pid, start_time, value["state"], held, float(since), uid, arrived_ns)


def is_alive(ticket: Ticket) -> bool:
    """Whether the ticket's process runs, and is its owner's."""
    # 0 is the asker's own group to kill(2), and process 1 always runs
    if ticket.pid < 2:
        return False
    if processes.read_stat(ticket.pid) is not None:
        with contextlib.suppress(OSError):
            is_owners = os.stat("/proc/%d" % ticket.pid).st_uid == ticket.uid
            return is_owners and processes.alive(ticket.pid, ticket.start_time)
        return False
    try:
        os.kill(ticket.pid, 0)
    except PermissionError:  # /proc hides the processes of others (hidepid): that it is there is all one can know
        return True
    except OSError:
        return False
    return False


def user_name(uid: int) -> str:
    """What a user is called here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "user %d" % uid


def _remove_own(folder: str, uuid: str) -> None:
    with contextlib.suppress(OSError):
        if os.lstat(path_of(folder, uuid)).st_uid == os.getuid():
            os.unlink(path_of(folder, uuid))
