"""Rules of the cockpit's house that a type checker does not hold."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rltui.service.live_cockpit import LiveCockpit
from rltui.tui import states, theme
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.spans import ROLES, cell_width
from rltui.watch.snapshots import RunState

TUI = Path(__file__).resolve().parents[2] / "rltui" / "tui"
SOURCES = sorted(TUI.rglob("*.py"))
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b|\brgba?\(|['\"]ansi_[a-z]+['\"]")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_only_the_controller_and_its_searches_call_services() -> None:
    services = [name for name in dir(LiveCockpit) if not name.startswith("_")]
    assert len(services) >= 14
    calls = re.compile(rf"_cockpit\.({'|'.join(services)})\b")
    assert [path.name for path in SOURCES if calls.search(text(path))] == ["controller.py", "searches.py"]
    assert [
        path.name for path in SOURCES if re.search(r"^from rltui\.(runs|cluster|placement)\b", text(path), re.M)
    ] == []


def test_nobody_reaches_into_the_tree() -> None:
    reaching = re.compile(r"query_one|call_from_thread|\.query\(")
    assert [path.name for path in SOURCES if reaching.search(text(path))] == []


def test_colours_are_named_in_the_theme_only() -> None:
    styles = text(TUI / "app.tcss")
    assert [path.name for path in SOURCES if COLOUR.search(text(path))] == ["theme.py"]
    assert COLOUR.search(styles) is None
    assert len(styles.splitlines()) <= 250


def test_data_are_never_markup() -> None:
    assert [path.name for path in SOURCES if "from_markup" in text(path) or "markup=True" in text(path)] == []
    assert all("markup=False" in call for path in SOURCES for call in re.findall(r"\.notify\(.*", text(path)))


def test_every_role_and_state_has_its_look() -> None:
    styles = text(TUI / "app.tcss")
    assert [role for role in ROLES if f".role--{role} " not in styles] == []
    assert set(states.RUN_STATES) == set(RunState.__args__)
    looks = [*states.RUN_STATES.values(), *states.ACTOR_STATES.values(), *states.SEVERITIES.values(), states.UNKNOWN]
    for look in looks:
        assert cell_width(look.glyph) == len(look.ascii_glyph) == 1
        assert look.ascii_glyph.isascii()
        assert look.role in ROLES
    assert len({look.glyph for look in states.RUN_STATES.values()}) == len(states.RUN_STATES)


def test_glyphs_are_one_cell_wide() -> None:
    for name, glyph in UNICODE._asdict().items():
        if isinstance(glyph, str):
            assert all(cell_width(char) == 1 for char in glyph), name
    assert all(glyph.isascii() for glyph in ASCII if isinstance(glyph, str))


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", [theme.DARK, theme.LIGHT])
def test_text_can_be_read_on_every_ground(name: str) -> None:
    chosen = next(each for each in theme.THEMES if each.name == name)
    for ground in (chosen.background, chosen.surface, chosen.panel):
        for variable, colour in chosen.variables.items():
            if variable.startswith("role-") and variable not in ("role-rule", "role-bar"):
                assert contrast(colour, str(ground)) >= 4.0, (variable, ground)


@pytest.mark.parametrize("name", [theme.DARK, theme.LIGHT])
def test_the_state_colours_stay_apart_without_red_and_green(name: str) -> None:
    chosen = next(each for each in theme.THEMES if each.name == name).variables

    def deuteranope(colour: str) -> tuple[float, float]:
        # Viénot, Brettel & Mollon (1999): what is left is a yellow-blue and a light-dark axis.
        red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
        yellow = 0.29 * red + 0.71 * green
        return yellow - blue, 0.3 * red + 0.59 * green + 0.11 * blue

    points = [deuteranope(chosen[f"role-{role}"]) for role in ("ok", "attention", "bad")]
    for index, one in enumerate(points):
        for other in points[index + 1 :]:
            assert max(abs(one[0] - other[0]), abs(one[1] - other[1])) >= 20


def imported(path: Path) -> set[str]:
    """Modules of the cockpit that a file imports, for its types alone as well."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def test_no_file_of_the_cockpit_imports_itself_around_a_corner() -> None:
    files = {"rltui.tui." + ".".join(path.relative_to(TUI).with_suffix("").parts): path for path in SOURCES}
    imports = {name: imported(path) & set(files) - {name} for name, path in files.items()}

    def reached(start: str) -> set[str]:
        found, todo = set[str](), [start]
        while todo:
            new = imports[todo.pop()] - found
            found |= new
            todo += new
        return found

    assert [name for name in files if name in reached(name)] == []
