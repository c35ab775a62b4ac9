"""Where the user's own files lie, and who may enter."""

from __future__ import annotations

import pwd
import resource
import stat
from pathlib import Path

import pytest

from rltui import paths
from rltui.errors import RltuiError


def test_without_a_word_files_lie_below_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RLTUI_CONFIG_DIR", "XDG_CONFIG_HOME", "RLTUI_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.config_dir() == tmp_path / ".config/rltui"
    monkeypatch.setenv("XDG_CONFIG_HOME", "not/absolute")  # the XDG specification has it ignored
    assert paths.config_dir() == tmp_path / ".config/rltui"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert paths.config_dir() == Path("/somewhere/rltui")
    monkeypatch.setenv("RLTUI_CONFIG_DIR", "~/mine")
    assert paths.config_dir() == tmp_path / "mine"


def test_a_user_who_is_in_no_list_of_users_has_a_home_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert paths.home_dir() == Path("/")


def test_a_name_that_no_file_can_have_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, file, folder in (
        ("file", True, False),
        ("", False, True),
        ("a" * 300, False, False),
        ("a\0", False, False),
    ):
        assert (paths.is_file(tmp_path / name), paths.is_folder(tmp_path / name)) == (file, folder), name[:9]


def test_a_private_folder_is_its_owners_alone(tmp_path: Path) -> None:
    made = paths.ensure_private(tmp_path / "state")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o770)
    with pytest.raises(RltuiError, match="can be written by others"):
        paths.ensure_private(made)
    (tmp_path / "file").write_text("")
    with pytest.raises(RltuiError, match="Cannot make"):
        paths.ensure_private(tmp_path / "file" / "state")


def test_a_full_disk_takes_nothing_of_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))
    assert paths.keep("filters", "mine state:failed\n") == ""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        problem = paths.keep("filters", "mine state:failed\nother grpo\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert problem.startswith("filters: not kept: ")
    assert paths.kept_text("filters") == "mine state:failed"
    assert [one.name for one in (tmp_path / "state").iterdir()] == ["filters"]
