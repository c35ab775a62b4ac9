"""The house around the code: nothing private in its files, a licence that is the licence, commands that exist."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"

# Written in pieces, so that this file does not hold what it looks for.
PRIVATE = re.compile(
    "|".join(
        (
            "py" + r"pi\.org",
            "python" + "hosted",
            "download" + r"\.pytorch",
            "npm" + r"js\.",
            "/r" + r"oot/\w",
            "/wo" + "rk/(?:main|shared)",
            "/op" + "t/(?:wheels|pypi)",
        )
    )
)


def tracked_files() -> list[Path]:
    """Return the files that git knows and that are there."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this is no git checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_host_or_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not found, "\n".join(found)


def test_licence_is_the_unchanged_apache_2() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_SHA256


def test_every_advertised_command_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    advertised = set(re.findall(r"[`']make ([a-z]+)", makefile + (ROOT / "CONTRIBUTING.md").read_text()))
    assert advertised
    assert advertised <= targets
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    assert set(phony.group(1).split()) == targets


def test_make_without_a_target_explains_itself() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "make demo" in done.stdout
    assert "make test" in done.stdout


def test_commit_hooks_need_no_foreign_repository() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


def test_locked_torch_is_the_one_that_is_asked_for() -> None:
    torch = {
        match.group()
        for name in ("pyproject.toml", "constraints/lock.txt", "constraints/overrides.txt")
        if (match := re.search(r"torch==[\d.]+\d", (ROOT / name).read_text()))
    }
    assert len(torch) == 1


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]), ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """By their path from the top or within a package; paths that begin in no folder of ours are other systems'."""
    tops = [ROOT, *(ROOT / name for name in ("rltui", "trainers", "tests"))]
    folders = {folder.name for top in tops for folder in top.iterdir() if folder.is_dir()} - {"examples"}
    named = set(re.findall(r"(?<![\w/.~-])((\w+)/(?:\w+/)*\w+\.(?:py|tcss|j2|toml|sh))\b", page.read_text()))
    ours = [name for name, folder in named if folder in folders and name != "trainers/NAME.py"]
    assert sorted(name for name in ours if not any((top / name).is_file() for top in tops)) == []


def shell_scripts() -> list[Path]:
    """Return the tracked files that start as a shell script."""
    # fixtures imitate other people's scripts, warts and all
    # templates are checked as what is made of them
    ours = (path for path in tracked_files() if "fixtures" not in path.parts and path.suffix != ".j2")
    return [path for path in ours if re.match(rb"#!.*\b(?:ba)?sh\b", path.read_bytes()[:64])]


def test_shell_scripts_pass_shellcheck() -> None:
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("shellcheck is not installed")
    scripts = shell_scripts()
    assert ROOT / ".ci" / "run" in scripts
    done = subprocess.run([shellcheck, *scripts], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_what_benchmarks_and_tools_take_from_tests_is_there() -> None:
    """Nothing runs them day by day, and they find the modules of tests by paths that no type checker follows."""
    found = {path.stem: path for path in (ROOT / "tests").rglob("*.py") if path.stem != "conftest"}
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{name.name}"
        for path in (*ROOT.glob("tests/bench/*.py"), *ROOT.glob("tools/*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in found
        for name in node.names
        if name.name not in names_of(found[node.module])
    ]
    assert missing == []


def names_of(path: Path) -> set[str]:
    """Names that a module has at its top."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    targets = (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)] for node in body)
    names = {target.id for each in targets for target in each if isinstance(target, ast.Name)}
    names |= {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    imports = (node for node in body if isinstance(node, ast.Import | ast.ImportFrom))
    return names | {alias.asname or alias.name for node in imports for alias in node.names}
