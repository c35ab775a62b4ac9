"""What is forked in place of a new Python is told apart from it by nothing that tests see."""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bare_ray import LISTENS, idle
from forks import OF_OUR_RAY, fork_server, forked, write_forking_python
from rltui.onnode.ray_start import START, START_OWN
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.trainers]

TELL = "import os, sys; print(sys.argv, os.getcwd(), os.environ['TOLD'], 'json' in sys.modules)"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a server that has imported next to nothing."""
    path = str(tmp_path_factory.mktemp("forks") / "socket")
    with fork_server(path, dict(os.environ), ["json", "numpy.random"]):
        yield path


def test_it_has_the_words_folder_environment_and_streams_of_who_asked(server: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TOLD": "by who asked"}
    done = subprocess.run(
        [*forked(server), "-c", TELL, "one", "two"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"['-c', 'one', 'two'] {tmp_path} by who asked True\n"


def test_the_kernel_tells_the_environment_of_who_asked_and_no_other(server: str) -> None:
    program = "print(open('/proc/self/environ').read().rstrip(chr(0)))"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TOLD": "by who asked"}
    told = subprocess.check_output([*forked(server), "-c", program], env=environment, text=True)
    assert dict(word.split("=", 1) for word in told.rstrip().split("\0")) == environment


@pytest.mark.parametrize(
    ("program", "code"),
    [("import sys; sys.exit(3)", 3), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_who_asked_ends_as_it_does(server: str, program: str, code: int) -> None:
    done = subprocess.run([*forked(server), "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("ValueError" in done.stderr) == (code == 1)


def test_it_is_killed_with_who_asked(server: str) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([*forked(server), "-c", program], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        pid = int(asking.stdout.readline())
        asking.kill()
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "its end")


def test_it_gets_the_signals_of_who_asked(server: str) -> None:
    program = "import signal, sys; print('waits', flush=True); sys.exit(signal.sigwait([signal.SIGUSR2]))"
    blocks = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); {program}"
    with subprocess.Popen([*forked(server), "-c", blocks], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "waits\n"
        asking.send_signal(signal.SIGUSR2)
    assert asking.returncode == signal.SIGUSR2


def test_what_is_temporary_lies_where_who_asked_has_it(tmp_path: Path) -> None:
    (tmp_path / "asks_early.py").write_text("import tempfile\ntempfile.gettempdir()\n")
    path, environment = str(tmp_path / "socket"), {**os.environ, "PYTHONPATH": str(tmp_path)}
    with fork_server(path, environment, ["asks_early", "numpy.random"]):
        words = [*forked(path), "-c", "import tempfile; print(tempfile.mkdtemp())"]
        made = subprocess.check_output(words, env={**environment, "TMPDIR": str(tmp_path)}, text=True)
    assert os.path.dirname(made) == str(tmp_path)


def test_two_draw_other_numbers(server: str) -> None:
    program = "import numpy, random; print(numpy.random.random(), random.random())"
    drawn = [subprocess.check_output([*forked(server), "-c", program], text=True).split() for _ in range(2)]
    assert len({number for numbers in drawn for number in numbers}) == 4


def test_the_python_that_forks_is_any_other_but_for_the_ray_of_a_layout(tmp_path: Path) -> None:
    write_forking_python(tmp_path / "python")
    words = [
        str(tmp_path / "python"),
        "-c",
        "import sys; print(sys.executable, sys.argv); sys.exit(3)",
        "a  b",
        "$HOME",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, f"{sys.executable} ['-c', 'a  b', '$HOME']\n")
    assert fnmatch.fnmatch(START_OWN, OF_OUR_RAY)
    assert not fnmatch.fnmatch(START, OF_OUR_RAY), "a script of another system imports what it likes"


def test_what_stands_for_an_agent_listens_nowhere_and_ends_with_its_raylet(tmp_path: Path) -> None:
    words = f"--node-id=4f --session-dir={tmp_path} --head"
    whole = f"--dashboard_agent_command={sys.executable} -u /ray/dashboard/agent.py {words}"
    assert idle(whole, ("runtime_env",)) == whole
    option, _, command = idle(whole, ("dashboard",)).partition("=")
    assert (option, command.endswith(f".sh {LISTENS['dashboard']} {words}")) == ("--dashboard_agent_command", True)
    with subprocess.Popen(["sh", "-c", f"{command} & echo $!; wait"], stdout=subprocess.PIPE, text=True) as raylet:
        assert raylet.stdout is not None
        pid = int(raylet.stdout.readline())

        def said() -> dict[str, str]:
            return {path.name: path.read_text() for path in tmp_path.iterdir() if not path.name.endswith(".new")}

        listens = {f"{name}_port_4f": "-1\n" for name in LISTENS["dashboard"].split(",")}
        eventually(lambda: said() == listens, "what a raylet reads", saw=said)
        raylet.kill()
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), "its end")
