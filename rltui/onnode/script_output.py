"""What a training script of another system says of itself, turned into the attempt's stage and metrics.

A dialect (``rltui/dialects``) says in patterns how the system words its progress; nothing of the system is imported or
asked. What is read: the attempt's ``out.log`` from where the script began, and a file of JSON lines where the system
writes one. What the source does not say is left out, never guessed.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import ast
import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol

from rltui.onnode import rundir

LONGEST_LINE = 1 << 20
LONGEST_BLOCK = 400
"""Lines of a dictionary that is printed over several."""
CHUNK = 1 << 22
UNREAD = {"offset": 0, "inode": 0, "rest": ""}
"""Where a reader stands that has read nothing."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAY_PREFIX = re.compile(r"^\([\w.:<>/ -]+? (?:pid|ip)=[^)]*\) ?")
_PAIR = re.compile(
    r"([A-Za-z_][\w/@.()+\- ]*?)\s*[:=]\s*([-+]?(?:\d[\d,_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf))(?![\w.:])"
)
_WRAPPED_NUMBER = re.compile(
    r"\b(?:np|numpy|torch)?\.?(?:float|int|tensor)\d*\(([^()]*?)(?:, ?dtype=[^()]*|, ?device=[^()]*)?\)"
)

_BARE_NAN = re.compile(r"(?<=[:,\s])(-?(?:nan|inf))(?=\s*[,}])")


