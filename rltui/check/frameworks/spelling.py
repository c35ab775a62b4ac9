"""Settings that no version of a framework knows, but nearly, and those that no version knows together.

What a framework knows is read from tables of names (``keys/``), which ``tools/framework_keys.py`` writes out of all
versions of its configuration. A name that is near none of them may be one of a fork or of a version to come: it is
none of our business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.check.rule import Trouble, registering

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked
    from rltui.check.rule import Rule

_TABLES = Path(__file__).parent / "keys"
_NEAR = 0.85
_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_ENGINES_OWN = ("sglang_", "vllm_", "sgl_")
"""How names begin that a framework hands on to its engine, of which there are more than any table has."""

REGISTRY: dict[str, Rule] = {}
_rule = registering(REGISTRY)


class Table(Struct, frozen=True):
    """The settings of a framework.

    Attributes:
        sections: Names in each section, by its dotted name; the top is the empty one.
        free: Dotted names whose own keys are anybody's.
        typed: Those that a class takes and no file has, so that they are to be added.
        since: Day (YYMMDD) before which a name was not there, of those that came later than the framework.
        until: Day from which it was gone, of those that are.
    """

    sections: dict[str, frozenset[str]]
    free: frozenset[str]
    typed: frozenset[str] = frozenset()
    since: dict[str, str] = {}
    until: dict[str, str] = {}

    def knows(self, name: str) -> bool:
        """Whether any version has the setting."""
        section = ""
        for part in name.split("."):
            if section in self.free:
                return True
            if part not in self.sections.get(section, ()):
                return False
            section = f"{section}.{part}".lstrip(".")
        return True

    def is_free(self, name: str) -> bool:
        """Whether the setting is one of a section whose keys are anybody's."""
        parts = name.split(".")
        return any(".".join(parts[:index]) in self.free for index in range(1, len(parts)))

    def nearest(self, name: str) -> str:
        """The known setting that ``name`` is likely to mean; empty where it is known, or near to none."""
        section = ""
        parts = name.split(".")
        for index, part in enumerate(parts):
            known = self.sections.get(section)
            here = f"{section}.{part}".lstrip(".")
            if known is None or here in self.free or section in self.free:
                return ""
            if part not in known:
                return self._instead(section, part, parts[index + 1 :], known)
            section = here
        return ""

    def _instead(self, section: str, part: str, rest: list[str], known: frozenset[str]) -> str:
        if not section and not rest and any(one.startswith(part) for one in known):
            return ""  # argparse takes the beginning of a name for the name
        for match in get_close_matches(part, known, n=3, cutoff=_NEAR):
            found = ".".join([section, match, *rest]).lstrip(".")
            if _letters(match) != _letters(part) and self.knows(found):
                return found
        last = (rest or [part])[-1]
        homes = [home for home in self.sections if home != section and last in self.sections[home]] if section else []
        return f"{homes[0]}.{last}".lstrip(".") if len(homes) == 1 and "_" in last else ""


def _letters(name: str) -> str:
    return re.sub(r"\d", "", name)


@cache
def table_of(dialect: str) -> Table | None:
    """The settings that any version of a framework knows; None where nobody has collected them."""
    file = _TABLES / f"{dialect}.txt"
    if not file.is_file():
        return None
    return read_table(file.read_text(encoding="utf-8").splitlines())


def read_table(lines: Iterable[str]) -> Table:
    """A table as ``tools/framework_keys.py`` writes it: a section a line, ``*`` behind names whose own keys are free."""
    sections: dict[str, frozenset[str]] = {}
    free, typed = set(), set()
    since: dict[str, str] = {}
    until: dict[str, str] = {}
    for line in lines:
        section, _, names = line.partition(":")
        known = set()
        for word in names.split():
            name, _, span = word.partition("@")
            plain = name.strip("~*")
            whole = f"{section}.{plain}".lstrip(".")
            known.add(plain)
            if name.endswith("*"):
                free.add(whole)
            if name.startswith("~"):
                typed.add(whole)
            first, _, last = span.partition("-")
            since |= {whole: first} if first else {}
            until |= {whole: last} if last else {}
        sections[section] = frozenset(known)
    return Table(sections, frozenset(free), frozenset(typed), since, until)


@_rule("F901", "warning")
def misspelt(asked: Asked) -> Iterator[Trouble]:
    """No version of the framework has this setting, but one that is nearly the same.

    Hydra, argparse and typed configurations refuse a name that they do not know; plain dictionaries ignore it, which
    is worse. Names were collected from all versions of the framework; one that is near none is not judged.
    """
    table = table_of(asked.facts.dialect)
    for name in _names(asked) if table else ():
        found = table.nearest(name)
        if found and not asked.settings.has(found):
            yield Trouble(f"{name} is no setting of {asked.facts.dialect}; {found} is", name)


@_rule("F902", "warning")
def of_two_versions(asked: Asked) -> Iterator[Trouble]:
    """No version of the framework has both of these settings: one was gone before the other came.

    Which of them the installed version refuses, its own date says. Days are those of the framework's main branch.
    """
    table = table_of(asked.facts.dialect)
    if table is None:
        return
    newest = max((name for name in _names(asked, added=False) if name in table.since), key=table.since.get, default="")  # type: ignore[arg-type]
    for name in _names(asked, added=False):
        if newest and name in table.until and table.until[name] <= table.since[newest]:
            yield Trouble(
                f"{name} was gone by {_day(table.until[name])}, and {newest} came on {_day(table.since[newest])}: "
                f"no version of {asked.facts.dialect} has both",
                name,
            )


@_rule("F903", "warning")
def added_twice(asked: Asked) -> Iterator[Trouble]:
    """A plus adds a setting to Hydra's configuration, which refuses one that is there already.

    Other settings of the script say how old the framework is at least; this one was there by then.
    """
    table = table_of(asked.facts.dialect)
    if table is None:
        return
    least = max((table.since.get(name, "") for name in _names(asked, added=False)), default="")
    for name in sorted(asked.settings.added):
        always = name not in table.since and name not in table.until
        older = always or table.since.get(name, "999999") <= least and name not in table.until
        if older and name not in table.typed and table.knows(name) and not table.is_free(name):
            yield Trouble(f"+{name} adds a setting that {asked.facts.dialect} has itself: leave the plus out", name)


@_rule("F904", "warning")
def outside_the_command(asked: Asked) -> Iterator[Trouble]:
    """An option stands as a command of its own, so the training never sees it.

    The line above lacks its backslash at the end, or has blanks behind it; or an array was opened by a brace.
    """
    for line, name in asked.facts.strays:
        yield Trouble(f"line {line} begins with {name}, but the command above it has ended: a backslash is missing", name)


def _names(asked: Asked, added: bool = True) -> list[str]:
    """Names of settings that can be judged; without those that a plus adds to the configuration, if so wished."""
    names = (name for name in asked.settings.values if _PLAIN.match(name) and not name.startswith(_ENGINES_OWN))
    return [name for name in names if added or name not in asked.settings.added]


def _day(day: str) -> str:
    return f"20{day[:2]}-{day[2:4]}-{day[4:]}"
