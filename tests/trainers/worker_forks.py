"""Workers of the tests' Ray, forked from one process that has imported what each of them would import.

Most CPU seconds of a role are imports, and these tests start some hundred roles. Here the raylet starts a small program
where it would start Python. That hands its words, environment and streams to the server, and stays for as long as the
worker that the server forks for it. The server has one thread and runs nothing else, so that a worker is as new as any,
but for the modules that it finds imported. Roles that start as Ray starts them are those of tests/cluster, and of the
second node here.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
"""What these read then, as roles on CPU have it. A role that has it otherwise starts as without this file."""
N_STREAMS = 3
HEAD_BYTES = 16


@contextmanager
def worker_forks(path: str, environment: dict[str, str]) -> Iterator[str]:
    """A server of workers at ``path``; yields Python by which the ``ray start`` after it has its raylet ask there."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(128)  # before Ray starts: who comes while the server imports is served after it
        words = [sys.executable, HERE, str(listening.fileno())]
        settings = {**environment, **READ_AT_IMPORT}
        server = subprocess.Popen(words, stdin=subprocess.PIPE, env=settings, pass_fds=[listening.fileno()])
    try:
        here = os.path.dirname(HERE)
        yield f"import sys; sys.path.insert(0, {here!r}); import worker_forks; worker_forks.use({path!r}); "
    finally:
        server.kill()
        server.communicate()


def use(path: str) -> None:
    """Let the ``ray start`` that follows in this process have its raylet ask at ``path`` for workers."""
    services: Any = importlib.import_module("ray._private.services")
    whole, alone = services.start_ray_process, f"--python_worker_command={sys.executable} "
    asking = f"{alone}-IS {HERE} {path} "

    def start(command: list[str], *others: Any, **options: Any) -> Any:
        return whole([word.replace(alone, asking) for word in command], *others, **options)

    services.start_ray_process = start


def ask(path: str, words: list[str]) -> None:
    """Have the server at ``path`` fork a worker with this process's words, environment, folder and streams."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        asked = json.dumps([words, dict(os.environ), os.getcwd()]).encode()
        socket.send_fds(server, [b"%0*d" % (HEAD_BYTES, len(asked))], range(N_STREAMS))
        server.sendall(asked)
        server.recv(1)  # the worker's end: until it registers, the raylet knows it by this process


def serve(listening: socket.socket) -> None:
    """Fork a worker for each that asks, until the standard input ends. In a worker, this returns when that is done."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert "ray" not in sys.modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended
    while select.select([listening, sys.stdin], [], [])[0] == [listening]:
        asking, _ = listening.accept()
        with asking, asking.makefile("rb") as rest:
            head, streams, _, _ = socket.recv_fds(asking, HEAD_BYTES, N_STREAMS)
            asked = rest.read(int(head or 0))
            if asked and os.fork() == 0:
                listening.close()
                return become_worker(streams, *json.loads(asked))
        for stream in streams:
            os.close(stream)


def become_worker(streams: list[int], words: list[str], environment: dict[str, str], folder: str) -> None:
    """Go on as ``python WORDS`` would, in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
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
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        importlib.import_module("numpy").random.seed()  # else all forks draw the same
        return run(words)

    return go_on


def run(words: list[str]) -> None:
    """Run a program as Python would."""
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        ask(sys.argv[1], sys.argv[2:])
    else:
        serve(socket.socket(fileno=int(sys.argv[1])))