class Lines(Protocol):
    """What a follower reads."""

    def read(self, limit: Optional[int] = None) -> Iterator[str]:
        """Yield the lines that came since the last call, at most about ``limit`` bytes of them."""


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

    def state(self) -> Dict[str, Any]:
        """Where it stands, as plain values from which ``restore`` lets another reader go on."""
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
            return
        with open(self.path, "rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_size < self._offset or (self._inode and found.st_ino != self._inode):
                self._offset, self._rest = 0, b""
            self._inode = found.st_ino
            stream.seek(self._offset)
            until = None if limit is None else self._offset + limit
            while until is None or self._offset < until:
                data = stream.read(CHUNK)
                if not data:
                    return
                self._offset += len(data)
                lines = self._ends.split(self._rest + data)
                self._rest = lines.pop()[-LONGEST_LINE:]
                for line in lines:
                    yield line[:LONGEST_LINE].decode("utf-8", "replace")


_KEPT = ("_file_speaks", "_stage", "_block", "step", "steps", "_detailed", "_values", "_is_new")
"""What a follower knows beside its patterns and the places of its readers."""


class Follower:
    """Reads what a script says and keeps ``stage.json`` and ``metrics.jsonl`` of its attempt up to date.

    Args:
        attempt: The attempt's directory.
        dialect: The dialect as ``rltui.dialects`` gives it, as plain values.
        log: What the script's output is read with.
        metrics: What the system's own file of metrics is read with; None where it has none.
        clock: The time, epoch seconds.
        stage: Where it stands before it says so.
    """

    def __init__(
        self,
        attempt: str,
        dialect: Dict[str, Any],
        log: Lines,
        metrics: Optional[LineReader] = None,
        clock: Callable[[], float] = time.time,
        stage: str = "loading",
    ) -> None:
        self.attempt, self._log, self._metrics, self._clock = attempt, log, metrics, clock
        self._progress = [(re.compile(one["pattern"]), one["values"]) for one in dialect["progress"]]
        self._details = [(re.compile(one["pattern"]), one["values"], one["is_step"]) for one in dialect["details"]]
        self._stages = [(re.compile(one["pattern"]), one["stage"]) for one in dialect["stages"]]
        self._step_key, self._data_key = dialect["metrics"]["step"], dialect["metrics"]["values"]
        self._aliases: Dict[str, str] = dialect["aliases"]
        self._file_speaks = False
        self._stage = stage
        self._block: Optional[List[str]] = None
        self.step: Optional[int] = None
        self.steps: Optional[int] = None
        self._detailed = 0
        self._values: Dict[str, float] = {}
        self._is_new = False

    def state(self) -> Dict[str, Any]:
        """What it knows, as plain values from which ``restore`` lets another follower go on."""
        return {name: getattr(self, name) for name in _KEPT}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on with what the follower knew that said ``state``."""
        for name in _KEPT:
            setattr(self, name, state[name])

    def look(self, limit: Optional[int] = None) -> None:
        """Read what is new, at most about ``limit`` bytes of each source, and write down what it means."""
        shown = (self._stage, self.step, self.steps)
        if self._metrics is not None:  # first, as the console then need not be taken at its word
            for line in self._metrics.read(limit):
                self._take_record(line)
        for line in self._log.read(limit):
            self.take(line)
        self._write_values()
        if (self._stage, self.step, self.steps) != shown:
            rundir.write_stage(self.attempt, self._stage, step=self.step, steps=self.steps)

    def take(self, line: str) -> None:
        """Take one line of the script's output."""
        text = _RAY_PREFIX.sub("", _ESCAPE.sub("", line)).rstrip()
        if self._block is not None:
            self._take_block(text)
            return
        for pattern, kind in self._progress:
            match = pattern.search(text)
            if match is not None:
                self._take_progress(match, kind)
                return
        for pattern, kind, is_step in self._details:
            match = pattern.search(text)
            if match is not None:
                self._take_detail(match, kind, is_step)
        for pattern, stage in self._stages:
            if pattern.search(text) and (self.step is None or stage in ("training", "saving")):
                self._stage = stage

    def _take_progress(self, match: "re.Match[str]", kind: str) -> None:
        named = match.groupdict()
        steps, step = _whole(named.pop("steps", None)), _whole(named.pop("step", None))
        self.steps = self.steps if steps is None else steps
        if step is not None:
            self._begin(step)
        self._take_values(named, kind)

    def _take_detail(self, match: "re.Match[str]", kind: str, is_step: bool) -> None:
        """Values of the step at hand; where each such line is a step, of the next one if the number did not move."""
        if is_step:
            if self.step is None or self.step <= self._detailed:
                self._begin(max(self._detailed, self.step or 0) + 1)
            self._detailed = self.step or 0
        if self.step is not None:
            self._take_values(match.groupdict(), kind)

    def _take_values(self, named: Dict[str, Optional[str]], kind: str) -> None:
        text = named.pop("values", None) or ""
        if kind == "block":
            self._block = [text] if text else []
            self._close_block()
            return
        found = parse_values(text, kind)
        name, value = named.pop("name", None), named.pop("value", None)
        if name:
            named[name.strip()] = value
        for key, word in named.items():
            number = _number(word)
            if number is not None:
                found[str(key).replace("__", "/")] = number
        self._add(found)

    def _take_block(self, text: str) -> None:
        assert self._block is not None
        self._block.append(text)
        self._close_block()

    def _close_block(self) -> None:
        text = "\n".join(self._block or ())
        if "{" in text and text.count("{") <= text.count("}"):
            self._add(parse_values(text[text.index("{") :], "python"))
            self._block = None
        elif len(self._block or ()) > LONGEST_BLOCK or (len(self._block or ()) > 2 and "{" not in text):
            self._block = None

    def _begin(self, step: int) -> None:
        if step != self.step:
            self._write_values()
            self.step, self._values = step, {}
        self._stage = "training"

    def _add(self, values: Dict[str, float]) -> None:
        if values and not self._file_speaks and self.step is not None:
            self._values.update((self._aliases.get(name, name), value) for name, value in values.items())
            self._is_new = True

    def _take_record(self, line: str) -> None:
        """Take one line of the system's own file, which tells more than its console does."""
        try:
            record = json.loads(line)
        except ValueError:
            return
        step = _whole(record.get(self._step_key)) if isinstance(record, dict) else None
        if step is None:
            return
        if not self._file_speaks:
            self._file_speaks, self._values = True, {}
        self._begin(step)
        data = record.get(self._data_key, {}) if self._data_key else record
        for name, value in data.items() if isinstance(data, dict) else ():
            number = _number(value)
            if number is not None and name != self._step_key:
                self._values[self._aliases.get(str(name), str(name))] = number
                self._is_new = True

    def _write_values(self) -> None:
        if self._is_new:
            # reserved names go last: a metric of the system that is called "time" is not when the step ended
            record = {**self._values, "step": self.step, "time": self._clock()}
            rundir.append_line(os.path.join(self.attempt, rundir.METRICS), record)
            self._is_new = False


def parse_values(text: str, kind: str) -> Dict[str, float]:
    """The numbers in ``text``.

    Args:
        text: ``a/b:1.5 - c:2`` for ``pairs``; ``{'a': 1.5, 'c': '2'}`` for ``python`` and ``json``.
        kind: How it is worded; empty: it holds no values.
    """
    text = _WRAPPED_NUMBER.sub(r"\1", text)
    if kind == "pairs":
        pairs = ((name.strip(" -|"), _number(value)) for name, value in _PAIR.findall(text))
        return {name: value for name, value in pairs if value is not None}
    if kind not in ("python", "json"):
        return {}
    try:
        found = json.loads(text) if kind == "json" else ast.literal_eval(_BARE_NAN.sub(r"'\1'", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    numbers = ((str(name), _number(value)) for name, value in found.items())
    return {name: value for name, value in numbers if value is not None}


def _number(value: Any) -> Optional[float]:
    """A number, also one in a text such as ``1,234.5``; None for what is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        return None
    try:
        return float(value.replace(",", "").replace("_", ""))
    except ValueError:
        return None


def _whole(value: Any) -> Optional[int]:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None


def metrics_file(dialect: Dict[str, Any], places: Dict[str, str]) -> Optional[LineReader]:
    """The reader of the system's own file of metrics; None where it writes none."""
    path = fill(dialect["metrics"]["file"], places)
    return LineReader(path) if path else None


def fill(text: str, places: Dict[str, str]) -> str:
    """``text`` with ``{attempt}`` and the like filled in; other braces stay."""
    for name, value in places.items():
        text = text.replace("{%s}" % name, value)
    return text
