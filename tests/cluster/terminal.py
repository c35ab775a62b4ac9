"""A real terminal for tests: one tmux server of its own, driven by keys and read as text."""

import os
import subprocess
import time
from collections.abc import Mapping


class Terminal:
    """A detached tmux session that runs one command.

    Args:
        command: Shell command line.
        environment: Variables of the command.
        width: Columns.
        height: Rows.
    """

    def __init__(self, command: str, environment: Mapping[str, str], width: int = 80, height: int = 24) -> None:
        self._socket = f"rltui-test-{os.getpid()}"
        variables = [f"{name}={value}" for name, value in environment.items()]
        shell = ["env", "-i", *variables, "TERM=tmux-256color", "sh", "-c", f"{command}; echo EXIT-$?; exec sleep 600"]
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), *shell)

    def _tmux(self, *words: str) -> str:
        argv = ["tmux", "-L", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._tmux("send-keys", *keys)

    def screen(self) -> str:
        """What the terminal shows."""
        return self._tmux("capture-pane", "-p")

    def until(self, words: str, deadline_s: float = 60.0) -> str:
        """Wait until the screen shows ``words``; returns the screen."""
        deadline = time.monotonic() + deadline_s
        while words not in (screen := self.screen()):
            assert time.monotonic() < deadline, f"{words!r} did not appear within {deadline_s} s:\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self) -> None:
        """End the session with all that runs in it."""
        self._tmux("kill-server")
