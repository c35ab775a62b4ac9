"""Questions of an SSH server or key to the user, and who may answer them: on the terminal, or in another thread."""

from __future__ import annotations

import atexit
import getpass
import os
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal, Protocol

from msgspec import Struct

from rltui.cluster.transport import NeedsAttentionError

QuestionKind = Literal["password", "passphrase", "interactive", "host-key"]

YES = "yes"
"""The answer that confirms a host key; a fingerprint that equals the one shown does too."""


class Field(Struct, frozen=True):
    """One thing that is asked for."""

    text: str
    """What to show before the answer, such as ``Password:``."""
    echo: bool = False
    """Whether the answer may be seen while it is typed."""


class Question(Struct, frozen=True):
    """One prompt: all of its fields are answered at once. Its words are free of control characters."""

    kind: QuestionKind
    title: str
    """Who asks, such as ``alice@login.example.org``."""
    fields: tuple[Field, ...]
    instructions: tuple[str, ...] = ()
    """Lines to show above the fields."""


class Prompter(Protocol):
    """Whoever can be asked. ``ask`` may be called by any thread, and may take as long as a person takes."""

    @property
    def attended(self) -> bool:
        """Whether somebody is there to answer. Where not, nothing is begun that would need an answer."""

    def ask(self, question: Question) -> tuple[str, ...]:
        """The answers, one a field.

        Raises:
            NeedsAttentionError: Nobody is there, or the user would not answer.
        """


class UnattendedPrompter:
    """The prompter of background refreshes: it refuses."""

    attended = False

    def ask(self, question: Question) -> tuple[str, ...]:
        """Refuse: nobody is there who could answer; see ``Prompter``."""
        raise NeedsAttentionError(f"{question.title} asks something, and this is no moment to ask you.", NEXT_STEP)


NEXT_STEP = "Connect in a terminal once: `rltui doctor CLUSTER` asks you what it needs."


_asking = threading.Lock()
"""Of several machines that ask at once, one is answered after the other: a password must not reach the wrong one."""


class TerminalPrompter:
    """Asks on the controlling terminal, whatever stdin and stdout are; a process without one is unattended."""

    @property
    def attended(self) -> bool:
        """Whether this process has a terminal."""
        try:
            with open("/dev/tty", "r+b", buffering=0):  # noqa: PTH123 (a device, not a file)
                return True
        except OSError:
            return False

    def ask(self, question: Question) -> tuple[str, ...]:
        """Show the question and read the answers; see ``Prompter``."""
        if not self.attended:
            return UnattendedPrompter().ask(question)
        restore_at_exit()
        try:
            with _asking:
                with open("/dev/tty", "w") as terminal:  # noqa: PTH123
                    terminal.write("".join(f"{line}\n" for line in (f"{question.title}:", *question.instructions)))
                return tuple(_read(field) for field in question.fields)
        except (EOFError, KeyboardInterrupt) as error:
            raise NeedsAttentionError(f"You did not answer {question.title}.", "Run it again to be asked.") from error


@cache
def restore_at_exit() -> None:
    """Let the terminal show what is typed again when this process ends.

    Questions are asked in whatever thread they come up in; an interrupt goes to the main thread, and the other one
    never comes to undo what it did to the terminal.
    """
    descriptor = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    as_it_was = termios.tcgetattr(descriptor)
    atexit.register(termios.tcsetattr, descriptor, termios.TCSADRAIN, as_it_was)


def _read(field: Field) -> str:
    prompt = f"  {field.text.rstrip()} "
    if not field.echo:
        return getpass.getpass(prompt)
    # twice: a text file to read and write has to be one that can seek, and a terminal cannot
    with open("/dev/tty", "w") as terminal, open("/dev/tty") as keyboard:  # noqa: PTH123
        terminal.write(prompt)
        terminal.flush()
        line = keyboard.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


class SwitchedPrompter:
    """Refuses until somebody attends: the cockpit's clusters are opened with one, and refresh in the background."""

    def __init__(self) -> None:
        self._now: Prompter = UnattendedPrompter()

    @property
    def attended(self) -> bool:
        """Whether the prompter of this moment has a person behind it."""
        return self._now.attended

    def ask(self, question: Question) -> tuple[str, ...]:
        """Pass the question on; see ``Prompter``."""
        return self._now.ask(question)

    @contextmanager
    def attend(self, prompter: Prompter) -> Iterator[None]:
        """Let ``prompter`` answer for the length of the block: the user asked for the connection."""
        before, self._now = self._now, prompter
        try:
            yield
        finally:
            self._now = before


PATIENCE_S = 600.0
"""How long an answer is waited for; servers end the connection sooner."""


class PendingQuestion:
    """A question, and the place for its answers."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._answers: tuple[str, ...] | None = None
        self._given = threading.Event()

    def answer(self, answers: tuple[str, ...] | None) -> None:
        """Give the answers, one a field; None where the user would not."""
        if not self._given.is_set():
            self._answers = answers
            self._given.set()

    def wait(self, timeout_s: float = PATIENCE_S) -> tuple[str, ...] | None:
        """The answers once they are given; None where there are none."""
        return self._answers if self._given.wait(timeout_s) else None


class Door:
    """A prompter (``rltui.cluster.prompts``) that hands each question over and waits.

    Args:
        show: Shows the question to the user and answers it later; called in the connecting thread.
    """

    attended = True

    def __init__(self, show: Callable[[PendingQuestion], None]) -> None:
        self._show = show

    def ask(self, question: Question) -> tuple[str, ...]:
        """Hand the question over and wait for the answers.

        Raises:
            NeedsAttentionError: The user would not answer, or did not in time.
        """
        pending = PendingQuestion(question)
        self._show(pending)
        answers = pending.wait()
        if answers is None:
            raise NeedsAttentionError(f"You did not answer {question.title}.", "Press a in the cockpit to be asked.")
        return answers
