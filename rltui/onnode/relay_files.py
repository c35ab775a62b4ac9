"""The relay's operations on files: ``read``, ``tail``, ``collect``, ``put``, ``list``."""

import glob
import os
import stat
import tempfile
import time
from typing import List, Optional, Tuple

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

MAX_READ = 8 * MIB
MAX_PUT = 16 * MIB
MAX_SMALL = MIB
MAX_COLLECT = 8 * MIB
"""Characters of all texts of one ``collect`` together, give or take the last file."""
MAX_ENTRIES = 20000

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


def read(request: Request) -> Answer:
    """Bytes of a file from an offset."""
    return _part(path_of(request), count_of(request, "offset", 0), count_of(request, "limit", MAX_READ))


def tail(request: Request) -> Answer:
    """The last bytes of a file."""
    return _part(path_of(request), None, count_of(request, "bytes"))


def _part(path: str, offset: Optional[int], limit: int) -> Answer:
    descriptor, found = _open(path)
    try:
        limit = min(limit, MAX_READ)
        start = max(0, found.st_size - limit) if offset is None else offset
        data, packed = pack(os.pread(descriptor, limit, start))
    finally:
        os.close(descriptor)
    answer: Answer = {"data": data, "packed": packed, "offset": start, "size": found.st_size}
    answer.update(inode=found.st_ino, mtime=found.st_mtime)
    return answer


def _open(path: str) -> Tuple[int, os.stat_result]:
    """Open a regular file; a pipe or device, which could block for ever or have effects, is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Refusal("not-a-file", "%s is not a regular file" % path)
    return descriptor, found


def collect(request: Request) -> Answer:
    """Many small text files at once; with ``since``, the text of files older than that is left out (None)."""
    root, names = path_of(request, "root"), texts_of(request, "names")
    limit, since = min(count_of(request, "limit", MAX_SMALL), MAX_SMALL), number_of(request, "since", 0)
    if any(os.path.isabs(name) or ".." in name.split("/") for name in names):
        raise Refusal("bad-request", "names must be relative and stay below root")
    files: List[Answer] = []
    taken, truncated = 0, False
    paths = (path for name in names for path in sorted(glob.iglob(os.path.join(glob.escape(root), name))))
    for path in paths:
        truncated = len(files) >= MAX_ENTRIES or taken > MAX_COLLECT
        if truncated:
            break
        entry = _small_file(path, limit, since)
        if entry is not None:
            files.append(dict(entry, path=os.path.relpath(path, root)))
            taken += len(entry["text"] or "")
    return {"files": files, "truncated": truncated, "time": time.time()}


def _small_file(path: str, limit: int, since: float) -> Optional[Answer]:
    """One file of ``collect``, or None where it vanished or may not be read."""
    try:
        found = os.stat(path)
        if found.st_mtime < since:
            return {"text": None, "mtime": found.st_mtime, "size": found.st_size}
        descriptor, found = _open(path)
    except (OSError, Refusal):
        return None
    try:
        data = os.pread(descriptor, limit, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return {"text": data.decode("utf-8", "replace"), "mtime": found.st_mtime, "size": found.st_size}


def put(request: Request) -> Answer:
    """Write a file in one step; its directory must be there. ``exclusive``: refuse where the file is there already."""
    path, mode = path_of(request), count_of(request, "mode", 0o600)
    data = unpack(text_of(request, "data"), bool(request.get("packed")), MAX_PUT)
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        if request.get("exclusive"):
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
    with os.scandir(path_of(request)) as found:
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
