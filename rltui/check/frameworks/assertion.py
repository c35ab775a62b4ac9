"""A framework's start-up assertion as a row of a table, and a table as rules of the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.check.frameworks.terms import Setting, met
from rltui.check.rule import Rule, Trouble

if TYPE_CHECKING:
    from rltui.check.findings import Severity
    from rltui.check.frameworks.terms import Asked, Condition, Number, Term

MAX_TRIES = 4096
"""Values that are tried for a fix; a batch is a few thousand at most."""


class Assertion(Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        code: Stable code, such as F101.
        title: What is wrong, in a sentence.
        where: File and function of the framework that asserts it.
        fails: Whether a script is known to break it.
        says: The sentence with the script's numbers.
        key: The setting that is the first to look at.
        fixes: Values to try for ``key``, nearest first; the first that no longer fails is proposed.
        when: Conditions under which the framework asserts it.
        severity: ``error`` where the framework stops; ``warning`` where it, or a version or fork of it, goes on.
    """

    code: str
    title: str
    where: str
    fails: Callable[[Asked], bool]
    says: Callable[[Asked], str]
    key: Setting
    fixes: Callable[[Asked], Iterator[Number]] = lambda _: iter(())
    when: tuple[Condition, ...] = ()
    severity: Severity = "error"

    def broken(self, asked: Asked) -> bool:
        """Whether the framework is known to refuse the script by this row."""
        return met(self.when, asked) and self.fails(asked)


class Framework(Struct, frozen=True):
    """Whose assertions a table has.

    Attributes:
        dialect: The importer's name for it.
        source: Address and commit that the table was read from.
        spelling: How a setting is written on its command line, with ``key`` and ``value``.
        dashes: Whether names have dashes there where the settings have underscores.
    """

    dialect: str
    source: str
    spelling: str = "{key}={value}"
    dashes: bool = False

    def spelled(self, key: str, value: object) -> str:
        """A setting as the framework's command line has it."""
        spelled = self.spelling.format(key=key.replace("_", "-") if self.dashes else key, value=value)
        return spelled.removesuffix("=")  # a bare switch

    def rules(self, table: Sequence[Assertion]) -> tuple[Rule, ...]:
        """The rows of a table as rules of the check, whose stories say where the framework has them."""
        return tuple(self._rule(row, table) for row in table)

    def _rule(self, row: Assertion, table: Sequence[Assertion]) -> Rule:
        def predicate(asked: Asked) -> Iterator[Trouble]:
            if row.broken(asked):
                name = row.key.name(asked)
                value = _settling(row, table, asked, name)
                yield Trouble(row.says(asked), name, () if value is None else (self.spelled(name, value),))

        stops = "stops at its start" if row.severity == "error" else "goes on, or may be a version or fork that does"
        story = f"{self.dialect} {stops}: {row.where}\n({self.source})."
        return Rule(row.code, row.severity, row.title, story, predicate)


def _settling(row: Assertion, table: Sequence[Assertion], asked: Asked, name: str) -> Number | None:
    """The first value of a row's setting that settles it and breaks no other row that held."""
    held = [other for other in table if not other.broken(asked)]
    for value in row.fixes(asked):
        changed = asked.with_setting(name, value)
        if not row.broken(changed) and not any(other.broken(changed) for other in held):
            return value
    return None


def _comparing(
    fails: Callable[[Number, Number], bool], words: str, *, bounds: bool = False
) -> Callable[..., Assertion]:
    """What makes rows that compare two numbers.

    To change is the second where that is a setting, else the first setting of all.

    Args:
        fails: Whether two numbers break the assertion.
        words: What is said between them then.
        bounds: Whether either number settles it by being what the other is.
    """

    def row(
        code: str,
        title: str,
        where: str,
        parts: tuple[Term, Term],
        *,
        when: tuple[Condition, ...] = (),
        change: Setting | None = None,
        severity: Severity = "error",
    ) -> Assertion:
        left, right = parts
        key = change or (right if isinstance(right, Setting) else left.setting())
        assert key is not None

        def broken(asked: Asked) -> bool:
            a, b = left.value(asked), right.value(asked)
            return a is not None and b is not None and fails(a, b)

        def says(asked: Asked) -> str:
            return f"{left.described(asked)} {words} {right.described(asked)}"

        def fixes(asked: Asked) -> Iterator[Number]:
            bound = (right if key is left else left).value(asked)
            return iter([bound]) if bounds and bound is not None and key in parts else _nearest(key, asked)

        return Assertion(
            code=code, title=title, where=where, fails=broken, says=says, key=key, fixes=fixes, when=when,
            severity=severity,
        )  # fmt: skip

    return row


multiple = _comparing(lambda whole, part: part > 0 and whole % part != 0, "cannot be divided by")
"""The first of two numbers must be a multiple of the second."""

at_least = _comparing(lambda large, small: large < small, "is below", bounds=True)
"""The first of two numbers must not be smaller than the second."""

equal = _comparing(lambda left, right: left != right, "is not")
"""Two numbers must be the same."""


def never(
    code: str,
    title: str,
    where: str,
    when: tuple[Condition, ...],
    change: Setting,
    fix: Number | str | None = None,
    severity: Severity = "error",
) -> Assertion:
    """The conditions must not be met together; ``fix`` is the value of ``change`` that ends it."""

    def fails(asked: Asked) -> bool:
        return met(when, asked)

    def says(_: Asked) -> str:
        first = title[:1] if title[1:2].isupper() else title[:1].lower()  # KL, SAPO, vLLM
        return f"{first}{title[1:].rstrip('.')}"

    def fixes(_: Asked) -> Iterator[Number]:
        if fix is not None:
            yield fix  # type: ignore[misc]  # a word such as True is as good a value

    return Assertion(
        code=code, title=title, where=where, fails=fails, says=says, key=change, fixes=fixes, severity=severity
    )


def choice(
    code: str,
    title: str,
    where: str,
    setting: Setting,
    words: tuple[str, ...],
    when: tuple[Condition, ...] = (),
    severity: Severity = "error",
) -> Assertion:
    """A setting must be one of ``words``, most usual first, where the script sets it.

    Forks add words of their own under the framework's name; where they do, a row is a warning.
    """

    def fails(asked: Asked) -> bool:
        said = setting.text(asked)
        return bool(said) and said not in words

    def says(asked: Asked) -> str:
        return f"{setting.name(asked)} {setting.text(asked)} is none of {', '.join(words)}"

    def fixes(asked: Asked) -> Iterator[Number]:
        yield from dict.fromkeys([*get_close_matches(setting.text(asked), words), *words])  # type: ignore[misc]

    return Assertion(
        code=code, title=title, where=where, fails=fails, says=says, key=setting, fixes=fixes, when=when,
        severity=severity,
    )  # fmt: skip


def _nearest(change: Setting, asked: Asked) -> Iterator[Number]:
    """Values of a setting upwards from what it is, then downwards, while they are near it."""
    now = change.value(asked)
    if now is not None:
        yield from range(int(now) + 1, int(now) + MAX_TRIES)
        yield from range(int(now) - 1, max(0, int(now) - MAX_TRIES), -1)
