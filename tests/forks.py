"""Roles of tests, forked from a process that has imported what each of them would import.

Most CPU seconds of a trainer and its roles are imports, and the tests start hundreds. Here the raylet and the tests
start a small program where they would start Python. That hands its words, environment and streams to the server,
which forks a process for it; it ends as that process does, and that is killed where it is killed. The server has one
thread and runs nothing else: what it forks is as new as any, but for the modules that it finds imported.

In tests/trainers one server serves a whole session. In tests/cluster each ``ray start`` has its own, started by it: so
each role has in ``/proc`` the environment of its own attempt, by which rltui knows it. Which runs start as a user's do
stands in docs/testing.md.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

HERE = os.path.realpath(__file__)
IMPORTED = (
    "torch",
    "deepspeed",
    "transformers.models.qwen3.modeling_qwen3",
    "trainers.roles.hf_engine",
    "trainers.roles.processes",
)
"""Ray is not among them: it reads a worker's job from the environment as it is imported."""
READ_AT_IMPORT = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
"""What these read then, as roles on CPU have it. A role that has it otherwise starts as Ray starts it."""
ASK = "ask"
OF_OUR_RAY = "*ray_start.leave_out*"
"""What the product's ``ray start`` of a layout has in its program, and no other process of an attempt."""
N_STREAMS = 3
HEAD_BYTES = 16


@contextlib.contextmanager
def fork_server(path: str, environment: dict[str, str], modules: Sequence[str] = IMPORTED) -> Iterator[None]:
    """A server at ``path`` for as long as this process lives, and no longer than the context."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(128)  # who comes while the server imports is served after it
        words = [sys.executable, HERE, str(listening.fileno()), *modules]
        settings = {**environment, **READ_AT_IMPORT}
        server = subprocess.Popen(words, stdin=subprocess.PIPE, env=settings, pass_fds=[listening.fileno()])
    try:
        yield
    finally:
        server.kill()
        server.communicate()


def forked(path: str) -> list[str]:
    """What stands for Python in the command line of a process that the server at ``path`` is to fork."""
    return [sys.executable, "-IS", HERE, ASK, path]


def workers_from(path: str) -> str:
    """Python by which the ``ray start`` after it is bare, and has its raylet ask the server at ``path`` for workers."""
    here = f"import sys; sys.path.append({os.path.dirname(HERE)!r}); "
    return here + f"import bare_ray, forks; bare_ray.leave_out('dashboard'); forks.use({path!r}); "


def forking_python(python: str, ray: str = "use_own") -> str:
    """A shell script that is ``python``, but that the Ray of a layout has its roles forked, or is as ``ray`` has it.

    Args:
        python: The interpreter.
        ray: Name of the function of this module that prepares the ``ray start``.
    """
    own = f"import sys; sys.path.append({os.path.dirname(HERE)!r}); import forks; forks.{ray}(); "
    return f"""#!/bin/sh
export RAY_worker_niceness=0
case $1$2 in
-c{OF_OUR_RAY})
  program="{own}$2"
  shift 2
  exec {python} -c "$program" "$@" ;;
esac
exec {python} "$@"
"""


def write_forking_python(path: Path, ray: str = "use_own") -> None:
    """Have at ``path`` what is this Python, but that the Ray of a layout forks its roles, or is as ``ray`` has it."""
    path.write_text(forking_python(sys.executable, ray))
    path.chmod(0o755)


def use_own() -> None:
    """Let the bare ``ray start`` that follows in this process have a server with its own environment, until it ends."""
    path = os.path.join(os.environ["RAY_TMPDIR"], "forks")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of a start that failed
    _own.enter_context(fork_server(path, dict(os.environ)))
    use(path)
    be_bare()


def be_bare() -> None:
    """Let the ``ray start`` that follows in this process have no agent that reports, and on one node no dashboard."""
    # each component of a heterogeneous job has a number of nodes of its own
    is_alone = os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1" and "SLURM_HET_SIZE" not in os.environ
    importlib.import_module("bare_ray").leave_out("dashboard", has_dashboard=not is_alone)


_own = contextlib.ExitStack()


def use(path: str) -> None:
    """Let the ``ray start`` that follows in this process have its raylet ask at ``path`` for workers."""
    services: Any = importlib.import_module("ray._private.services")
    whole, alone = services.start_ray_process, f"--python_worker_command={sys.executable} "
    asking = alone.replace(sys.executable, " ".join(forked(path)))

    def start(command: list[str], *others: Any, **options: Any) -> Any:
        return whole([word.replace(alone, asking) for word in command], *others, **options)

    services.start_ray_process = start


def ask(path: str, words: list[str]) -> None:
    """Have the server at ``path`` fork a process of these words with this one's environment, folder and streams."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        asked = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(server, [b"%0*d" % (HEAD_BYTES, len(asked))], range(N_STREAMS))
        server.sendall(asked)
        code = int(server.recv(HEAD_BYTES) or -signal.SIGKILL)  # nothing: the server was ended with all it had
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(listening: socket.socket, modules: Sequence[str]) -> None:
    """Fork a process for each that asks, until the standard input ends. In such a process, return when it is done."""
    for name in modules:
        importlib.import_module(name)
    assert "ray" not in sys.modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    others, mine = listening.fileno(), sys.stdin.fileno()
    while select.select([others, mine], [], [])[0] == [others]:
        asking, _ = listening.accept()
        with asking, asking.makefile("rb") as rest:
            head, streams, _, _ = socket.recv_fds(asking, HEAD_BYTES, N_STREAMS)
            asked = rest.read(int(head or 0))
            if asked and os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if (pid := os.fork()) == 0:
                    return become(streams, *json.loads(asked))
                see_to(pid, asking)
        for stream in streams:
            os.close(stream)


def see_to(pid: int, asking: socket.socket) -> NoReturn:
    """Tell who asked how the process ends, and kill it where who asked is killed."""
    ended = os.pidfd_open(pid)
    if asking in select.select([asking, ended], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(streams: list[int], words: list[str], environment: dict[str, str], folder: str) -> None:
    """Go on as ``python WORDS`` would, in this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    importlib.import_module("numpy").random.seed()  # else all draw the same
    context: Any = importlib.import_module("ray._private.runtime_env.context").RuntimeEnvContext
    context.exec_worker = in_this_process(context.exec_worker)
    run(words)


def in_this_process(exec_worker: Callable[..., None]) -> Callable[..., None]:
    """Ray's ``exec_worker``, but for the new Python, where that would import no otherwise."""

    def go_on(context: Any, words: list[str], language: object) -> None:
        os.environ.update(context.env_vars)
        if any(os.environ.get(name, value) != value for name, value in READ_AT_IMPORT.items()):
            return exec_worker(context, words, language)
        for option in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
            warnings._setoption(option)  # type: ignore[attr-defined]
        return run(words)

    return go_on


def run(words: list[str]) -> None:
    """Run a program as Python would."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.path.insert(0, os.path.dirname(words[0]))  # of a module or text, the working directory
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.modules["__main__"] = ModuleType("__main__")
        exec(words[1], vars(sys.modules["__main__"]))
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == ASK:
        ask(sys.argv[2], sys.argv[3:])
    else:
        del sys.path[0]  # this folder
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
