"""The words of which a framework's start-up assertions are written: numbers, their arithmetic, and conditions.

All of them know three answers. A value that a script does not show, and whose default differs between versions, is
None; what is made of it is None too, and an assertion that is not known to fail says nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rltui.importers.arguments import Settings
from rltui.importers.facts import Facts

if TYPE_CHECKING:
    Condition = Callable[["Asked"], "bool | None"]
    Number = int | float


class Asked(Struct, frozen=True):
    """What a script asks of its framework.

    Attributes:
        settings: The training's settings under the framework's own names.
        facts: What they come to: GPUs, engines, model.
        place: File and line of a setting, by its name.
    """

    settings: Settings
    facts: Facts
    place: Callable[[str], tuple[str, int]]

    def with_setting(self, name: str, value: Number) -> Asked:
        """The same script with one setting changed."""
        old = self.settings
        values = {**old.values, name: [value]}
        return replace(self, settings=Settings(values, old.is_open, old.is_cut))


class Term:
    """A number of a script: a setting, a count that follows from several, or arithmetic of them."""

    def value(self, asked: Asked) -> Number | None:
        """The number; None where it is not known."""
        raise NotImplementedError

    def words(self, asked: Asked) -> str:
        """The number with its name, such as ``data.train_batch_size 60``."""
        raise NotImplementedError

    def described(self, asked: Asked) -> str:
        """``words``, with the result where there is arithmetic."""
        return self.words(asked)

    def setting(self) -> Setting | None:
        """The first setting of which the number is made."""
        return None

    def __mul__(self, other: Term) -> Term:
        return _Arithmetic(self, "×", other)

    def __add__(self, other: Term) -> Term:
        return _Arithmetic(self, "+", other)

    def __floordiv__(self, other: Term) -> Term:
        return _Arithmetic(self, "÷", other)


class Setting(Term):
    """A number that the script sets under one of several names.

    Args:
        names: The framework's name first, then older ones.
        default: What the framework takes where the script is silent, if every version takes the same; else None.
    """

    def __init__(self, *names: str, default: Number | None = None) -> None:
        self.names = names
        self.default = default

    def setting(self) -> Setting:
        """The term as a setting, which it is already; other terms are made of one."""
        return self

    def name(self, asked: Asked) -> str:
        """The name that the script uses, or else the framework's."""
        return next((name for name in self.names if name in asked.settings.values), self.names[0])

    def value(self, asked: Asked) -> Number | None:
        """The number as set, or the default."""
        found = asked.settings.number(*self.names, default=self.default)
        return int(found) if found is not None and found == int(found) else found

    def text(self, asked: Asked) -> str:
        """The word as set; empty where the script is silent, or says that there is none."""
        said = asked.settings.text(*self.names)
        return "" if said.lower() in ("null", "none", "~") else said

    def words(self, asked: Asked) -> str:
        """Name and number; a default says that it is one."""
        silent = "" if asked.settings.has(*self.names) else " (default)"
        return f"{self.name(asked)} {self.value(asked)}{silent}"


class Constant(Term):
    """A number that the framework itself has."""

    def __init__(self, number: Number) -> None:
        self.number = number

    def value(self, asked: Asked) -> Number | None:  # noqa: ARG002 (as every term is asked)
        """The number, whatever the script says."""
        return self.number

    def words(self, asked: Asked) -> str:  # noqa: ARG002 (as every term is asked)
        """The number as it stands in the refused comparison."""
        return str(self.number)


class Fact(Term):
    """A count that follows from several settings, by its name in ``Facts``.

    Args:
        name: The attribute.
        unit: What is counted, for people.
    """

    def __init__(self, name: str, unit: str) -> None:
        self.name = name
        self.unit = unit

    def value(self, asked: Asked) -> Number | None:
        """The count that the script or its model gives; None where neither says."""
        found = getattr(asked.facts, self.name)
        return found if isinstance(found, int) else None

    def words(self, asked: Asked) -> str:
        """Count and unit, such as ``8 GPUs``."""
        return f"{self.value(asked)} {self.unit}"


class Least(Setting):
    """The smallest of several settings, where the script sets any; it goes by that setting's name."""

    def name(self, asked: Asked) -> str:
        """The name of the smallest."""
        known = {name: found for name in self.names if (found := asked.settings.number(name)) is not None}
        return min(known, key=known.__getitem__, default=self.names[0])

    def value(self, asked: Asked) -> Number | None:
        """The smallest number that any of the settings is set to."""
        return Setting(self.name(asked)).value(asked)


class Shape(Fact):
    """The same of the shape of the model that is trained, by its name in the table of models."""

    def value(self, asked: Asked) -> Number | None:
        """The number; None for a model that the table does not have."""
        from rltui.hardware.models import known_model

        model = known_model(asked.facts.model) if asked.facts.model else None
        found = getattr(model, self.name, None)
        return found if isinstance(found, int) and found else None

    def words(self, asked: Asked) -> str:
        """The number and whose it is."""
        return f"{self.value(asked)} {self.unit} of {asked.facts.model}"


HEADS = Shape("heads", "attention heads")
LAYERS = Shape("layers", "layers")


