"""``:`` takes the verbs of the shell, all of them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, press, screen_text, until, until_text
from textual.events import Key, Paste
from textual.widgets import Input

from rltui.service.shell import ShellCommand
from rltui.service.verb_table import VERBS
from rltui.tui import commands
from rltui.tui.screens.output import OutputScreen
from rltui.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.tui.app import CockpitApp

REFUSED = ("no command", "cannot be done", "takes ")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
async def test_every_verb_of_the_shell_is_taken(verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cockpit() as pilot:
        app: CockpitApp = pilot.app
        said: list[str] = []
        ran: list[tuple[str, ...]] = []
        monkeypatch.setattr(app, "say", lambda text, *_: said.append(text))
        monkeypatch.setattr(app.controller, "shell", lambda words, *_: ran.append(words) or ShellCommand(words))
        app.obey(f"{verb.name} {next(iter(app.pictures.names.values()))}" if verb.name == "attach" else verb.name)
        await flushed(pilot)
        assert not [text for text in said if any(word in text for word in REFUSED)]
        on_output = isinstance(app.screen, OutputScreen)
        assert on_output == (verb.name not in commands.OWN and verb.use != "terminal")
        assert bool(ran) == (on_output and verb.use == "reads")
        if ran and verb.takes == "run":
            assert ran == [(verb.name, next(iter(app.pictures.names.values())))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("show", ("show", "grpo-1")),
        ("show --memory", ("show", "grpo-1", "--memory")),
        ("show coin-2 --json", ("show", "coin-2", "--json")),
        ("gpus --json", ("gpus", "grpo-1", "--json")),
        ("doctor", ("doctor", "hpc")),
        ("doctor lab", ("doctor", "lab")),
        ("draw local/grpo-tiny 'train.note=a b'", ("draw", "local/grpo-tiny", "train.note=a b")),
        ("clusters hpc", ("clusters", "hpc")),
        ("schema", ("schema",)),
    ],
)
def test_what_is_looked_at_stands_in_where_nothing_is_named(text: str, words: tuple[str, ...]) -> None:
    command = commands.parse(text)
    assert command.problem == ""
    assert commands.filled(command, {"run": "grpo-1", "cluster": "hpc"}) == words


def test_options_that_change_something_are_known() -> None:
    nodes, check = commands.SHELL["nodes"], commands.SHELL["check"]
    assert nodes.changes(("hpc", "--forget=n1"))
    assert not nodes.changes(("hpc",))
    assert check.changes(("x.yaml", "--fix", "--write"))


async def test_a_verb_that_reads_shows_what_it_prints_and_leaves_with_escape() -> None:
    async with cockpit(size=(100, 30)) as pilot:
        await enter(pilot, ":explain P105\n")
        screen = pilot.app.screen
        assert isinstance(screen, OutputScreen)
        await until(pilot, lambda: screen.command.exit_code is not None, "the end of the verb")
        await until(pilot, lambda: "exit code 0" in screen_text(pilot), "the exit code on the screen")
        assert "P105 (error)" in screen_text(pilot)
        screen.command._lines.append(  # as if it had been printed: the screen shows what the command has, at any tick
            f"{'name':120}the end of a long line"
        )
        screen.catch_up()
        await press(pilot, *(">" * 6))
        await until_text(pilot, "the end of a long line")
        await press(pilot, *(["left"] * 6))
        await until_text(pilot, "name")
        await press(pilot, "G", "Y", "escape")
        assert not isinstance(pilot.app.screen, OutputScreen)


@pytest.mark.parametrize("readonly", [True, False])
async def test_a_verb_that_changes_something_waits_for_a_yes(readonly: bool) -> None:
    async with cockpit(readonly=readonly, size=(100, 30)) as pilot:
        await enter(pilot, ":hold no-such-run\n")
        screen = pilot.app.screen
        assert "changes something" in screen_text(pilot)
        assert screen.command is None
        await press(pilot, "y")
        if readonly:
            assert screen.command is None
            return
        await until(pilot, lambda: screen.command.exit_code is not None, "the end of the verb")
        assert screen.command.exit_code == 2
        assert any("no-such-run" in line for line in screen.command.lines)


async def test_a_verb_that_asks_is_answered_once_its_preview_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cockpit(size=(100, 30)) as pilot:
        await enter(pilot, ":launch local/grpo-tiny --sweep train.seed=1,2\n")
        screen = pilot.app.screen
        await press(pilot, "y")
        await until(pilot, lambda: screen.command.exit_code is not None, "the question")
        await until_text(pilot, "waits for y")
        assert "2 runs of local/grpo-tiny" in screen_text(pilot)
        ran: list[tuple[str, ...]] = []
        monkeypatch.setattr(
            pilot.app.controller, "shell", lambda words, *_: ran.append(words) or ShellCommand(("explain", "P105"))
        )
        await press(pilot, "y")
        assert ran == [("launch", "--yes", "local/grpo-tiny", "--sweep", "train.seed=1,2")]


def test_a_verb_that_does_not_end_is_ended(tmp_path: Path) -> None:
    pipe = tmp_path / "waits.log"
    os.mkfifo(pipe)
    command = ShellCommand(("why", "--log", str(pipe)))
    thread = threading.Thread(target=command.run, args=(lambda: None,))
    thread.start()
    writer = os.open(pipe, os.O_WRONLY)  # opens when the verb reads
    command.stop()
    thread.join(30)
    os.close(writer)
    assert not thread.is_alive()
    assert command.exit_code == 130
    assert command.lines[-1].startswith("rltui: interrupted"), "it is listened to until its last words"


async def test_at_shows_what_was_done_from_here() -> None:
    async with cockpit(size=(100, 30)) as pilot:
        await press(pilot, "@")
        screen = pilot.app.screen
        assert isinstance(screen, OutputScreen)
        await until(pilot, lambda: screen.command.exit_code == 0, "the journal")
        await until_text(pilot, "rltui journal")


async def test_tab_shows_what_fits_and_goes_through_it() -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":canc\t")
        prompt = pilot.app.screen.prompt
        assert prompt.text == "cancel "
        await press(pilot, "escape")
        await enter(pilot, ":theme \t")
        prompt = pilot.app.screen.prompt
        await until_text(pilot, " dark  light  mono")
        assert prompt.text == "theme "
        await press(pilot, "tab")
        assert prompt.text == "theme dark"
        await press(pilot, "tab", "tab")
        assert prompt.text == "theme mono"
        await press(pilot, "tab", "shift+tab")
        assert prompt.text == "theme mono"
        await press(pilot, "backspace")
        assert "dark  light" not in screen_text(pilot)
        await press(pilot, "tab")
        assert prompt.text == "theme mono"
        assert "dark  light" not in screen_text(pilot)


async def test_choices_that_have_no_room_come_when_they_are_reached() -> None:
    async with cockpit(size=(40, 12)) as pilot:
        await enter(pilot, ":\t")
        await until_text(pilot, sorted(commands.VERBS)[0])
        assert sorted(commands.VERBS)[-1] not in screen_text(pilot)
        await press(pilot, "shift+tab")
        await until_text(pilot, sorted(commands.VERBS)[-1])
        assert pilot.app.screen.prompt.text == sorted(commands.VERBS)[-1]


async def test_letters_typed_while_a_prompt_opens_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the screen still has is not overtaken by those that come to the input once it has the focus."""
    mounted = Prompt.on_mount

    def mount_late(prompt: Prompt) -> None:
        prompt.screen.post_message(Key("e", "e"))
        mounted(prompt)
        for letter in "nding":
            prompt.query_one(Input).post_message(Key(letter, letter))

    monkeypatch.setattr(Prompt, "on_mount", mount_late)
    async with cockpit(FakeCockpit()) as pilot:
        await press(pilot, ":")
        await until(pilot, lambda: len(pilot.app.screen.query_one(Input).value) == 6, "all letters")
        assert pilot.app.screen.query_one(Input).value == "ending"
        await press(pilot, "s")
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "endings", "one more")


@pytest.mark.parametrize(
    ("pasted", "text"),
    [
        ("launch run.sh \\\n  --nodes 2 \\\n  --gpus-per-node 8\n", "launch run.sh --nodes 2 --gpus-per-node 8"),
        ("a  b\\\n", "a  b\\"),
        ("\n\n", ""),
    ],
    ids=["several lines", "one line as it is", "nothing"],
)
async def test_all_lines_that_are_pasted_are_there(pasted: str, text: str) -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":")
        prompt = pilot.app.screen.query_one(Input)
        prompt.post_message(Paste(pasted))
        await flushed(pilot)
        assert prompt.value == text
