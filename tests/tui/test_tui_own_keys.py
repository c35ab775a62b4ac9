"""The user's own keys: what the file changes, what of it is ignored and said, and that all screens speak of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from canned_runs import RUNS
from pictures import cockpit, notices, press, screen_text, until, until_text

from rltui.cli.main import main
from rltui.tui import own_keys
from rltui.tui.glyphs import ASCII
from rltui.tui.keys import KeyContext
from rltui.tui.places import key_tables
from rltui.tui.screens.run import RunScreen

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def keys_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "keys.yaml"


def problems() -> tuple[str, ...]:
    own_keys.read_own_keys.cache_clear()
    return own_keys.all_problems(key_tables())


def test_a_key_is_moved_and_taken_from_who_had_it() -> None:
    usual = RunScreen.KEYS
    table, said = own_keys.with_own_keys("run", usual, {"run": {"shell": ("f4", "c")}, "everywhere": {"help": ("f1",)}})
    assert table.find("shell").keys == ("f4", "c")
    assert table.find("help").keys == ("f1",)
    assert table.pressed("c", "c") is table.find("shell")
    assert table.pressed("question_mark", "?") is None
    assert said == ("run: cancel has no key any more, as shell has taken c",)
    assert "c" not in [hint.key for hint in table.hints(KeyContext(run_state="runzing"), ASCII)]
    assert table.find("next_tab").keys == usual.find("next_tab").keys


def test_a_screens_own_word_wins_and_of_two_with_one_key_the_first_keeps_it() -> None:
    own: own_keys.OwnKeys = {"everywhere": {"cancel": ("f2",)}, "run": {"cancel": ("f3",), "resubmit": ("f3", "f5")}}
    table, said = own_keys.with_own_keys("run", RunScreen.KEYS, own)
    assert (table.find("cancel").keys, table.find("resubmit").keys) == (("f3",), ("f5",))
    assert said == ("run: f3 is given to cancel and to resubmit; cancel keeps it",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: {canc: f2}", "run has no action 'canc': did you mean 'cancel'?"),
        ("runz: {cancel: f2}", "there is no screen 'runz': did you mean 'run'?"),
        ("run: {cancel: pagedwn}", "run.cancel: 'pagedwn' is no key, did you mean pagedown?"),
        ("run: {cancel: ctrl+c}", "run.cancel: ctrl+c is for leaving"),
        ("run: f2", "run: its form is run: {action: key}"),
        ("confirm: {yes: Y}", "the keys of confirm stay as they are"),
        ("- run", "is ignored"),
        ("run: {cancel: [f2", "is ignored"),
        ("run: {cancel: f2, resubmit: [f3, ctrl+r]}", ""),
        ("", ""),
    ],
)
def test_what_cannot_be_used_is_said(keys_yaml: Path, text: str, words: str) -> None:
    keys_yaml.write_text(text)
    assert words in " ".join(problems())
    assert bool(words) == bool(problems())


def test_the_verb_shows_the_result_and_checks_it(keys_yaml: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys_yaml.write_text("run: {shell: f4, canc: f2}")
    own_keys.read_own_keys.cache_clear()
    assert main(["keys", "--check"]) == 1
    assert "did you mean 'cancel'?" in capsys.readouterr().out
    assert main(["keys", "run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"id": "shell", "keys": ["f4"]}.items() <= next(
        key for key in told["screens"]["run"] if key["id"] == "shell"
    ).items()
    assert len(told["problems"]) == 1
    assert main(["keys"]) == 0
    said = capsys.readouterr()
    assert "f4" in said.out
    assert "keys.yaml: run has no action 'canc'" in said.err


async def test_footer_help_and_palette_speak_of_the_users_keys(keys_yaml: Path) -> None:
    keys_yaml.write_text("run: {cancel: f2, shell: ctrl+g}\neverywhere: {help: f1}\nlaunch: {nonsense: x}")
    own_keys.read_own_keys.cache_clear()
    async with cockpit(open_run=RUNS[0].run_id) as pilot:
        await until_text(pilot, "f2 cancel")
        await until(pilot, lambda: "launch has no action 'nonsense'" in notices(pilot))
        await press(pilot, "f1")
        await until_text(pilot, "esc closes")
        await press(pilot, "escape", "x")
        await until_text(pilot, "ctrl+g shell")
        assert " f2     cancel" in screen_text(pilot)
        await press(pilot, "escape", "f2")
        await until_text(pilot, "Cancel ")
        assert "Cancel" in screen_text(pilot)