class _Arithmetic(Term):
    def __init__(self, left: Term, sign: str, right: Term) -> None:
        self.left, self.sign, self.right = left, sign, right

    def setting(self) -> Setting | None:
        return self.left.setting() or self.right.setting()

    def value(self, asked: Asked) -> Number | None:
        left, right = self.left.value(asked), self.right.value(asked)
        if left is None or right is None:
            return None
        if self.sign == "÷":
            return left // right if right else None
        return left * right if self.sign == "×" else left + right

    def words(self, asked: Asked) -> str:
        """The arithmetic without factors of one, which say nothing."""
        left, right = self.left.words(asked), self.right.words(asked)
        if self.sign != "+" and self.right.value(asked) == 1:
            return left
        if self.sign == "×" and self.left.value(asked) == 1:
            return right
        inner = f"({left})" if self.sign != "+" and isinstance(self.left, _Arithmetic) and "+" in left else left
        return f"{inner} {self.sign} {f'({right})' if ' × ' in right or ' + ' in right else right}"

    def described(self, asked: Asked) -> str:
        words = self.words(asked)
        return f"{words} = {self.value(asked)}" if any(sign in words for sign in (" × ", " + ", " ÷ ")) else words


def on(*names: str, default: bool | None = False) -> Condition:
    """The switch is on; ``default`` (None: differs between versions) where the script is silent."""
    return lambda asked: asked.settings.flag(*names, default=default)


def off(*names: str, default: bool | None = False) -> Condition:
    """The switch is off; ``default`` as for ``on``."""

    def is_off(asked: Asked) -> bool | None:
        found = asked.settings.flag(*names, default=default)
        return None if found is None else not found

    return is_off


def given(*names: str) -> Condition:
    """The script sets it to something."""
    return lambda asked: any(_is_something(asked, name) for name in names)


def absent(*names: str) -> Condition:
    """The script does not set it; not known where some of its words come from elsewhere."""

    def is_absent(asked: Asked) -> bool | None:
        if any(_is_something(asked, name) for name in names):
            return False
        return None if asked.settings.is_open or asked.settings.is_cut else True

    return is_absent


def _is_something(asked: Asked, name: str) -> bool:
    words = asked.settings.words(name)
    return asked.settings.has(name) and [str(word).lower() for word in words] not in (["null"], ["none"], ["~"])


def one_of(name: str, *values: str, default: str = "") -> Condition:
    """The setting is one of ``values``; ``default`` where the script is silent."""

    def is_one(asked: Asked) -> bool | None:
        silent = not asked.settings.has(name)
        text = ("" if asked.settings.is_cut else default) if silent else asked.settings.text(name)
        return text.lower() in values if text else None

    return is_one


def _comparing(holds: Callable[[Number, Number], bool]) -> Callable[[Term, Number | Term], Condition]:
    """What makes conditions that hold a number against a bound, which may be another of the script's."""

    def condition(term: Term, bound: Number | Term) -> Condition:
        def is_met(asked: Asked) -> bool | None:
            found, limit = term.value(asked), bound.value(asked) if isinstance(bound, Term) else bound
            return None if found is None or limit is None else holds(found, limit)

        return is_met

    return condition


above = _comparing(operator.gt)
"""The number is larger than a bound."""

below = _comparing(operator.lt)
"""The number is smaller than a bound."""

not_below = _comparing(operator.ge)
"""The number is known and not smaller than a bound."""

at_most = _comparing(operator.le)
"""The number is known and not larger than a bound."""

exactly = _comparing(operator.eq)
"""The number is this one."""

other_than = _comparing(operator.ne)
"""The number is known and another one."""


def fact(name: str, value: object) -> Condition:
    """What follows from the script is ``value``, such as that engines and trainer share their GPUs."""

    def is_so(asked: Asked) -> bool | None:
        found = getattr(asked.facts, name)
        return None if found is None else found == value

    return is_so


def program(*names: str) -> Condition:
    """The launcher starts one of these: a command by its name, a file by a part of its path that ends in ``/``."""

    def is_one(asked: Asked) -> bool | None:
        started = asked.facts.program
        last = started.rsplit("/", 1)[-1]
        return any(name in f"/{started}" if name.endswith("/") else name == last for name in names)

    return is_one


def family(word: str) -> Condition:
    """The model that is trained has the word in its name; not known where the script does not name it."""
    return lambda asked: word in asked.facts.model.lower() if asked.facts.model else None


def either(*conditions: Condition) -> Condition:
    """One of the conditions is met."""

    def is_met(asked: Asked) -> bool | None:
        answers = [condition(asked) for condition in conditions]
        return True if True in answers else None if None in answers else False

    return is_met


def neither(*conditions: Condition) -> Condition:
    """None of the conditions is met."""

    def is_none(asked: Asked) -> bool | None:
        found = either(*conditions)(asked)
        return None if found is None else not found

    return is_none


def under(prefix: str) -> Condition:
    """The script sets something whose name begins so; not known where a file may set it."""

    def is_under(asked: Asked) -> bool | None:
        return any(name.startswith(prefix) for name in asked.settings.values) or (
            None if asked.settings.is_cut else False
        )

    return is_under


def met(conditions: tuple[Condition, ...], asked: Asked) -> bool:
    """Whether all conditions are known to be met."""
    return all(condition(asked) is True for condition in conditions)
