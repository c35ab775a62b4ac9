"""The real program in a real terminal: tmux types and reads the screen. Faults are the fake cockpit's."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from canned_runs import RUNS

from waiting import eventually, longest_s

pytestmark = [pytest.mark.tmux, pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")]

ROOT = Path(__file__).resolve().parents[2]


class Tmux:
    """A tmux server of our own with one window."""

    def __init__(self, socket: str, folder: str) -> None:
        self._socket = socket
        self._folder = folder

    def run(self, *words: str, check: bool = True) -> str:
        command = ["tmux", "-L", self._socket, "-f", "/dev/null", *words]
        # A copy of the environment: pytest imports readline, which sets LINES and COLUMNS behind Python's back.
        environment = os.environ | {"TMUX_TMPDIR": self._folder}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=longest_s(), check=False, env=environment
        )
        if check and done.returncode:
            raise AssertionError(f"{shlex.join(command)}: {done.stderr}")
        return done.stdout

    def start(self, *arguments: str, size: tuple[int, int] = (80, 24), environment: str = "") -> None:
        program = shlex.join([sys.executable, str(ROOT / "tests/tui/run_fake.py"), *arguments])
        shell = f"env COLORTERM=truecolor {environment} {program}; echo rc=$?; cat"
        self.run("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", str(ROOT), shell)

    def screen(self, escapes: bool = False) -> str:
        return self.run("capture-pane", "-p", *(["-e"] if escapes else []))

    def modes(self) -> str:
        """What a full-screen program changes, and has to change back."""
        words = "alternate #{alternate_on} cursor #{cursor_flag} mouse #{mouse_any_flag}"
        return self.run("display-message", "-p", words).strip()

    def program(self) -> int:
        """The process that the pane's shell has started."""
        pane = int(self.run("display-message", "-p", "#{pane_pid}"))
        [program] = Path(f"/proc/{pane}/task/{pane}/children").read_text().split()
        return int(program)

    def until(self, words: str) -> str:
        """Wait until the screen shows ``words``."""
        return self.until_so(lambda screen: words in screen, f"{words!r}")

    def until_so(self, is_so: Callable[[str], bool], what: str) -> str:
        """Wait until ``is_so`` holds of the screen."""

        def fitting() -> str:
            screen = self.screen()
            return screen if is_so(screen) else ""

        return eventually(fitting, what, poll_s=0.02, saw=self.screen)

    def keys(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def type(self, text: str) -> None:
        self.run("send-keys", "-l", text)


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    # Each test has a server of its own: one that is ending takes down a session that is started on its socket.
    with tempfile.TemporaryDirectory(prefix="rltui-tmux-") as folder:
        terminal = Tmux(f"rltui-test-{os.getpid()}", folder)
        yield terminal
        terminal.run("kill-server", check=False)


def test_from_the_list_to_a_launched_run_and_out(tmux: Tmux) -> None:
    tmux.start()
    screen = tmux.until("ada-laptop")
    assert "▶ training" in screen
    assert all(len(line) <= 80 for line in screen.splitlines())
    tmux.keys("n")
    tmux.until("✓ ready: ⏎ launches")
    tmux.type("strain.steps=5")
    tmux.until("set train.steps=5")
    tmux.keys("Enter")
    tmux.until("ready")
    tmux.until("─ overrides ─")
    tmux.keys("Enter")
    tmux.until("rltui › grpo-tiny-new11")
    tmux.keys("q")
    tmux.until("grpo-tiny-new11")
    tmux.keys("q")
    screen = tmux.until("rc=0")
    assert "7 runs go on without the cockpit." in screen


def test_a_burst_of_keys_in_one_write(tmux: Tmux) -> None:
    tmux.start()
    tmux.until(RUNS[0].run_id)
    tmux.type("/7b r2\r")
    tmux.until("1 of 11 /7b r2")
    tmux.type("\r6")
    tmux.until("step 399")
    tmux.type("/preempted\rnn")
    tmux.until("preempted 4 lines")
    tmux.type("qq")
    tmux.until("rc=0")


def test_pasting_is_not_typing(tmux: Tmux) -> None:
    tmux.start()
    tmux.until("ada-laptop")
    tmux.run("set-buffer", "qcy\nq")
    tmux.run("paste-buffer", "-p")
    tmux.keys("j")
    screen = tmux.until(f"─ {RUNS[1].run_id} ")
    assert "rc=" not in screen
    assert "Cancel" not in screen


def test_resizing_and_ctrl_c_twice(tmux: Tmux) -> None:
    tmux.start(size=(120, 40))
    tmux.until("CLUSTER")
    tmux.run("resize-window", "-x", "40", "-y", "10")
    screen = tmux.until_so(lambda screen: "CLUSTER" not in screen and "STATE" in screen, "the list in fewer columns")
    assert all(len(line) <= 40 for line in screen.splitlines())
    tmux.keys("C-c")
    tmux.until("ctrl+c again")
    tmux.keys("C-c")
    tmux.until("rc=0")


def test_a_shell_takes_the_terminal_and_gives_it_back(tmux: Tmux, tmp_path: Path) -> None:
    tmux.start("--open", RUNS[0].run_id, environment=f"RLTUI_STATE_DIR={tmp_path}/state")
    tmux.until("Learner 2/2")
    tmux.type("$")
    screen = tmux.until("this is a shell")
    assert "$ sh -c" in screen, "the command is shown first"
    assert "Overview" not in screen
    tmux.type("typed\r")
    assert tmux.until("typed\ntyped")
    tmux.keys("C-c")  # it ends what runs there, not the cockpit
    tmux.until("enter goes back")
    tmux.keys("Enter")
    tmux.until("Learner 2/2")
    tmux.type("6")
    tmux.until("step 399")
    entries = [json.loads(line) for line in (tmp_path / "state/journal.jsonl").read_text().splitlines()]
    assert [(entry["action"], entry["phase"]) for entry in entries] == [("shell", "intent"), ("shell", "done")]
    tmux.type("qq")
    tmux.until("rc=0")


def test_hostile_text_leaves_the_terminal_alone(tmux: Tmux) -> None:
    tmux.start("--hostile", size=(120, 30))
    tmux.until("[red]markup[/red]")
    for _ in range(4):
        tmux.keys("j")
    tmux.keys("Enter", "6")
    tmux.until("[bold red]not markup[/]")
    title = tmux.run("display-message", "-p", "#{pane_title}")
    assert "hi" not in title.split()
    assert "title" not in title
    assert tmux.run("show-buffer", check=False) == ""
    tmux.keys("q", "q")
    tmux.until("rc=0")


def test_no_color_writes_no_colour(tmux: Tmux) -> None:
    tmux.start(environment="NO_COLOR=1")
    tmux.until("ada-laptop")
    escapes = tmux.screen(escapes=True)
    colours = [
        part
        for code in escapes.split("\x1b[")[1:]
        for part in code.partition("m")[0].split(";")
        if part.isdigit() and (30 <= int(part) <= 38 or 40 <= int(part) <= 48 or int(part) >= 90)
    ]
    assert colours == []
    assert "\x1b[7m" in escapes, "the cursor's row is reversed"


def test_ascii_only(tmux: Tmux) -> None:
    tmux.start("--ascii")
    assert tmux.until("> training").isascii()


def test_leaving_while_the_services_hang(tmux: Tmux) -> None:
    tmux.start("--slow", "86400")  # longer than the test waits for anything
    tmux.until("looking for runs")
    tmux.keys("q")
    tmux.until("rc=0")


def test_a_recording_without_any_cluster_and_without_colour(tmux: Tmux, tmp_path: Path) -> None:
    recording = ROOT / "tests/fixtures/recording/grpo-tiny.tar.gz"
    program = shlex.join([sys.executable, "-m", "rltui", "replay", str(recording), "--at", "60%", "--speed", "0.25"])
    away = f"RLTUI_CONFIG_DIR={tmp_path}/none RLTUI_RUN_ROOT={tmp_path}/no NO_COLOR=1 TMPDIR={tmp_path}"
    tmux.run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), f"env {away} {program}; echo rc=$?; cat")
    screen = tmux.until("▶ replay ×0.25  0:00:")
    assert int(screen.partition("×0.25  0:00:")[2][:2]) >= 20, "it begins late in the recording"
    assert all(len(line) <= 80 for line in screen.splitlines())
    assert not re.search(r"\x1b\[(?:\d+;)*3[0-8]", tmux.screen(escapes=True))
    tmux.keys("Space")
    tmux.until("‖ paused")
    tmux.type("tend\r")
    tmux.until("end of recording")
    tmux.keys("q")
    tmux.until("rc=0")
    assert not list(tmp_path.glob("rltui-replay-*"))


