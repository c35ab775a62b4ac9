"""Options and fixtures of the cockpit's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

from pathlib import Path

SNAPSHOTS = Path(__file__).parent / "snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the pictures of tests/tui/snapshots anew")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test makes the cockpit remember, such as its theme, is not there for the next."""
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def matches_picture(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], None]:
    """Compare a normalised SVG with the stored one; with --update-snapshots, store it."""
    update = request.config.getoption("--update-snapshots", default=False)

    def compare(name: str, svg: str) -> None:
        stored = SNAPSHOTS / f"{name}.svg"
        if update:
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(svg, encoding="utf-8")
        elif not stored.exists():
            pytest.fail(f"there is no picture {stored.name}: look at the screen, then run with --update-snapshots")
        elif stored.read_text(encoding="utf-8") != svg:
            actual = tmp_path / f"{name}.svg"
            actual.write_text(svg, encoding="utf-8")
            pytest.fail(f"the screen differs from {stored}\n  it is {actual}\n  if it is meant: --update-snapshots")

    return compare
