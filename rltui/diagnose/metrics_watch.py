"""Numbers of training steps as the log passes by: which became NaN, for how long, and whether they came back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.diagnose.lines import Line

MOST_SERIES = 256
PERSISTENT_STEPS = 3
"""A single NaN is how mixed precision finds its scale; three in a row are not."""

_METRIC = re.compile(
    r"(?<![\w.])(?P<name>(?:[\w.-]+/){0,3}[\w.-]{0,40}?(?:grad[_ ]?norm|"
    r"loss)\w{0,40}(?:/mean)?)['\"]?\s{0,3}[:=]\s{0,3}['\"]?"
    r"(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[-+]?\d+)?))(?![\w.])",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<![\w./-])([A-Za-z_][\w./-]{0,60})['\"]?\s?[:=]")
_NOT_METRICS = re.compile(r"(?i)loss_?scale|loss_?(?:fn|type|agg|mode|coef|weight)|lossless|kl_loss_coef|stop_loss")

_RECORDS = re.compile(r"(?i)(?<![a-z])(?:best|lowest)(?![a-z])")
"""The best value so far is infinite until there is a first one."""

_OF_EVALUATION = re.compile(r"(?i)(?<![a-z])(?:eval|val|valid|validation|test)(?:uation)?(?![a-z])")

_Key: TypeAlias = "tuple[tuple[str, str, str], str, frozenset[str]]"


class Lapse(Struct, frozen=True):
    """A metric that was not finite for some steps in a row.

    Attributes:
        line: Where it began.
        position: Order of that line among all lines.
        length: Steps in a row.
        is_open: Whether no finite value followed.
    """

    name: str
    value: str
    line: Line
    position: int
    length: int
    is_open: bool

    @property
    def confidence(self) -> float:
        """How far the lapse speaks for a failure; 0 where it is normal."""
        if _OF_EVALUATION.search(self.name) and self.length < PERSISTENT_STEPS:
            return 0.0  # an evaluation without samples averages nothing
        if self.length >= PERSISTENT_STEPS:
            return 0.85 if self.is_open else 0.7
        if not self.is_open:
            return 0.0
        return 0.7 if "loss" in self.name.lower() else 0.6


class MetricsWatch:
    """Follows the metrics of one source; costs nothing until the first one that is not finite.

    Attributes:
        is_open: Whether any metric is not finite at the moment, so that finite values have to be watched for.
    """

    def __init__(self) -> None:
        self._open: dict[_Key, Lapse] = {}
        self._closed: list[Lapse] = []

    @property
    def is_open(self) -> bool:
        """Whether any metric is not finite at the moment."""
        return bool(self._open)

    def feed(self, line: Line, position: int) -> None:
        """Take a line in which metrics may be.

        Lines of one run name the same values; a line that names others, even with the same metric, is another series.
        """
        shape = frozenset(_NAMES.findall(line.text))
        for match in _METRIC.finditer(line.text):
            name, value = match["name"], match["value"].lower()
            if _NOT_METRICS.search(name) or ("inf" in value and _RECORDS.search(name)):
                continue
            key = (line.stream, name, shape)
            lapse = self._open.get(key)
            if value.lstrip("+-")[0] in "ni":
                self._note(key, lapse, Lapse(name, value, line, position, 1, True))
            elif lapse is not None:
                del self._open[key]
                if lapse.length >= PERSISTENT_STEPS and len(self._closed) < MOST_SERIES:
                    self._closed.append(lapse)

    def _note(self, key: _Key, lapse: Lapse | None, fresh: Lapse) -> None:
        if lapse is not None:
            self._open[key] = Lapse(lapse.name, lapse.value, lapse.line, lapse.position, lapse.length + 1, True)
        elif len(self._open) < MOST_SERIES:
            self._open[key] = fresh

    def lapses(self) -> list[Lapse]:
        """Return all lapses that are no normal hiccup, worst first."""
        closed = [Lapse(one.name, one.value, one.line, one.position, one.length, False) for one in self._closed]
        telling = [one for one in (*self._open.values(), *closed) if one.confidence]
        return sorted(telling, key=lambda one: (-one.confidence, one.position))
