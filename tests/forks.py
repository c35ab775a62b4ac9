"""Roles of tests, forked from a process that has imported what each of them would import.

Most CPU seconds of a trainer and its roles are imports, and the tests start hundreds. Here the raylet and the tests
start a small program where they would start Python. That hands its words, environment and streams to the server,
which forks a process for it; it ends as that process does, and that is killed where it is killed. The server has one
thread and runs nothing else: what it forks is as new as any, but for the modules that it finds imported.

A server serves a whole session. What it forks is where who asked is, in the lab on that node and as that user, and has
in ``/proc`` the environment of who asked, by which rltui knows what belongs to an attempt. Which runs start as a user's
do stands in docs/testing.md.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import re
import runpy
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fork_ask import HEAD_BYTES, N_STREAMS

if TYPE_CHECKING:
    from io import TextIOWrapper

HERE = os.path.realpath(__file__)
ASK = os.path.join(os.path.dirname(HERE), "fork_ask.py")
HERE_IMPORTED = f"import sys; sys.path.append({os.path.dirname(HERE)!r}); import forks; "
IMPORTED = (
    "torch",
    "deepspeed",
    "transformers.models.qwen3.modeling_qwen3",
    "trainers.roles.hf_engine",
    "trainers.roles.processes",
    # what Ray imports, and its agents: three quarters of the CPU seconds of its import
    "aiohttp.web",
    "click",
    "google.protobuf.internal.builder",
    "google.protobuf.json_format",
    "http.cookiejar",
    "jsonschema",
    "pdb",
    "prometheus_client",
    "pydantic",
    "requests",
    "tracemalloc",
    "uvloop",
)
"""Ray is not among them: it reads a worker's job from the environment as it is imported."""
READ_AT_IMPORT = {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"}
"""What these read then, as roles on CPU have it. A role that has it otherwise starts as Ray starts it."""
OF_OUR_RAY = "*ray_start.leave_out*"
"""What the product's ``ray start`` of a layout has in its program, and no other process of an attempt."""
PYTHON_OF_RAYLET = re.compile(rf"(?<=_command=){re.escape(sys.executable)}( -u)?(?= )")
"""In an option of a raylet, by what it starts a worker or an agent."""
TRAINERS = "-mtrainers.*|*/tests/cluster/ray_job.py*"
"""What a layout's trainer has for its first words, and what stands for one."""
ROOM_BYTES = 16384
"""For the environment of what a server forks, where the kernel looks for it."""
SPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""Linux's CLONE_NEWNS, _NEWUTS, _NEWIPC, _NEWPID and _NEWNET: what a node of the lab has for itself."""
PR_SET_DUMPABLE = 4


@contextlib.contextmanager
def fork_server(path: str, environment: dict[str, str], modules: Sequence[str] = IMPORTED) -> Iterator[None]:
    """A server at ``path`` for as long as this process lives, and no longer than the context."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(128)  # who comes while the server imports is served after it
        words = [sys.executable, HERE, str(listening.fileno()), *modules]
        settings = {**environment, **READ_AT_IMPORT, "TESTS_ROOM": " " * ROOM_BYTES}
        server = subprocess.Popen(words, stdin=subprocess.PIPE, env=settings, pass_fds=[listening.fileno()])
    try:
        yield
    finally:
        server.kill()
        server.communicate()


@functools.cache
def server_of_session() -> str:
    """The path of the server for the layouts of this process's tests: begun by the first of them, it ends with it."""
    path = os.path.join(os.environ["HOME"], "forks")
    running = contextlib.ExitStack()
    running.enter_context(fork_server(path, dict(os.environ)))
    atexit.register(running.close)
    os.chmod(path, 0o777)  # for users of the lab, where it has other names
    return path


def forked(path: str) -> list[str]:
    """What stands for Python in the command line of a process that the server at ``path`` is to fork."""
    return [sys.executable, "-IS", ASK, path]


def workers_asked(path: str) -> str:
    """Python by which the ``ray start`` after it has its raylet ask the server at ``path`` for workers and agents."""
    return f"{HERE_IMPORTED}forks.use({path!r}); "


def workers_from(path: str) -> str:
    """The same for a ``ray start`` that is bare, too."""
    return workers_asked(path) + "import bare_ray; bare_ray.leave_out('dashboard'); "


def forking_python(python: str, path: str = "") -> str:
    """A shell script that is ``python``, but that the Ray of a layout is bare, and it, trainer and roles are forked.

    Args:
        python: The interpreter.
        path: The server that forks them; without one, they start as a user's do.
    """
    asks, trainers, ray = "", "", python
    if path:
        asks, ray = f"forks.use({path!r}); ", shlex.join(forked(path))
        trainers = f'{TRAINERS}) exec {ray} "$@" ;;\n'
    return f"""#!/bin/sh
export RAY_worker_niceness=0
case $1$2 in
-c{OF_OUR_RAY})
  program="{HERE_IMPORTED}{asks}forks.be_bare(); $2"
  shift 2
  exec {ray} -c "$program" "$@" ;;
{trainers}esac
exec {python} "$@"
"""


def write_forking_python(script: Path, path: str = "") -> None:
    """Have in the file ``script`` what is this Python, but for the Ray of a layout."""
    script.write_text(forking_python(sys.executable, path))
    script.chmod(0o755)


def be_bare() -> None:
    """Let the ``ray start`` that follows in this process have no agent that reports, and on one node no dashboard."""
    # each component of a heterogeneous job has a number of nodes of its own
    is_alone = os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1" and "SLURM_HET_SIZE" not in os.environ
    importlib.import_module("bare_ray").leave_out("dashboard", has_dashboard=not is_alone)


def use(path: str) -> None:
    """Let the ``ray start`` that follows in this process have its raylet ask at ``path`` for workers and agents."""
    services: Any = importlib.import_module("ray._private.services")
    whole, asking = services.start_ray_process, forked(path)

    def start(command: list[str], *others: Any, **options: Any) -> Any:
        if command[0] == sys.executable:  # the dashboard's, and what the product should leave out
            asked = [*asking, *command[1 + (command[1] == "-u") :]]
        else:
            asked = [PYTHON_OF_RAYLET.sub(" ".join(asking), word) for word in command]
        return whole(asked, *others, **options)

    services.start_ray_process = start


def serve(listening: socket.socket, modules: Sequence[str]) -> None:
    """Fork a process for each that asks, until the standard input ends. In such a process, return when it is done."""
    leave_at_once()
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    assert "ray" not in sys.modules
    gc.freeze()  # else each looks for garbage in what all share, and so has to copy it
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    others, mine = listening.fileno(), sys.stdin.fileno()
    while select.select([others, mine], [], [])[0] == [others]:
        asking, _ = listening.accept()
        with asking:
            head, streams, _, _ = socket.recv_fds(asking, HEAD_BYTES, N_STREAMS)
            asked = asking.recv(int(head or 0), socket.MSG_WAITALL)
            if asked and os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                user = go_to(asking)
                if (pid := os.fork()) == 0:
                    return become(user, streams, *json.loads(asked))
                see_to(pid, asking)
        for stream in streams:
            os.close(stream)


_codes = [0]


def leave_at_once() -> None:
    """Have this process, and all it forks, end without taking down its modules, which takes up to 1.4 CPU seconds.

    All else that waits for the end of a Python has run then, if this is called before it is registered.
    """

    def leave() -> None:
        for written in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                written.flush()
        os._exit(_codes[-1])

    atexit.register(leave)


@contextlib.contextmanager
def noted_code() -> Iterator[None]:
    """Note for ``leave_at_once`` how what is inside ends."""
    _codes.append(1)
    try:
        yield
    except SystemExit as ended:
        _codes.append(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
    _codes.append(0)


def go_to(asking: socket.socket) -> tuple[int, int]:
    """Have what this process forks on the node of who asks; returns that one's user and group."""
    pid, user, group = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if os.stat(f"/proc/{pid}/ns/uts").st_ino != os.stat("/proc/self/ns/uts").st_ino:
        with open(os.pidfd_open(pid)) as node:
            done = ctypes.CDLL(None, use_errno=True).setns(node.fileno(), SPACES)
        assert done == 0, os.strerror(ctypes.get_errno())
    return user, group


def see_to(pid: int, asking: socket.socket) -> NoReturn:
    """Tell who asked how the process ends, give it the signals of who asked, and kill it where that is killed."""
    ended = os.pidfd_open(pid)
    while ended not in select.select([asking, ended], [], [])[0]:
        os.kill(pid, ord(asking.recv(1) or bytes([signal.SIGKILL])))
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(
    user: tuple[int, int], streams: list[int], words: list[str], environment: dict[str, str], folder: str
) -> None:
    """Go on as ``python WORDS`` would, in this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.setsid()  # a ctrl+c in the terminal of the tests is none of its affairs
    if user[0] != os.getuid():
        os.setgroups([])
        os.setgid(user[1])
        os.setuid(user[0])
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # else /proc is closed to this user, as after a setuid program
    for written in (sys.stdout, sys.stderr):
        cast("TextIOWrapper", written).reconfigure(write_through="PYTHONUNBUFFERED" in environment)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    show_environment(environment)
    forget_other_code(environment)
    importlib.import_module("numpy").random.seed()  # else all draw the same
    importlib.import_module("tempfile").tempdir = None  # else that of the server
    context: Any = importlib.import_module("ray._private.runtime_env.context").RuntimeEnvContext
    context.exec_worker = in_this_process(context.exec_worker)
    with noted_code():
        run(words)


def show_environment(environment: dict[str, str]) -> None:
    """Write it where the kernel looks for what stands in ``/proc/PID/environ``; nothing else reads that memory now."""
    with open("/proc/self/stat") as file:
        first, last = map(int, file.read().rpartition(")")[2].split()[47:49])  # env_start and env_end of proc(5)
    shown = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    assert len(shown) <= last - first, "ROOM_BYTES is too little"
    ctypes.memset(first, 0, last - first)
    ctypes.memmove(first, shown, len(shown))


def forget_other_code(environment: dict[str, str]) -> None:
    """Let a role whose run has code of its own import that."""
    imported = sys.modules.get("trainers")
    if imported and str(Path(str(imported.__file__)).parents[1]) not in environment.get("PYTHONPATH", "").split(":"):
        for name in [name for name in sys.modules if name.split(".")[0] in ("rltui", "trainers")]:
            del sys.modules[name]


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
    del sys.path[0]  # this folder
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
