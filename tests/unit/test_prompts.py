from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rltui.cluster import prompts
from rltui.cluster.openssh_transport import answering
from rltui.cluster.prompts import Field, Question, SwitchedPrompter, UnattendedPrompter
from rltui.cluster.transport import NeedsAttentionError

QUESTION = Question("interactive", "alice@login", (Field("Password:"), Field("Code:", echo=True)), ("Welcome",))

PROMPTS = (b"Password:", b"Code:")
ASKING = """
from rltui.cluster.prompts import *
question = Question("interactive", "alice@login", (Field("Password:"), Field("Code:", echo=True)), ("Welcome",))
try:
    print("GOT", TerminalPrompter().ask(question))
except Exception as error:
    print("REFUSED", type(error).__name__, error)
"""


def on_a_terminal(*keys: bytes) -> str:
    """What the child that asks shows on its terminal, when ``keys`` are typed at the prompts, one at each."""
    pid, master = pty.fork()
    if pid == 0:
        # neither stdin nor stdout is where it asks
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(sys.executable, [sys.executable, "-c", ASKING])
    said, left, again = b"", list(zip(PROMPTS, keys, strict=False)), b""
    with contextlib.suppress(OSError):  # the child has ended
        while True:
            if left and said.rstrip().endswith(left[0][0]):  # what is typed before it asks is thrown away
                key = left.pop(0)[1]
                os.write(master, key)
                again = b"" if key.endswith(b"\n") else key
            while not select.select([master], [], [], 1)[0]:
                os.write(master, again)  # Python hears an interrupt just before its read only with the next one
            said += os.read(master, 4096)
    os.waitpid(pid, 0)
    os.close(master)
    return said.decode()


def test_of_two_machines_that_ask_at_once_one_is_answered_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read(field: Field) -> str:
        asked.append(f"{field.text} begins")
        time.sleep(0.2)
        asked.append(f"{field.text} is answered")
        return ""

    monkeypatch.setattr(prompts.TerminalPrompter, "attended", True)
    monkeypatch.setattr(prompts, "restore_at_exit", lambda: None)
    monkeypatch.setattr(prompts, "open", lambda *_: open(os.devnull, "w"), raising=False)  # noqa: SIM115
    monkeypatch.setattr(prompts, "_read", read)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda host: prompts.TerminalPrompter().ask(Question("password", host, (Field(host),))), "ab"))
    assert asked[0].partition(" ")[0] == asked[1].partition(" ")[0]


def test_the_terminal_is_asked_and_secrets_are_not_shown() -> None:
    said = on_a_terminal(b"hidden\n", b"123456\n")
    assert "alice@login:" in said
    assert "Welcome" in said
    before, _, after = said.partition("GOT")
    assert "('hidden', '123456')" in after
    assert "hidden" not in before
    assert "123456" in before


@pytest.mark.parametrize("key", [b"\x04", b"\x03"], ids=["end of file", "interrupt"])
def test_a_user_who_goes_away_refuses(key: bytes) -> None:
    assert "REFUSED NeedsAttentionError You did not answer" in on_a_terminal(key)


def test_a_process_without_a_terminal_is_unattended() -> None:
    code = "from rltui.cluster.prompts import *; print(TerminalPrompter().attended)"
    done = subprocess.run([sys.executable, "-c", code + ASKING], capture_output=True, text=True, start_new_session=True)
    assert done.stdout.splitlines()[0] == "False"
    assert "REFUSED NeedsAttentionError" in done.stdout


def test_the_background_refuses_and_a_switch_lets_somebody_answer() -> None:
    class Me:
        attended = True

        def ask(self, question: Question) -> tuple[str, ...]:
            return ("x",) * len(question.fields)

    switched = SwitchedPrompter()
    for prompter in (UnattendedPrompter(), switched):
        assert not prompter.attended
        with pytest.raises(NeedsAttentionError, match="alice@login"):
            prompter.ask(QUESTION)
    with switched.attend(Me()):
        assert switched.attended
        assert switched.ask(QUESTION) == ("x", "x")
    assert not switched.attended


class Noting:
    attended = True

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def ask(self, question: Question) -> tuple[str, ...]:
        self.asked.append(question)
        if "refuse" in question.fields[0].text:
            raise NeedsAttentionError("no")
        return ('an "answer" $(x)',)


@pytest.mark.parametrize(
    ("text", "kind", "echo"),
    [
        ("Enter passphrase for key '/home/a/.ssh/id': ", "passphrase", False),
        ("(alice@login) Verification code: ", "interactive", False),
        ("The authenticity of host 'h' can't be established.\nfingerprint is SHA256:x.\nyes/no? ", "host-key", True),
    ],
)
def test_ssh_gets_its_answers_through_askpass(text: str, kind: str, echo: bool) -> None:
    me = Noting()
    with answering(me, "login") as variables:
        folder = os.path.dirname(variables["SSH_ASKPASS"])
        assert os.stat(folder).st_mode & 0o777 == 0o700
        done = subprocess.run(
            [variables["SSH_ASKPASS"], text], env={**os.environ, **variables}, capture_output=True, text=True
        )
        refused = subprocess.run([variables["SSH_ASKPASS"], "refuse"], env={**os.environ, **variables})
    assert done.stdout == 'an "answer" $(x)\n'
    assert (me.asked[0].kind, me.asked[0].fields[0].echo) == (kind, echo)
    assert refused.returncode == 1
    assert not os.path.exists(folder)


def test_a_long_tmpdir_leaves_room_for_the_path_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with answering(Noting(), "login") as variables:
        done = subprocess.run(
            [variables["SSH_ASKPASS"], "Code: "], env={**os.environ, **variables}, capture_output=True, text=True
        )
    assert done.stdout == 'an "answer" $(x)\n'


def test_words_of_a_server_cannot_drive_the_terminal() -> None:
    me = Noting()
    with answering(me, "login") as variables:
        subprocess.run([variables["SSH_ASKPASS"], "\x1b]52;c;aGk=\x07Code\x9b2J:"], env={**os.environ, **variables})
    assert me.asked[0].fields[0].text.isprintable()
