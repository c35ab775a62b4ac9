"""Reading the lines of a file that somebody else writes, as they come.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Protocol

LONGEST_LINE = 1 << 20
END_BYTES = 1 << 15
"""Bytes at the end of a file that tell where its writer is."""
CHUNK = 1 << 22
UNREAD = {"offset": 0, "inode": 0, "rest": ""}
"""Where a reader stands that has read nothing."""


class Lines(Protocol):
    """A source of lines that grow while they are read: a file, or what a process prints."""

    def read(self, limit: Optional[int] = None) -> Iterator[str]:
        """Yield the lines that came since the last call, at most about ``limit`` bytes of them."""

    def unread_end(self) -> List[str]:
        """The last lines of what the last reading left; none where it left nothing."""


class LineReader:
    """New whole lines of a file that grows; one that is replaced or cut off is read from its start again.

    Args:
        path: The file; it need not be there yet.
        offset: Where to begin.
        also_returns: Whether a carriage return ends a line too, as progress bars have it.
    """

    def __init__(self, path: str, offset: int = 0, also_returns: bool = False) -> None:
        self.path, self._offset, self._inode = path, offset, 0
        self._ends = re.compile(rb"[\r\n]" if also_returns else rb"\n")
        self._rest = b""
        self.is_behind = False
        """Whether the last reading was ended by its limit, so that there may be more."""

    def state(self) -> Dict[str, Any]:
        """Where it stands, as plain values from which ``restore`` lets another reader go on."""
        # latin-1 has a letter for each byte: half a character of UTF-8 survives JSON so
        return {"offset": self._offset, "inode": self._inode, "rest": self._rest.decode("latin-1")}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from where the reader stood that said ``state``."""
        self._offset, self._inode, self._rest = state["offset"], state["inode"], state["rest"].encode("latin-1")

    def read(self, limit: Optional[int] = None) -> Iterator[str]:
        """Yield the lines that came since the last call, without their ends.

        Args:
            limit: About how many bytes to read at most; the next call goes on there.
        """
        if not os.path.exists(self.path):
            self.is_behind = False
            return
        with open(self.path, "rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_size < self._offset or (self._inode and found.st_ino != self._inode):
                self._offset, self._rest = 0, b""
            self._inode = found.st_ino
            stream.seek(self._offset)
            until = None if limit is None else self._offset + limit
            self.is_behind = True
            while until is None or self._offset < until:
                data = stream.read(CHUNK)
                if not data:
                    self.is_behind = False
                    return
                self._offset += len(data)
                lines = self._ends.split(self._rest + data)
                self._rest = lines.pop()[-LONGEST_LINE:]
                for line in lines:
                    yield line[:LONGEST_LINE].decode("utf-8", "replace")

    def unread_end(self) -> List[str]:
        """The last lines of what the last reading left; none where it left nothing."""
        if not self.is_behind or not os.path.exists(self.path):
            return []
        with open(self.path, "rb") as stream:
            begin = max(self._offset, os.fstat(stream.fileno()).st_size - END_BYTES)
            stream.seek(begin)
            lines = self._ends.split(stream.read(END_BYTES))
        return [line.decode("utf-8", "replace") for line in lines[1:-1]]
