"""What a diagnosis is made of: evidence, cause, confidence, and remedies that say how safe they are."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Safety: TypeAlias = Literal["auto", "confirm", "never"]
"""``auto``: may be applied by one key after its difference was shown. ``confirm``: only after the cost was shown and
agreed to. ``never``: shown only; a person has to do it."""

Operation: TypeAlias = Literal["set", "times", "plus"]

EXCLUDE = "slurm.exclude"

SURE_ENOUGH = 0.6
"""Below this confidence a diagnosis offers nothing but to collect more evidence."""


class Evidence(Struct, frozen=True, kw_only=True):
    """One line that speaks for a diagnosis, free of control characters, with what is known about who wrote it."""

    file: str
    line: int
    """Counted from 1; 0 where the evidence is no line of a file."""
    text: str
    rank: str = ""
    actor: str = ""
    pid: str = ""
    node: str = ""
    """Host name or address."""
    gpu: str = ""
    """Index, PCI address or UUID, as the line had it."""
    time: str = ""
    repeated: int = 1
    """How many lines this one stands for (Ray folds equal lines of many processes into one)."""


class Change(Struct, frozen=True):
    """A change of one key of a layout: ``set`` it, multiply it (``times``) or add to it (``plus``)."""

    key: str
    operation: Operation
    value: bool | int | float | str
    least: float | None = None
    most: float | None = None
    own: str = ""
    """The change in the words of the system whose run it is; empty: in the layout's."""

    def applied_to(self, current: object) -> bool | int | float | str | list[str] | None:
        """Return the value after the change; None where there is nothing left to change (the bound is reached)."""
        if isinstance(current, list):
            return _with_word(current, self.value)
        if self.operation == "set" or isinstance(current, bool) or not isinstance(current, int | float):
            return None if current == self.value or self.operation != "set" else self.value
        assert isinstance(self.value, int | float)
        meant = current * self.value if self.operation == "times" else current + self.value
        wanted = max(meant, self.least) if self.least is not None else meant
        wanted = min(wanted, self.most) if self.most is not None else wanted
        # significant digits: learning rates are as small as 1e-7
        wanted = int(wanted) if isinstance(current, int) else float(f"{wanted:.4g}")
        # beyond its bound already: to go back to it would be the opposite of what helps
        return wanted if (wanted - current) * (meant - current) > 0 else None

    @property
    def shown(self) -> str:
        """The change for people: ``key=value``."""
        return self.own or f"{self.key}={self.in_words}"

    @property
    def in_words(self) -> bool | int | float | str:
        """The value for people and for JSON where the layout is not known: ``×0.5``, ``+0.1``, ``+node7``, or as is."""
        if self.operation == "times":
            return f"×{self.value:g}"
        if self.operation == "plus":
            return f"+{self.value}" if isinstance(self.value, str) else f"{self.value:+g}"
        return self.value


class Remedy(Struct, frozen=True, kw_only=True):
    """One thing to do: changes of the layout, commands, or only words.

    Attributes:
        id: Stable word for journals and keys, such as ``halve-micro-batch``.
        summary: One sentence.
        changes: Typed changes of the layout.
        commands: Commands for a shell, in order; words in angle brackets are for the user to fill in.
        safe: How far it may be applied without a person.
    """

    id: str
    summary: str
    changes: tuple[Change, ...] = ()
    commands: tuple[str, ...] = ()
    safe: Safety = "never"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Its changes as a resubmission takes them; none where one is not in the layout's own numbers."""
        others = self._others
        fitted = all(change.operation == "set" for change in others)
        return tuple(f"{change.key}={_value(change.value)}" for change in others) if fitted else ()

    @property
    def in_own_words(self) -> tuple[str, ...]:
        """The same in the words of the system whose run it is, also where they are no overrides."""
        return tuple(change.own for change in self._others if change.own)

    @property
    def exclude(self) -> tuple[str, ...]:
        """Nodes that it keeps away from."""
        named = (str(change.value) for change in self.changes if change.key == EXCLUDE)
        return tuple(node for text in named for word in text.strip("[]").split(",") if (node := word.strip()))

    @property
    def can_apply(self) -> bool:
        """Whether rltui can do it, by a resubmission that is previewed first."""
        return self.safe != "never" and bool(self.overrides or self.exclude)

    @property
    def _others(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.key != EXCLUDE)


class Diagnosis(Struct, frozen=True, kw_only=True):
    """One cause, or one consequence (``secondary``) of another cause in the same list."""

    id: str
    confidence: float
    summary: str
    secondary: bool = False
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def _value(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_word(current: list[object], word: object) -> list[str] | None:
    words = [str(item) for item in current]
    return None if str(word) in words else [*words, str(word)]
