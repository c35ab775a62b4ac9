"""How a rule is written: a function with a code, whose docstring is its ``explain`` page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from rltui.check.findings import Finding, Severity
from rltui.layout.roles import SERVED
from rltui.layout.scalars import LARGEST

if TYPE_CHECKING:
    from rltui.layout.load import LoadedLayout
    from rltui.layout.schema import Layout
    from rltui.placement.simulate import Placement

    Predicate = Callable[[Any], "Iterator[Trouble]"]


_LONG_NUMBER = re.compile(r"\d{10,}")


class Placed(Protocol):
    """What rules look at knows where its keys stand."""

    @property
    def place(self) -> Callable[[str], tuple[str, int]]:
        """File and line of a key."""


class Trouble(Struct, frozen=True):
    """What a predicate found: the sentence with its numbers, where, and the overrides that would settle it."""

    message: str
    key: str
    fix: tuple[str, ...] = ()


def settled_by(message: str, key: str, value: object) -> Trouble:
    """Trouble with a key that another value of the same key settles.

    Args:
        message: The sentence with its numbers.
        key: The key.
        value: What it should be, as YAML has it.
    """
    return Trouble(message, key, (f"{key}={value}",))


class Subject(Struct, frozen=True):
    """What a rule looks at."""

    loaded: LoadedLayout
    placement: Placement

    @property
    def layout(self) -> Layout:
        """The layout that is checked, typed; ``loaded`` knows where each key was set."""
        return self.loaded.layout

    def place(self, key: str) -> tuple[str, int]:
        """File and line of a key."""
        return self.loaded.place(key)

    def roles(self, *names: str) -> Iterator[tuple[str, Any]]:
        """Those roles of ``names`` that the layout has, each with its settings; without names, all that compute."""
        for name in names or ("learner", "rollout", "reference", "critic", *SERVED):
            if (role := getattr(self.layout.roles, name)) is not None:
                yield name, role

    @property
    def unit(self) -> str:
        """What a slot is, for people."""
        return "CPU slots" if self.layout.hardware.on_cpu else "GPUs"


class Rule(Struct, frozen=True):
    """One rule: stable code, severity, and the predicate that finds its troubles."""

    code: str
    severity: Severity
    title: str
    story: str
    predicate: Any

    def findings(self, subject: Placed) -> Iterator[Finding]:
        """What this rule has to say about ``subject``."""
        for trouble in self.predicate(subject):
            file, line = subject.place(trouble.key)
            yield Finding(
                code=self.code,
                severity=self.severity,
                message=trouble.message,
                key=trouble.key,
                file=file,
                line=line,
                fix=trouble.fix if _may_be_written(trouble.fix) else (),
            )


def _may_be_written(fix: tuple[str, ...]) -> bool:
    """Whether a layout may have the numbers of ``fix``: what absurd values would need can be beyond all bounds."""
    return all(int(number) <= LARGEST for word in fix for number in _LONG_NUMBER.findall(word))


REGISTRY: dict[str, Rule] = {}


def registering(registry: dict[str, Rule]) -> Callable[..., Callable[[Predicate], Predicate]]:
    """A decorator that registers predicates in ``registry``; their docstrings become title and story."""

    def rule(code: str, severity: Severity, algorithm: str = "") -> Callable[[Predicate], Predicate]:
        """Register a rule; one of an ``algorithm`` is asked of its layouts only."""

        def register(predicate: Predicate) -> Predicate:
            def asked(subject: Subject) -> Iterator[Trouble]:
                return predicate(subject) if not algorithm or algorithm == subject.layout.algorithm else iter(())

            title, _, story = inspect.cleandoc(predicate.__doc__ or "").partition("\n")
            if code in registry:
                raise ValueError(f"rule {code} is there twice")
            registry[code] = Rule(code, severity, title.strip(), story.strip(), asked)
            return predicate

        return register

    return rule


rule = registering(REGISTRY)
