"""The relay's operations on files: ``read``, ``tail``, ``collect``, ``put``, ``list``."""

import glob
import itertools
import os
import pwd
import stat
import tempfile
import time
from typing import Dict, Iterator, List, Optional, Tuple

from rltui.onnode.relay_request import (
    MIB,
    Answer,
    Refusal,
    Request,
    count_of,
    number_of,
    pack,
    path_of,
    text_of,
    texts_of,
    unpack,
)
from rltui.onnode.rundir import file_mode

MAX_READ = 8 * MIB
MAX_PUT = 16 * MIB
MAX_SMALL = MIB
MAX_COLLECT = 8 * MIB
"""Characters of all texts of one ``collect`` together, give or take the last file."""
COLLECT_S = 4.0
"""What one ``collect`` takes at most, about: thousands of files of a slow disk take longer than anybody waits."""

MAX_ENTRIES = 20000

WRONG_CLOCK_S = 10.0
"""By less than this a disk's clock and this machine's may seem to differ because the disk is slow."""
ASKED_EVERY_S = 600.0

ROOM = 1 << 16
"""Bytes on a disk below which nothing of a run can be written any more."""

NOT_OF = "%s is no file of %s's: a link may lead there"

_names: Dict[int, str] = {}
_offsets: Dict[int, Tuple[float, float]] = {}
"""By device, since when (monotonic) it is known how far its clock is ahead of this machine's, in seconds."""

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


def read(request: Request) -> Answer:
    """Bytes of a file from an offset."""
    return _part(request, count_of(request, "offset", 0), count_of(request, "limit", MAX_READ))


def tail(request: Request) -> Answer:
    """The last bytes of a file."""
    return _part(request, None, count_of(request, "bytes"))


def _part(request: Request, offset: Optional[int], limit: int) -> Answer:
    descriptor, found = open_file(request)
    try:
        limit = min(limit, MAX_READ)
        start = max(0, found.st_size - limit) if offset is None else offset
        data, packed = pack(os.pread(descriptor, limit, start))
    finally:
        os.close(descriptor)
    answer: Answer = {"data": data, "packed": packed, "offset": start, "size": found.st_size}
    answer.update(inode=found.st_ino, mtime=found.st_mtime)
    return answer


def open_file(request: Request) -> Tuple[int, os.stat_result]:
    """Open the regular file ``path`` of a request; with ``owner``, only where it is that user's."""
    path, owner = path_of(request), text_of(request, "owner", "")
    descriptor, found = _open(path)
    if owner and user_name(found.st_uid) != owner:
        os.close(descriptor)
        raise Refusal("denied", NOT_OF % (path, owner))
    return descriptor, found


def _open(path: str) -> Tuple[int, os.stat_result]:
    """Open a regular file; a pipe or device, which could block for ever or have effects, is refused."""
    # O_NONBLOCK: opening a pipe without a writer would wait for one for ever, before fstat can tell what it is
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Refusal("not-a-file", "%s is not a regular file" % path)
    return descriptor, found


def collect(request: Request) -> Answer:
    """Many small text files at once; with ``since``, the text of files older than that is left out (None).

    Of a longer file the first ``limit`` bytes are given; of one of JSON lines, which grows, the last whole lines.
    Where that is too much at once it is ``truncated``, and the next request goes on with ``first``: ``next`` of this.
    """
    root, names = path_of(request, "root"), texts_of(request, "names")
    limit, since = min(count_of(request, "limit", MAX_SMALL), MAX_SMALL), number_of(request, "since", 0)
    if any(os.path.isabs(name) or ".." in name.split("/") for name in names):
        raise Refusal("bad-request", "names must be relative and stay below root")
    owner = text_of(request, "owner", "")
    files: List[Answer] = []
    taken, truncated, following = 0, False, count_of(request, "first", 0)
    below = root if root.endswith("/") else root + "/"
    ends_at = time.monotonic() + COLLECT_S
    for place, path in enumerate(itertools.islice(_paths(below, names), following, None)):
        late = place > 0 and time.monotonic() > ends_at
        truncated = len(files) >= MAX_ENTRIES or taken > MAX_COLLECT or late
        if truncated:
            break
        following += 1
        entry = _small_file(path, limit, since, owner)
        if entry is not None:
            files.append(dict(entry, path=path[len(below) :]))
            taken += len(entry["text"] or "")
    about = {"time": disk_time(root), "full": is_full(root)}
    return {"files": files, "truncated": truncated, "next": following, **about}


def _paths(below: str, names: List[str]) -> Iterator[str]:
    """Files below a folder that patterns may mean, there or not, in an order that lasts as long as its folders do.

    Patterns differ in their last word mostly, so the folders before it are looked for once for all of them.
    """
    found: Dict[str, List[str]] = {}
    for name in names:
        folder, slash, last = name.rpartition("/")
        if any(mark in last for mark in "*?["):
            folder, slash, last = name, "", ""
        if folder not in found:
            found[folder] = sorted(glob.glob(glob.escape(below) + folder))
        for path in found[folder]:
            yield path + slash + last


