"""Print what each predictor is worth on its cases, as one page; ``--write`` renews docs/truth.md."""

from __future__ import annotations

import datetime
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "truth"
sys.path[:0] = [str(CASES)]

if TYPE_CHECKING:
    from types import ModuleType

    from score import Score

NO_PREDICTOR = ("score", "__init__")


def predictors() -> list[ModuleType]:
    """Every module in tests/truth that has a ``score()``, which may take ten seconds."""
    names = sorted(path.stem for path in CASES.glob("*.py"))
    wanted = [name for name in names if name not in NO_PREDICTOR and not name.startswith(("test_", "_", "conftest"))]
    modules = [importlib.import_module(name) for name in wanted]
    return [module for module in modules if hasattr(module, "score")]


def page(found: list[Score]) -> Iterator[str]:
    """The page as Markdown."""
    yield "# Truth\n"
    yield "For people who ask what an estimate is worth."
    yield f"What the predictors are worth on published cases, as of {datetime.date.today()}."
    yield "`make truth` measures again."
    for score in found:
        yield f"\n## {score.predictor}\n"
        yield "| figure | value | bound | cases |"
        yield "|---|---|---|---|"
        for each in score.figures:
            sign = "≥" if each.higher_is_better else "≤"
            worse = "" if each.held else " **worse**"
            yield f"| {each.name} | {each.value:.4g}{worse} | {sign} {each.bound:g} | {each.cases} |"
        if score.worst:
            yield "\nFurthest off:\n"
            yield from (f"- {name}: {reason}" for name, reason in score.worst)


def main() -> int:
    """Print the page; 1 where a figure crossed its bound."""
    found: list[Score] = [predictor.score() for predictor in predictors()]
    text = "\n".join(page(found)) + "\n"
    print(text, end="")
    if "--write" in sys.argv[1:]:
        (ROOT / "docs" / "truth.md").write_text(text, encoding="utf-8")
    return 0 if found and all(figure.held for score in found for figure in score.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
