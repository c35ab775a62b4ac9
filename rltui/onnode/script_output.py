"""What a training script of another system says of itself, turned into the attempt's stage and metrics.

A dialect (``rltui/dialects``) says in patterns how the system words its progress; nothing of the system is imported or
asked. What is read: the attempt's ``out.log`` from where the script began, and the files of ``metric_sources``. What
the source does not say is left out, never guessed.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import ast
import json
import os
import re
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from rltui.onnode import rundir
from rltui.onnode.line_reader import Lines
from rltui.onnode.metric_files import Record
from rltui.onnode.metric_sources import CONSOLE, COUNTED, Sources, StepLines

LONGEST_BLOCK = 400
"""Lines of a dictionary that is printed over several."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RAY_PREFIX = re.compile(r"^\([\w.:<>/ -]+? (?:pid|ip)=[^)]*\) ?")
_PAIRED = re.compile(r"[:=]\s*([-+]?(?:\d[\d,_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|nan|inf))(?![\w.:])")
"""The value of a pair, with what stands between it and its name."""
_BARE_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|nan|inf)")
_NAME = re.compile(r"[A-Za-z_][\w/@.\-]*")
MOST_WORDS = 3
"""Words of a name before a number without a mark; more of them are a sentence."""
_NOT_IN_NAMES, _LETTER = re.compile(r"[^\w/@.()+\- ]"), re.compile("[A-Za-z_]")
_WRAPPED_NUMBER = re.compile(
    r"\b(?:np|numpy|torch)?\.?(?:float|int|tensor)\d*\(([^()]*?)(?:, ?dtype=[^()]*|, ?device=[^()]*)?\)"
)

_BARE_NAN = re.compile(r"(?<=[:,\s])(-?(?:nan|inf))(?=\s*[,}])")


MOST_EARLY = 2
"""Lines of a step that are kept until its number is told; where more come, nobody tells it, and they are counted."""

_KEPT = ("_stage", "_block", "step", "steps", "_detailed", "_is_told", "_early", "_shown")
"""What a follower knows beside its patterns and what its parts know."""


class Follower:
    """Reads what a script says and keeps ``stage.json`` and ``metrics.jsonl`` of its attempt up to date.

    Args:
        attempt: The attempt's directory.
        dialect: The dialect as ``rltui.dialects`` gives it, as plain values.
        log: What the script's output is read with.
        sources: The files that tell more than its output; None: there are none.
        clock: The time, epoch seconds.
        stage: Where it stands before it says so.
    """

    def __init__(
        self,
        attempt: str,
        dialect: Dict[str, Any],
        log: Lines,
        sources: Optional[Sources] = None,
        clock: Callable[[], float] = time.time,
        stage: str = "loading",
    ) -> None:
        self.attempt, self._log, self._clock = attempt, log, clock
        self._sources = sources or Sources(dialect["metrics"])
        self._lines = StepLines(os.path.join(attempt, rundir.METRICS))
        self._progress = [(re.compile(one["pattern"]), one["values"]) for one in dialect["progress"]]
        self._details = [(re.compile(one["pattern"]), one["values"], one["is_step"]) for one in dialect["details"]]
        self._stages = [(re.compile(one["pattern"]), one["stage"]) for one in dialect["stages"]]
        self._aliases: Dict[str, str] = dialect["aliases"]
        self._quotients: Dict[str, List[str]] = dialect.get("quotients", {})  # attempts of before have none
        self._status = re.compile(dialect["status"]) if dialect.get("status") else None
        self._stage = stage
        self._block: Optional[List[str]] = None
        self.step: Optional[int] = None
        self.steps: Optional[int] = None
        self._detailed = 0
        self._early: List[List[Any]] = []
        self._is_told = False
        """Whether the console tells steps."""
        self._shown: List[Any] = [stage, "", None, None]

    @property
    def reached(self) -> "Tuple[Optional[int], Optional[int]]":
        """The newest step and the number of steps, also where what was printed is not read up to there."""
        return self._shown[2], self._shown[3]

    def state(self) -> Dict[str, Any]:
        """What it knows, as plain values from which ``restore`` lets another follower go on."""
        own = {name: getattr(self, name) for name in _KEPT}
        return {**own, "sources": self._sources.state(), "lines": self._lines.state()}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on with what the follower knew that said ``state``."""
        for name in _KEPT:
            setattr(self, name, state.get(name, getattr(self, name)))
        self._sources.restore(state["sources"])
        self._lines.restore(state["lines"])

    def look(self, limit: Optional[int] = None, is_last: bool = False) -> None:
        """Read what is new and write down what it means.

        Args:
            limit: About how many bytes of each source to read at most; the next look goes on there.
            is_last: Whether nothing more will be written by whoever is followed.
        """
        for line in self._log.read(limit):
            self.take(line)
        for rank, record in self._sources.read_all() if is_last else self._sources.read(limit):
            self._take_record(rank, record)
        if is_last:
            self._place_early(len(self._early))
        self._lines.write()
        ahead = self._newest(self._log.unread_end())
        stage = "training" if ahead else self._stage
        detail = "metrics read to step %d" % (self.step or 0) if ahead else ""
        step, steps = ahead or (self.step, self.steps)
        if [stage, detail, step, steps] != self._shown:
            rundir.write_stage(self.attempt, stage, detail, step, steps)
            self._shown = [stage, detail, step, steps]

    def _newest(self, lines: List[str]) -> Optional[Tuple[Optional[int], Optional[int]]]:
        """The last step that ``lines`` tell of, and of how many; None where they tell of none."""
        for line in reversed(lines):
            for pattern, _ in self._progress:
                match = pattern.search(_bare(line))
                named = match.groupdict() if match is not None else {}
                step = _whole(named.get("step"))
                if step is not None:
                    return step, _whole(named.get("steps")) or self.steps
        return None

    def take(self, line: str) -> None:
        """Take one line of the script's output."""
        text = _bare(line)
        self._sources.heard(text)
        if self._status is not None and (match := self._status.search(text)):
            self._note_status(match.group("host"), match.group("port"))
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

    def _note_status(self, host: str, port: str) -> None:
        """Write down where the system tells of its queues; it is asked on its own node only, over the loopback."""
        endpoint = {"schema": rundir.SCHEMA, "url": "http://127.0.0.1:%s" % port, "token": "", "pid": 0}
        rundir.write_json(os.path.join(self.attempt, rundir.STATUS_ENDPOINT), {**endpoint, "host": host.split(".")[0]})

    def _take_progress(self, match: "re.Match[str]", kind: str) -> None:
        named = match.groupdict()
        steps, step = _whole(named.pop("steps", None)), _whole(named.pop("step", None))
        self.steps = self.steps if steps is None else steps
        if step is not None:
            if step:
                self._place_early(step)
            self._begin(step)
        self._take_values(named, kind)

    def _take_detail(self, match: "re.Match[str]", kind: str, is_step: bool) -> None:
        """Values of the step at hand; where each such line is a step, of the next one if the number did not move.

        A run that goes on from a checkpoint may say its first numbers before it has said which step they are of.
        """
        if is_step and not self.step and len(self._early) < MOST_EARLY:
            self._early.append([match.groupdict(), kind])
            return
        if is_step:
            self._place_early(len(self._early))
            if self.step is None or self.step <= self._detailed:
                self._begin(max(self._detailed, self.step or 0) + 1)
            self._detailed = self.step or 0
        if self.step is not None:
            self._take_values(match.groupdict(), kind)

    def _place_early(self, last: int) -> None:
        """Give numbers that came before their step was told to the steps up to ``last``, one each."""
        early, self._early = self._early, []
        for number, (named, kind) in enumerate(early, start=last - len(early) + 1):
            if number > 0:
                self._begin(number)
                self._detailed = number
                self._take_values(named, kind)

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
        if not self._is_told:
            self._is_told = True
            self._lines.forget(0, COUNTED)
        self.step, self._stage = step, "training"

    def _add(self, values: Dict[str, float]) -> None:
        if values and self.step is not None:
            self._lines.add(CONSOLE, self.step, self._named(values), self._clock())

    def _take_record(self, rank: int, record: Record) -> None:
        """Take what a file tells of a step; it may be ahead of the console, or behind it."""
        if rank == COUNTED and self._is_told:
            return
        if self.step is None or record.step > self.step or not self._is_told:
            self._stage = self._stage if record.step == self.step else "training"
            self.step = record.step
        if record.values:
            at = self._clock() if record.at is None else record.at
            self._lines.add(rank, record.step, self._named(record.values), at)

    def _named(self, values: Dict[str, float]) -> Dict[str, float]:
        told = {self._aliases.get(name, name): value for name, value in values.items()}
        for name, (dividend, divisor) in self._quotients.items():
            if dividend in values and values.get(divisor, 0.0) > 0.0:
                told[name] = values[dividend] / values[divisor]
        return told


