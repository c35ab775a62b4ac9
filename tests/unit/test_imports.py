"""The light paths stay light, and what runs on nodes runs on the Python that nodes have.

The floors themselves are contracts of import-linter in pyproject.toml; here is what only shows at run time or in
the syntax.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("textual", "paramiko", "torch", "ray", "wandb", "transformers", "deepspeed", "vllm", "trainers")
ON_NODE = sorted((ROOT / "rltui" / "onnode").glob("*.py"))
NEWER_THAN_38 = {"graphlib", "tomllib", "zoneinfo"}  # in the standard library, but not of Python 3.8

RUN_AND_REPORT = """
import json, sys
from rltui.cli.main import main
try:
    code = main(sys.argv[2:])
except SystemExit as stop:
    code = stop.code or 0
json.dump({"code": code, "modules": sorted({name.partition(".")[0] for name in sys.modules})}, open(sys.argv[1], "w"))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--check", "layouts/local/grpo-tiny.yaml"],
        ["check", "layouts/local/grpo-tiny.yaml", "--json"],
        ["ps", "--json"],
    ],
    ids=" ".join,
)
def test_headless_verbs_import_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", RUN_AND_REPORT, str(report_file), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert report_file.exists(), done.stderr
    report = json.loads(report_file.read_text())
    assert report["code"] == 0, done.stdout + done.stderr
    assert not set(HEAVY) & set(report["modules"])


def test_the_cockpit_paints_without_its_services() -> None:
    """Each of these takes as long to import as a tenth of the first paint, which needs none of them."""
    late = ("rltui.service.live_cockpit", "rltui.dialects.load", "yaml", "urllib.request", "paramiko")
    code = (
        "import sys; from rltui.cli.cockpit import OpenedLater; from rltui.tui.app import CockpitApp; "
        f"CockpitApp(OpenedLater()); print([name for name in {late} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        # asked more often than any other verb; importers and checks take as long to import as all that it needs
        ("rltui.cli.ps", ("rltui.importers", "rltui.check", "rltui.service.scripts")),
        # each attempt starts these on each of its nodes; HTTP and pools of threads take a third of their imports
        *[
            (f"rltui.onnode.{name}", ("http.client", "urllib.request", "ssl", "email", "concurrent.futures"))
            for name in ("supervise", "guard", "sampler")
        ],
    ],
)
def test_what_is_started_often_imports_nothing_that_it_may_never_need(module: str, needless: tuple[str, ...]) -> None:
    code = f"import sys; import {module}; print([name for name in {needless} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def imported_modules(path: Path) -> set[str]:
    """Return the full names of all modules that the file at ``path`` imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", ON_NODE, ids=lambda path: path.name)
def test_on_node_files_are_python_38(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 8))


@pytest.mark.parametrize("path", ON_NODE, ids=lambda path: path.name)
def test_on_node_files_import_the_standard_library_only(path: Path) -> None:
    allowed = (set(sys.stdlib_module_names) - NEWER_THAN_38) | {"pynvml"}
    strangers = {
        name
        for name in imported_modules(path)
        if name.partition(".")[0] not in allowed and name != "rltui.onnode" and not name.startswith("rltui.onnode.")
    }
    assert not strangers


def test_setup_script_can_be_read_by_an_old_python() -> None:
    path = ROOT / "tools" / "setup_env.py"
    ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    before_handover = {name for name in imported_modules(path) if name.partition(".")[0] != "environment"}
    assert before_handover <= {"os", "subprocess", "sys", "typing"}
