"""A real terminal for tests: one tmux server of its own, driven by keys and read as text."""

import os
import subprocess
from collections.abc import Mapping

from waiting import eventually


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

    def until(self, words: str) -> str:
        """Wait until the screen shows ``words``; returns the screen."""
        return eventually(
            lambda: screen if words in (screen := self.screen()) else "", repr(words), poll_s=0.1, saw=self.screen
        )

    def close(self) -> None:
        """End the session with all that runs in it."""
        self._tmux("kill-server")
