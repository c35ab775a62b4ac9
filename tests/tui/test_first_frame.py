"""The frame before Textual: what it shows, and that the terminal is given back on every way out."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from canned_runs import HOSTILE_RUNS, NOW, RUNS
from msgspec import structs

from rltui.service.last_rows import LastRows
from rltui.tui.first_frame import frame, painted
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.spans import width_of
from rltui.watch.snapshots import RunsSnapshot
from waiting import eventually, longest_s

ROOT = Path(__file__).resolve().parents[2]
ENTERS, LEAVES = "\x1b[?1049h", "\x1b[?1049l"
LAST = RunsSnapshot(runs=RUNS, taken_at=NOW, problem="as of 09:12, reading …")


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("runs", [RUNS, HOSTILE_RUNS, ()], ids=["runs", "hostile", "none"])
def test_it_fills_the_screen_exactly(size: tuple[int, int], runs: tuple) -> None:
    rows = frame(RunsSnapshot(runs=runs, taken_at=NOW if runs else 0.0), *size, UNICODE)
    assert [width_of(row.spans) for row in rows] == [size[0]] * size[1]
    assert not re.search(r"\x1b(?!\[(?:\d+;1H|\d?m))|[\x00-\x1a\x1c-\x1f]", painted(rows, ascii_only=False))


def test_it_says_of_when_it_is() -> None:
    rows = [row.plain for row in frame(LAST, 159, 24, UNICODE, readonly=True)]
    assert rows[0].startswith(" rltui ")
    assert "read-only  ▲ as of 09:12, reading …" in rows[0]
    assert rows[1].startswith(" RUN")
    assert all(run.run_id in row for run, row in zip(RUNS[:3], rows[2:], strict=False))


def test_nothing_was_ever_seen() -> None:
    assert "looking for runs …" in frame(RunsSnapshot(), 80, 24, UNICODE)[1].plain


def test_ascii_and_no_colours() -> None:
    sent = painted(frame(LAST, 80, 24, ASCII), ascii_only=True)
    assert sent.isascii()
    assert set(re.findall(r"\x1b\[(\d*)m", sent)) <= {"", "1", "2"}


class Terminal:
    """``rltui`` in a terminal of its own, which keeps all that it is sent."""

    def __init__(self, home: Path, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes = termios.tcgetattr(slave)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "RLTUI_"))}
        own = {"HOME": str(home), "TERM": "xterm-256color", "RLTUI_CACHE_DIR": str(home / "cache")} | environment
        for name in ("COLUMNS", "LINES"):
            kept.pop(name, None)

        def take_terminal() -> None:
            ioctl(slave, termios.TIOCSCTTY, 0)  # so that ctrl+c arrives

        self.process = subprocess.Popen(
            [sys.executable, "-m", "rltui"],
            cwd=ROOT,
            env=kept | own,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=take_terminal,
            start_new_session=True,
        )
        self.slave = slave
        self.sent = ""

    def until(self, words: str) -> str:
        """Wait until it was sent ``words``."""

        def is_there() -> bool:
            if words not in self.sent and select.select([self.master], [], [], 0.1)[0]:
                self.sent += os.read(self.master, 1 << 16).decode(errors="replace")
            return words in self.sent

        eventually(is_there, f"{words!r}", poll_s=0.0, saw=lambda: repr(self.sent))
        return self.sent

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    here = tuple(structs.replace(run, path="") for run in RUNS)  # theirs are in another run root
    LastRows(tmp_path / "cache", "local").keep(RunsSnapshot(runs=here, taken_at=NOW))
    return tmp_path


@pytest.fixture
def broken(home: Path) -> Iterator[dict[str, str]]:
    """A Textual that takes long to import, or cannot be."""
    (home / "broken").mkdir()
    (home / "broken/textual.py").write_text(
        "import os, time\nos.environ['HANG'] and time.sleep(60)\nraise OSError(5)\n"
    )
    return {"PYTHONPATH": str(home / "broken"), "TMPDIR": str(home)}


def test_the_frame_then_the_cockpit_in_its_place(home: Path) -> None:
    terminal = Terminal(home)
    try:
        terminal.until("\x1b[?1004h")  # Textual has the terminal
        first = terminal.sent.partition("\x1b[?1004h")[0]
        assert first.index(ENTERS) < first.index("reading …") < first.index(RUNS[0].run_id)
        assert LEAVES not in first
        terminal.until("no runs yet")  # nothing is in the run root: what is read now replaces the last rows
        os.write(terminal.master, b"q")
        terminal.until(LEAVES)
        assert terminal.process.wait(longest_s()) == 0
        assert terminal.sent.count(LEAVES) == 1
        assert termios.tcgetattr(terminal.slave) == terminal.modes
    finally:
        terminal.close()


@pytest.mark.parametrize(("way", "code"), [("fails", 70), ("ctrl+c", 130), ("SIGTERM", 143)])
def test_the_terminal_is_given_back(home: Path, broken: dict[str, str], way: str, code: int) -> None:
    terminal = Terminal(home, HANG="" if way == "fails" else "1", **broken)
    try:
        terminal.until("opening the cockpit")
        if way == "ctrl+c":
            os.write(terminal.master, b"\x03")
        elif way == "SIGTERM":
            terminal.process.send_signal(signal.SIGTERM)
        assert "\x1b[?25h" in terminal.until(LEAVES + "\x1b[?25h")
        assert terminal.process.wait(longest_s()) == code
        assert termios.tcgetattr(terminal.slave) == terminal.modes
    finally:
        terminal.close()


@pytest.mark.parametrize("size", [(39, 24), (80, 9)])
def test_no_frame_where_it_does_not_fit(home: Path, broken: dict[str, str], size: tuple[int, int]) -> None:
    terminal = Terminal(home, *size, HANG="", **broken)
    try:
        assert ENTERS not in terminal.until("should not have happened")
    finally:
        terminal.close()
