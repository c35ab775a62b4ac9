"""Where a script's metrics come from beside its console: files of JSON lines, W&B's and TensorBoard's own files.

W&B writes every run into a transaction log on the machine's disk, also while it sends it, and says on the console where
that is; TensorBoard's files are in the folder that it was told. Both hold all numbers in full, and need no network.
Formats: the log is LevelDB's (https://github.com/google/leveldb/blob/main/doc/log_format.md) with a head of 7 bytes and
wandb_internal.proto's ``Record`` in it; events are TFRecord frames with tensorboard's event.proto. Of either a few
fields are read, by their numbers, so that a node needs neither package nor a protobuf library.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import glob
import json
import os
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from rltui.onnode.line_reader import LineReader

STEPS = (
    "train/global_step",
    "rollout/step",
    "training/global_step",
    "trainer/global_step",
    "training_step",
    "global_step",
)
"""What systems call their own step in W&B; its own ``_step`` counts calls of log, which may be several a step."""

_WANDB_HEAD, _BLOCK, _RECORD_HEAD = 7, 32768, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_EVENT_HEAD, _EVENT_TAIL = 12, 4
EARLIEST = 1e9
"""A smaller number that is called time is a duration, and no epoch seconds."""
LARGEST_RECORD = 64 << 20
"""A length beyond this is of a broken file, whose rest is left."""


class Record(NamedTuple):
    """Some numbers of one step.

    Attributes:
        step: The step; where ``is_counted``, only the count of such records.
        values: The numbers by the system's names.
        at: When they were logged, epoch seconds; None where the file does not say.
        is_counted: Whether the file knows no step of the system.
    """

    step: int
    values: Dict[str, float]
    at: Optional[float] = None
    is_counted: bool = False


class JsonFile:
    """A file of JSON lines, one or several a step, as some systems write them.

    Args:
        path: The file.
        step: The key of the step.
        values: The key that holds the numbers; empty: beside the step.
        since: Records from before this time, epoch seconds, are an earlier run's, where they tell theirs.
    """

    def __init__(self, path: str, step: str = "step", values: str = "", since: float = 0.0) -> None:
        self.path, self._step, self._values, self._since = path, step, values, since
        self._lines = LineReader(path)

    def state(self) -> Dict[str, Any]:
        """Where reading stands, so that the next process goes on there."""
        return {"path": self.path, "lines": self._lines.state()}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from where the reader stood that said ``state``."""
        self._lines.restore(state["lines"])

    def read(self, limit: Optional[int] = None) -> Iterator[Record]:
        """Yield what came since the last call, at most about ``limit`` bytes of it."""
        for line in self._lines.read(limit):
            record = self._record(line)
            if record is not None and (record.at is None or record.at >= self._since):
                yield record

    def _record(self, line: str) -> Optional[Record]:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            return None
        step = _step(told.get(self._step)) if isinstance(told, dict) else None
        if step is None:
            return None
        data = told.get(self._values) if self._values else told
        found = ((str(name), _number(value)) for name, value in data.items()) if isinstance(data, dict) else ()
        values = {name: value for name, value in found if value is not None and name not in (self._step, "time")}
        at = _number(told.get("time"))
        return Record(step, values, at if at is not None and at > EARLIEST else None)


class WandbFile:
    """A W&B run's transaction log, read as it grows.

    Args:
        path: The ``.wandb`` file.
        prefix: What the system puts before its metrics' names.
        offset: Where to go on.
        has_steps: Whether a record with the system's own step was read before.
        step: The system's step at hand there.
    """

    def __init__(
        self,
        path: str,
        prefix: str = "",
        offset: int = _WANDB_HEAD,
        has_steps: bool = False,
        step: Optional[int] = None,
    ) -> None:
        self.path, self._prefix, self._offset, self._has_steps, self._step = path, prefix, offset, has_steps, step

    def state(self) -> Dict[str, Any]:
        """Its arguments, to go on where it stands."""
        return {"path": self.path, "offset": self._offset, "has_steps": self._has_steps, "step": self._step}

    def read(self, limit: Optional[int] = None) -> Iterator[Record]:
        """Yield what came since the last call, at most about ``limit`` bytes of it."""
        data, start, place = _since(self.path, self._offset), self._offset, 0
        parts: List[bytes] = []
        while limit is None or parts or place < limit:
            left = _BLOCK - (start + place) % _BLOCK
            # LevelDB splits no record's head: what is left of a block is zeros then
            if left < _RECORD_HEAD:
                place += left
                continue
            if place + _RECORD_HEAD > len(data):
                return
            # its checksum goes unread: what is still being written shows by its length
            _, length, kind = struct.unpack_from("<IHB", data, place)
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or length > left - _RECORD_HEAD:
                place, parts = place + left, []  # zeros behind a crash, or broken: the next block stands for itself
                continue
            body = data[place + _RECORD_HEAD : place + _RECORD_HEAD + length]
            if len(body) < length:
                return
            place += _RECORD_HEAD + length
            parts = [body] if kind in (_FULL, _FIRST) else [*parts, body]
            if kind in (_FULL, _LAST):
                self._offset = start + place
                record = self._record(b"".join(parts))
                if record is not None:
                    yield record

    def _record(self, data: bytes) -> Optional[Record]:
        history = _first(data, 2)
        if not isinstance(history, bytes):
            return None
        values = dict(filter(None, (_item(one) for number, one in _fields(history) if number == 1)))
        counted, at = values.pop("_step", None), values.pop("_timestamp", None)
        own = _step(next((values[name] for name in STEPS if name in values), None))
        if own is not None:
            self._has_steps, self._step = True, own
        step = self._step if self._has_steps else _step(counted)
        shown = {_bare(name, self._prefix): one for name, one in values.items() if not name.startswith("_")}
        return None if step is None else Record(step, shown, at, not self._has_steps)