def is_full(folder: str) -> bool:
    """Whether not even a short file fits on the disk that ``folder`` is on; the user's quota is not seen so."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    # root may fill as well what a file system keeps back for it
    blocks, names = (disk.f_bavail, disk.f_favail) if os.geteuid() else (disk.f_bfree, disk.f_ffree)
    has_counts = disk.f_blocks > 0  # some file systems of the network tell nothing
    return has_counts and (blocks * disk.f_frsize < ROOM or (disk.f_files > 0 and names == 0))


def disk_time(folder: str) -> float:
    """Seconds since the epoch by the clock of the disk that ``folder`` is on, as far as that can be asked.

    The age of a file is the time since it was written by the clock that stamped it. A login node may be minutes off;
    the run would seem to stand still then, or to come from the future. Asking takes a file that leaves no name.
    """
    now = asked_at = time.time()
    try:
        device = os.stat(folder).st_dev
        known_at, offset = _offsets.get(device, (-ASKED_EVERY_S, 0.0))
        if time.monotonic() - known_at >= ASKED_EVERY_S:
            with tempfile.TemporaryFile(dir=folder) as asked:
                stamped, now = os.fstat(asked.fileno()).st_mtime, time.time()
            # it was made between the two: only what lies outside of that is the other clock's
            offset = min(0.0, stamped - asked_at) + max(0.0, stamped - now)
            _offsets[device] = (time.monotonic(), offset)
    except OSError:  # a colleague's folder, or a full disk
        return now
    return now + offset if abs(offset) >= WRONG_CLOCK_S else now


def _small_file(path: str, limit: int, since: float, owner: str) -> Optional[Answer]:
    """One file of ``collect``, or None where it vanished, may not be read, or is not of ``owner``."""
    try:
        found = os.stat(path)
        if found.st_mtime < since:
            return _told(path, found, None)
        descriptor, found = open_file({"path": path, "owner": owner})
    except (OSError, Refusal):
        return None
    try:
        grows = path.endswith(".jsonl")
        data = _last_lines(descriptor, found.st_size, limit) if grows else os.pread(descriptor, limit, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return _told(path, found, data.decode("utf-8", "replace"))


def _last_lines(descriptor: int, size: int, limit: int) -> bytes:
    if size <= limit:
        return os.pread(descriptor, limit, 0)
    # a byte more in front: where it is a line's end, the first line is a whole one
    data = os.pread(descriptor, limit + 1, size - limit - 1)
    return data[data.find(b"\n") + 1 :]


def _told(path: str, found: os.stat_result, text: Optional[str]) -> Answer:
    return {"text": text, "mtime": found.st_mtime, "size": found.st_size, "owner": _other(path, found)}


def _other(path: str, found: os.stat_result) -> str:
    """Whose file it is; empty: the user's own, as are all below folders that he may write.

    Some file systems show every file as somebody else's.
    """
    if found.st_uid == os.geteuid() or os.access(os.path.dirname(path), os.W_OK):
        return ""
    return user_name(found.st_uid)


def user_name(uid: int) -> str:
    """The name of a user, or the number where nobody knows a name."""
    if uid not in _names:
        try:
            _names[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            _names[uid] = str(uid)
    return _names[uid]


def put(request: Request) -> Answer:
    """Write a file in one step; its directory must be there. ``exclusive``: refuse where the file is there already."""
    path = path_of(request)
    mode = count_of(request, "mode", file_mode(path))
    data = unpack(text_of(request, "data"), bool(request.get("packed")), MAX_PUT)
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            # before the rename: some file systems bring the name onto the disk before the bytes, and a crash between
            # leaves an empty file
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        if request.get("exclusive"):
            # link(2) fails where the name is taken, on NFS too; O_EXCL would show others a file that is not yet
            # written
            os.link(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    return {"path": path}


def list_directory(request: Request) -> Answer:
    """The entries of a directory, by name; links are not followed."""
    entries: List[Answer] = []
    truncated = False
    path, owner = path_of(request), text_of(request, "owner", "")
    if owner and user_name(os.stat(path).st_uid) != owner:
        raise Refusal("denied", NOT_OF % (path, owner))
    with os.scandir(path) as found:
        for entry in found:
            truncated = len(entries) >= MAX_ENTRIES
            if truncated:
                break
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # it vanished between the listing and the look
                continue
            kind = TYPES.get(stat.S_IFMT(status.st_mode), "other")
            entries.append({"name": entry.name, "type": kind, "size": status.st_size, "mtime": status.st_mtime})
    entries.sort(key=lambda about: str(about["name"]))
    return {"entries": entries, "truncated": truncated}
