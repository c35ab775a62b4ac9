"""Checking a launch script of another system as it stands: its layout by our rules, its settings by its framework's.

Findings name the script's own file, line, setting and fix wherever the setting is known from which they follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from rltui.check.findings import Finding
from rltui.check.frameworks import BY_DIALECT, MODULES, launchers, spelling
from rltui.check.frameworks.terms import Asked
from rltui.check.run import Report, check_text, worst_first
from rltui.errors import UsageError
from rltui.importers.arguments import Settings
from rltui.importers.facts import Facts
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import Imported, imported, read_facts
from rltui.importers.source import read_source

OF_OUR_TRAINERS = frozenset({"E390", "H409"})
"""What the bundled trainers cannot run or are slow at: no concern of other systems' scripts."""

SCORES_ALONE = frozenset({"verl", "skyrl"})
"""Whose GRPO takes the score of a sample without siblings as it is: it learns, and rows of their own warn of it."""

ROUNDS_MINI_BATCHES = frozenset({"skyrl"})
"""Which round a rank's share of a mini-batch down before they divide by it; rows of their own say what is refused."""

SPREADS_SAMPLES = frozenset({"trl", "ms-swift", "axolotl"})
"""Where each process generates its own rows on its own engine: a prompt's samples are spread over several engines."""

FRAMEWORKS = {module.FRAMEWORK.dialect: module.FRAMEWORK for module in MODULES}


def check_script(path: Path, overrides: Sequence[str] = (), given: Sequence[str] = ()) -> Report:
    """Check the launch script or foreign configuration at ``path``; never raises for what is wrong with it.

    Args:
        path: The script; nothing in it is run.
        overrides: Changes to the layout that it comes to, ``key.path=value``.
        given: What the script leaves open, as ``import_file`` takes it.
    """
    try:
        text = read_source(path)
    except UsageError as error:
        return _unreadable(path, error)
    return check_script_text(text, path, overrides, given)


def check_script_text(text: str, path: Path, overrides: Sequence[str] = (), given: Sequence[str] = ()) -> Report:
    """``check_script`` for a script given as ``text``; ``path`` says where it stands."""
    try:
        facts, notes = read_facts(text, path, given)
    except UsageError as error:
        return _unreadable(path, error)
    found = imported(facts, notes, path)
    place = _places(text, str(path))
    asserted = _asserted(facts, place)
    if found.layout is None:
        without = worst_first((*asserted, _no_layout(found, str(path))))
        return Report(file=str(path), findings=without, framework=facts.framework)
    report = check_text(as_yaml(found.layout), str(path), overrides)
    left_out = OF_OUR_TRAINERS | ({"B204"} if facts.dialect in SCORES_ALONE else frozenset())
    left_out |= {"P106"} if facts.other_gpus else frozenset()  # a layout has no word for who has the others
    left_out |= {"B206"} if facts.dialect in SPREADS_SAMPLES and facts.colocated else frozenset()
    left_out |= {"B211"} if facts.dialect in ROUNDS_MINI_BATCHES else frozenset()
    own = (_in_words_of(finding, facts, place) for finding in report.findings if finding.code not in left_out)
    return replace(report, findings=worst_first((*asserted, *own)), framework=facts.framework)


def _unreadable(path: Path, error: UsageError) -> Report:
    message = error.message.removeprefix(f"{path}").lstrip(": ")
    hint = f" ({error.hint})" if error.hint else ""
    finding = Finding(code="L001", severity="error", message=message + hint, file=str(path))
    return Report(file=str(path), findings=(finding,), readable=False)


def _asserted(facts: Facts, place: Callable[[str], tuple[str, int]]) -> list[Finding]:
    """What the framework itself would refuse."""
    asked = Asked(facts.source or Settings({}), facts, place)
    own = () if facts.source is None else (*BY_DIALECT.get(facts.dialect, ()), *spelling.REGISTRY.values())
    rules = (*own, *launchers.REGISTRY.values())
    return [finding for rule in rules for finding in rule.findings(asked)]


def _no_layout(found: Imported, name: str) -> Finding:
    """Why the rules about layouts could not be asked, and what would let them."""
    reason = found.unmapped[0].removeprefix("layout: ") if found.unmapped else "it says too little of its training"
    message = (
        f"no layout can be made of it, so memory, placement and batches were not checked: {reason}; "
        f"`rltui launch --script FILE --cluster NAME --dry-run` asks a cluster about its job"
    )
    return Finding(code="L002", severity="note", message=message, file=name)


def _in_words_of(finding: Finding, facts: Facts, place: Callable[[str], tuple[str, int]]) -> Finding:
    """``finding`` at the script's own setting, where the layout's key is that setting as it stands."""
    framework = FRAMEWORKS.get(facts.dialect)
    names = facts.source.names if facts.source and framework else {}
    file, line = place(names.get(finding.key, ""))
    pairs = [word.partition("=") for word in finding.fix]
    fix = finding.fix
    if framework and all(key in names for key, _, _ in pairs):
        fix = tuple(framework.spelled(names[key], value) for key, _, value in pairs)
    return replace(finding, key=names.get(finding.key, finding.key), file=file, line=line, fix=fix)


def _without_comment(line: str) -> str:
    """A line that is no comment; an ``#SBATCH`` line is none."""
    return "" if line.lstrip().startswith("#") and not line.startswith("#SBATCH") else line


def _places(text: str, name: str) -> Callable[[str], tuple[str, int]]:
    """What finds the line of a setting: the last line that sets it, for the last of several wins; 0 where none does."""
    lines = [_without_comment(line) for line in text.splitlines()]

    def place(key: str) -> tuple[str, int]:
        if not key:
            return name, 0
        dashed = re.escape(key).replace("_", "[-_]")
        last = re.escape(key.rsplit(".", 1)[-1])
        for pattern in (rf"(?<![\w.-])(?:\+*|--?){dashed}(?=[\s=\"']|$)", rf"^\s*{last}\s*[:=]"):
            found = [number for number, line in enumerate(lines, 1) if re.search(pattern, line)]
            if found and (len(found) == 1 or "(?<!" in pattern):
                return name, found[-1]
        return name, 0

    return place
