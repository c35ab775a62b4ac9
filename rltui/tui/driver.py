"""Textual's driver of the terminal, but that it sleeps where nobody types, and mends what a killed program left.

Textual looks ten times a second whether its thread is to end, which is most of what an idle cockpit costs. Here a pipe
says so. Soon after a key it looks as often as Textual does: only so does it tell an ESC from the start of a sequence.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import termios
import time
from types import SimpleNamespace

from textual.drivers import linux_driver

QUIET_S = 1.0
"""Seconds after the last key from which the thread sleeps."""

MOST_S = 10.0
"""Longest sleep, should Textual end its thread in a way that is not known here."""


class PatientSelector(selectors.SelectSelector):
    """Waits for the terminal, and for the end of the pipe ``wake``, of which its user hears nothing."""

    def __init__(self, wake: int) -> None:
        super().__init__()
        self._wake = wake
        self._is_ending = False
        self._typed_at_s = time.monotonic()
        self.register(wake, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What can be read, as soon as there is something; after ``timeout`` seconds only where somebody types."""
        is_quiet = not self._is_ending and time.monotonic() - self._typed_at_s > QUIET_S
        found = super().select(MOST_S if is_quiet else timeout)
        typed = [one for one in found if one[0].fd != self._wake]
        if typed:
            self._typed_at_s = time.monotonic()
        if len(typed) < len(found):
            self._is_ending = True
            self.unregister(self._wake)
        return typed


class PatientDriver(linux_driver.LinuxDriver):
    """The driver of Linux and macOS."""

    _wake: int | None = None
    """The end of the pipe whose closing ends the thread's sleep."""

    def start_application_mode(self) -> None:
        """Take the terminal; what it is given back as is a terminal that echoes and reads lines."""
        mend(self.fileno)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._leave)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Give the terminal back: nobody has to any more who is told to end."""
        super().stop_application_mode()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    def _leave(self) -> None:
        self._app.exit(return_code=128 + signal.SIGTERM)

    def run_input_thread(self) -> None:
        """Read the terminal until the end."""
        heard, self._wake = os.pipe()
        patient = SimpleNamespace(SelectSelector=lambda: PatientSelector(heard), EVENT_READ=selectors.EVENT_READ)
        linux_driver.selectors = patient  # type: ignore[assignment, attr-defined]
        try:
            super().run_input_thread()
        finally:
            linux_driver.selectors = selectors  # type: ignore[attr-defined]
            self._wake_up()
            os.close(heard)

    def disable_input(self) -> None:
        """End the thread, which may sleep."""
        self._wake_up()
        super().disable_input()

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            os.close(wake)


def mend(terminal: int) -> None:
    """Make a terminal read lines again that a killed program, such as a cockpit after ``kill -9``, left raw.

    Shells start programs in a terminal that reads lines, so one that does not was left so; whoever saves that state
    before taking the terminal would give it back raw again.
    """
    with contextlib.suppress(termios.error):  # it is no terminal
        inputs, outputs, control, local, *speeds = termios.tcgetattr(terminal)
        if local & termios.ICANON:
            return
        local |= termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN
        inputs |= termios.ICRNL | termios.IXON
        termios.tcsetattr(terminal, termios.TCSANOW, [inputs, outputs | termios.OPOST, control, local, *speeds])