class EventFile:
    """A file of TensorBoard's events, read as it grows.

    Args:
        path: The file.
        prefix: What the system puts before its metrics' names.
        offset: Where to go on.
    """

    def __init__(self, path: str, prefix: str = "", offset: int = 0) -> None:
        self.path, self._prefix, self._offset = path, prefix, offset

    def state(self) -> Dict[str, Any]:
        """Its arguments, to go on where it stands."""
        return {"path": self.path, "offset": self._offset}

    def read(self, limit: Optional[int] = None) -> Iterator[Record]:
        """Yield what came since the last call, at most about ``limit`` bytes of it."""
        data, start, place = _since(self.path, self._offset), self._offset, 0
        while place + _EVENT_HEAD <= len(data) and (limit is None or place < limit):
            (length,) = struct.unpack_from("<Q", data, place)
            end = place + _EVENT_HEAD + length + _EVENT_TAIL
            if length > LARGEST_RECORD or end > len(data):
                return
            event = data[place + _EVENT_HEAD : end - _EVENT_TAIL]
            place = end
            self._offset = start + place
            values = dict(self._values(event))
            # proto3 leaves out what is 0, such as the step of the first event
            step = _step(_first(event, 2) or 0)
            if values and step is not None:
                at = _first(event, 1)
                yield Record(step, values, at if isinstance(at, float) else None)

    def _values(self, event: bytes) -> Iterator[Tuple[str, float]]:
        summary = _first(event, 5)
        for number, one in _fields(summary) if isinstance(summary, bytes) else ():
            if number == 1 and isinstance(one, bytes):
                tag, value = _first(one, 1), _first(one, 2)
                if isinstance(tag, bytes) and isinstance(value, float):
                    yield _bare(tag.decode("utf-8", "replace"), self._prefix), value


def wandb_file(folder: str) -> Optional[str]:
    """The transaction log in the folder of a W&B run; None where there is none yet."""
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "run-*.wandb")))
    return found[0] if found and os.path.isfile(found[0]) else None


def event_files(folder: str) -> List[str]:
    """TensorBoard's files in ``folder``, which is one attempt's own, and in the folders in it."""
    inside = glob.escape(folder)
    found = [path for depth in ("", "*", "*/*") for path in glob.glob(os.path.join(inside, depth, "*tfevents*"))]
    return sorted(path for path in found if os.path.isfile(path))


def _since(path: str, offset: int) -> bytes:
    """What stands in ``path`` from ``offset`` on; of much, as much as a record may have."""
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(LARGEST_RECORD)
    except OSError:
        return b""


def _bare(name: str, prefix: str) -> str:
    return name[len(prefix) :] if prefix and name.startswith(prefix) else name


Field = Union[int, float, bytes]


def _fields(data: bytes) -> Iterator[Tuple[int, Field]]:
    """Number and value of each field of a protobuf message (https://protobuf.dev/programming-guides/encoding).

    Integers are taken as they are encoded; fields of 4 and 8 bytes are floats. A message that is torn ends there.
    """
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield number, value
        elif wire == 2:
            length, place = _varint(data, place)
            yield number, data[place : place + length]
            place += length
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if place + size > len(data):
                return
            yield number, struct.unpack_from("<d" if wire == 1 else "<f", data, place)[0]
            place += size
        else:
            return


def _varint(data: bytes, place: int) -> Tuple[int, int]:
    value = shift = 0
    # ten times seven bits hold the 64 of the longest number
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, place


def _first(data: bytes, wanted: int) -> Optional[Field]:
    return next((value for number, value in _fields(data) if number == wanted), None)


def _item(data: Field) -> Optional[Tuple[str, float]]:
    """One metric of W&B's history; None for what is no number."""
    if not isinstance(data, bytes):
        return None
    names: List[str] = []
    value: Optional[float] = None
    for number, one in _fields(data):
        if number in (1, 2) and isinstance(one, bytes):
            names.append(one.decode("utf-8", "replace"))
        elif number == 5 and isinstance(one, int):
            value = float((one >> 1) ^ -(one & 1))  # sint64: the sign is its last bit
        elif number == 6 and isinstance(one, float):
            value = one
        elif number in (8, 16) and isinstance(one, bytes):
            value = _json_number(one)
    return None if value is None or not names else ("/".join(filter(None, names)), value)


def _json_number(text: bytes) -> Optional[float]:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return _number(value)


def _number(value: Any) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None


def _step(value: Any) -> Optional[int]:
    """A step; None for what is none: NaN, or -1, which is a number beyond all steps in a file of TensorBoard."""
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None