def test_who_is_told_to_end_gives_the_terminal_back(tmux: Tmux) -> None:
    tmux.start()
    tmux.until("ada-laptop")
    os.kill(tmux.program(), signal.SIGTERM)
    tmux.until(f"rc={128 + signal.SIGTERM}")
    assert tmux.modes() == "alternate 0 cursor 1 mouse 0"
    tmux.type("typed\r")
    assert tmux.until("typed\ntyped"), "it is echoed, and given to the program by lines"


def test_after_kill_9_the_next_start_leaves_a_terminal_that_works(tmux: Tmux) -> None:
    program = shlex.join([sys.executable, str(ROOT / "tests/tui/run_fake.py")])
    shell = f"{program}; echo killed; {program} --readonly; echo rc=$?; cat"
    tmux.run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(ROOT), shell)
    tmux.until("ada-laptop")
    assert tmux.modes() == "alternate 1 cursor 0 mouse 1", "the terminal is the cockpit's"
    os.kill(tmux.program(), signal.SIGKILL)
    tmux.until("read-only")
    tmux.until("ada-laptop")
    tmux.keys("q")
    tmux.until("rc=0")
    assert tmux.modes() == "alternate 0 cursor 1 mouse 0"
    tmux.type("typed\r")
    assert tmux.until("typed\ntyped"), "it is echoed, and given to the program by lines"
