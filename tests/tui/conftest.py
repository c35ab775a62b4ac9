"""Options and fixtures of the cockpit's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write the pictures of tests/tui/snapshots anew")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test makes the cockpit remember, such as its theme, is not there for the next."""
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def matches_picture(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Compare a normalised SVG, or a text, with the stored one; with --update-snapshots, store it."""
    update = request.config.getoption("--update-snapshots", default=False)

    def compare(name: str, picture: str, ending: str = ".svg") -> None:
        stored = SNAPSHOTS / f"{name}{ending}"
        if update:
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(picture, encoding="utf-8")
        elif not stored.exists():
            pytest.fail(f"there is no picture {stored.name}: look at the screen, then run with --update-snapshots")
        elif stored.read_text(encoding="utf-8") != picture:
            actual = tmp_path / stored.name
            actual.write_text(picture, encoding="utf-8")
            pytest.fail(f"the screen differs from {stored}\n  it is {actual}\n  if it is meant: --update-snapshots")

    return compare
