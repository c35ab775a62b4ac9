"""The pages for readers: every link leads somewhere, and every command that is printed exists with its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltui.cli.verbs import BY_NAME, load, parser_for

ROOT = Path(__file__).parents[2]
EXAMPLES = ("best", "greet")
"""Verbs that pages show how to add."""

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("constraints/*.md")])


def anchors(page: Path) -> set[str]:
    """What a link to a heading of ``page`` may say after its ``#``."""
    found: list[str] = []
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        place, _, heading = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        if not re.match(r"https?:", target) and not (file.exists() and (not heading or heading in anchors(file))):
            broken.append(target)
    assert broken == []


def commands(text: str) -> Iterator[str]:
    """Every command of rltui in a page: between backquotes, and in blocks of code, without comments."""
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    .*$", text, re.MULTILINE)
    for line in "\n".join([*fenced, *indented]).splitlines():
        for part in re.split(r" && | · ", line):
            if found := re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?rltui ([^#]*)", part):
                yield re.split(r" {3,}", found[1].strip())[0]
    yield from re.findall(r"`rltui ([^`\n]+)`", text)


def unknown(command: str) -> str:
    """What of a command rltui does not know: its verb, or an option."""
    words = command.removeprefix("--").split() if command.startswith("--check") else command.split()
    if words[0] in EXAMPLES or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return ""
    if words[0] not in BY_NAME:
        return words[0]
    verb = BY_NAME[words[0]]
    known = parser_for(verb, load(verb)).format_help()
    # what stands behind -- or between quotes is another program's
    ours = re.sub(r"'[^']*'|\"[^\"]*\"| -- .*", "", " ".join(words))
    options = re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", ours)
    return " ".join(option for option in options if not re.search(rf"{option}(?![\w-])", known))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    assert {command: word for command in commands(page.read_text()) if (word := unknown(command))} == {}


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    assert [page.name for page in PAGES if page.parent.name == "docs" and f"({page.name}" not in index] == ["README.md"]


@pytest.mark.parametrize(("page", "most"), [("README.md", 120), ("docs/architecture.md", 200)])
def test_pages_that_are_read_first_stay_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) < most


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_a_page_says_at_once_whom_it_is_for(page: Path) -> None:
    assert page.read_text().split("\n\n")[1].startswith("For ")
