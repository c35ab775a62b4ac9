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
_HOMES = 4
_PLAIN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")
_OTHERS = re.compile(r"sglang_|vllm_|sgl_|(?:.*\.)?[A-Z][A-Z0-9_]+\Z")
"""Names that a framework hands on to its engine, of which there are more than any table has, and of variables."""

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
        """Whether any version has the setting; argparse's switches have a twin that begins with ``no``."""
        section = ""
        for part in name.split("."):
            known = self.sections.get(section, frozenset())
            if section in self.free:
                return True
            if part not in known and part.removeprefix("no_") not in known:
                return False
            section = f"{section}.{part}".lstrip(".")
        return True

    def is_free(self, name: str) -> bool:
        """Whether the setting is one of a section whose keys are anybody's."""
        parts = name.split(".")
        return any(".".join(parts[:index]) in self.free for index in range(1, len(parts)))

    def nearest(self, name: str) -> str:
        """The known setting that ``name`` is likely to mean; empty where it is known, or near to none."""
        if self._is_of_another_parser(name):
            return ""
        section = ""
        parts = name.split(".")
        for index, part in enumerate(parts):
            known = self.sections.get(section)
            if known is None or section in self.free:
                return ""
            if part not in known:
                # an end of two names is that of too many settings, among them a fork's own (env.rollout.n)
                below = (".".join(parts[start:]) for start in range(1, len(parts) - 2))
                found = next((rest for rest in below if self.knows(rest)), "")
                return found or self._instead(section, part, parts[index + 1 :], known)
            section = f"{section}.{part}".lstrip(".")
        return ""

    def _is_of_another_parser(self, name: str) -> bool:
        """Whether a program of the user's own reads ``name``: the framework's flags stand in no section."""
        return "." in name and len(self.sections) == 1

    def _instead(self, section: str, part: str, rest: list[str], known: frozenset[str]) -> str:
        if not section and not rest and any(one.startswith(part) for one in known):
            return ""  # argparse takes the beginning of a name for the name
        for match in get_close_matches(part, known, n=3, cutoff=_NEAR):
            found = ".".join([section, match, *rest]).lstrip(".")
            if match[0] == part[0] and _letters(match) != _letters(part) and self.knows(found):
                return found
        return ""

    def elsewhere(self, name: str) -> list[str]:
        """The settings of other sections that end in the same word; none where they are more than a few."""
        if self._is_of_another_parser(name):
            return []
        section, _, last = name.rpartition(".")
        homes = [home for home in self.sections if home != section and last in self.sections[home]] if section else []
        return [f"{home}.{last}".lstrip(".") for home in homes] if len(homes) <= _HOMES and "_" in last else []


def _letters(name: str) -> str:
    return re.sub(r"\d", "", name)


_NOTHING = Table({}, frozenset())


@cache
def table_of(dialect: str) -> Table:
    """The settings that any version of a framework knows; an empty table where nobody has collected them."""
    file = _TABLES / f"{dialect}.txt"
    if not file.is_file():
        return _NOTHING
    return read_table(file.read_text(encoding="utf-8").splitlines())


def read_table(lines: Iterable[str]) -> Table:
    """A table as ``tools/framework_keys.py`` writes it, which says what its marks mean."""
    sections: dict[str, frozenset[str]] = {}
    free: set[str] = set()
    typed: set[str] = set()
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


def _strange(asked: Asked, table: Table) -> list[str]:
    return [name for name in _names(asked) if not table.knows(name)]


def _judging(asked: Asked) -> Table:
    """The table of a script's framework; an empty one where the script is of a fork or of a version to come.

    It is where several of its settings are known to no version and one of them is near to nothing.
    """
    table = table_of(asked.facts.dialect)
    strange = _strange(asked, table)
    own = [name for name in strange if not table.nearest(name) and name not in asked.settings.added]
    return table if len(strange) < 2 or not own else _NOTHING


@_rule("F991", "warning")
def misspelt(asked: Asked) -> Iterator[Trouble]:
    """No version of the framework has this setting, but one that is nearly the same, or one of another section.

    Hydra, argparse and typed configurations refuse a name that they do not know; plain dictionaries ignore it, which
    is worse. Names were collected from all versions of the framework; a script with other settings of its own is not
    judged.
    """
    table = _judging(asked)
    for name in _strange(asked, table):
        nearest = table.nearest(name)
        meant = [nearest] if nearest else [] if name in asked.settings.added else table.elsewhere(name)
        if meant and not asked.settings.has(*meant):
            yield Trouble(f"{name} is no setting of {asked.facts.dialect}; {' or '.join(meant)} is", name)


@_rule("F992", "warning")
def of_two_versions(asked: Asked) -> Iterator[Trouble]:
    """No version of the framework has both of these settings: one was gone before the other came.

    Which of them the installed version refuses, its own date says. Days are those of the framework's main branch.
    """
    table = _dating(asked)
    names = [name for name in _names(asked, added=False) if not table.is_free(name)]
    newest = max((name for name in names if name in table.since), key=lambda name: table.since[name], default="")
    for name in names:
        if newest and table.until.get(name, "999999") <= table.since[newest]:
            yield Trouble(
                f"{name} was gone by {_day(table.until[name])}, and {newest} came on {_day(table.since[newest])}: "
                f"no version of {asked.facts.dialect} has both",
                name,
            )


@_rule("F993", "note")
def added_twice(asked: Asked) -> Iterator[Trouble]:
    """A plus adds a setting to Hydra's configuration, which refuses one that is there already.

    Other settings of the script say how old the framework is at least; this one was there by then. Whether it is part
    of the configuration that the script chooses, only that shows.
    """
    table = _dating(asked)
    least = max((table.since.get(name, "") for name in _names(asked, added=False)), default="")
    for name in sorted(asked.settings.added):
        older = table.since.get(name, "999999") <= least and name not in table.until
        if older and name not in table.typed and table.knows(name) and not table.is_free(name):
            yield Trouble(f"+{name} adds a setting that {asked.facts.dialect} has itself: leave the plus out", name)


@_rule("F994", "warning")
def outside_the_command(asked: Asked) -> Iterator[Trouble]:
    """An option stands as a command of its own, so the training never sees it.

    The line above lacks its backslash at the end, or has blanks behind it; or an array was opened by a brace.
    """
    for line, name in asked.facts.strays:
        yield Trouble(f"line {line} begins with {name}, but the command above it has ended without a backslash", name)


@_rule("F995", "error")
def unreadable_environment(asked: Asked) -> Iterator[Trouble]:
    """The environment for Ray's workers is no JSON, so Ray refuses the job.

    `ray job submit` reads `--runtime-env-json` strictly: a comma between two entries and none behind the last, names in
    double quotes. Where a script puts variables in, it writes a backslash before each of these quotes.
    """
    for line, fault in asked.facts.bad_environments:
        yield Trouble(f"line {line}: --runtime-env-json is no JSON: {fault}", "runtime-env-json")


def _dating(asked: Asked) -> Table:
    """The table where all that the script sets is known, so that its settings tell the version; else an empty one."""
    return _NOTHING if asked.settings.is_cut else _judging(asked)


def _names(asked: Asked, added: bool = True) -> list[str]:
    """Names of settings that can be judged; without those that a plus adds to the configuration, if so wished."""
    names = (name for name in asked.settings.values if _PLAIN.match(name) and not _OTHERS.match(name))
    return [name for name in names if added or name not in asked.settings.added]


def _day(day: str) -> str:
    return f"20{day[:2]}-{day[2:4]}-{day[4:]}"