def _bare(line: str) -> str:
    return _RAY_PREFIX.sub("", _ESCAPE.sub("", line)).rstrip()


def parse_values(text: str, kind: str) -> Dict[str, float]:
    """The numbers in ``text``.

    Args:
        text: ``a/b:1.5 - c:2`` for ``pairs``, for ``words`` also ``a/b 1.5, c 2``; ``{'a': 1.5, 'c': '2'}`` for
            ``python`` and ``json``.
        kind: How it is worded; empty: it holds no values.
    """
    text = _WRAPPED_NUMBER.sub(r"\1", text)
    if kind in ("pairs", "words"):
        pairs = ((name.strip(" -|"), _number(value)) for name, value in _pairs(text))
        told = {name: value for name, value in pairs if value is not None}
        return told or (dict(_worded(text)) if kind == "words" else {})
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


def _pairs(text: str) -> Iterator[Tuple[str, str]]:
    """Names and values as in ``a/b:1.5 - c = 2``, in a time that grows with the text and not with its square."""
    behind = 0
    for found in _PAIRED.finditer(text):
        words = _NOT_IN_NAMES.split(text[behind : found.start()].rstrip())[-1]
        first = _LETTER.search(words)
        behind = found.start() if first is None else found.end()  # its mark is in no name
        if first is not None:
            yield words[first.start() :], found.group(1)


def _worded(text: str) -> Iterator[Tuple[str, float]]:
    """Numbers that stand behind their names without a mark; the word behind a number without a name is its unit."""
    name: List[str] = []
    is_unit = False
    for token in re.split(r"\s+|[,;|()\[\]]+", text):
        if _BARE_NUMBER.fullmatch(token):
            value = _number(token)
            if 0 < len(name) <= MOST_WORDS and value is not None:
                yield " ".join(name), value
            is_unit = not name
            name = []
        elif not is_unit and _NAME.fullmatch(token):
            name.append(token)
        else:
            name, is_unit = [], token[:1].isdigit()  # 2.3k, 98%


def _number(value: Any) -> Optional[float]:
    """A number, also one in a text such as ``1,234.5``; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value.replace(",", "").replace("_", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None


def _whole(value: Any) -> Optional[int]:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None


def fill(text: str, places: Dict[str, str]) -> str:
    """``text`` with ``{attempt}`` and the like filled in; other braces stay."""
    for name, value in places.items():
        text = text.replace("{%s}" % name, value)
    return text
