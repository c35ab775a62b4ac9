"""Programs that try to get out of the sandbox, run once before training: what they do tells which walls hold.

None of them does harm where a wall is missing: the fork bomb stops at a few hundred idle processes, and the one that
kills everything first looks whether it can see a process of ours.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainers.rewards.sandbox import Outcome, Sandbox, Trial

BOMB = 300
"""Processes that the fork bomb stops at."""

FORK_BOMB = f"""
import os, time
born = 0
try:
    while born < {BOMB}:
        if not os.fork():
            time.sleep(30)
            os._exit(0)
        born += 1
except OSError:
    pass
print("born", born, flush=True)
"""
ALLOCATION = "held = bytearray(10 << 30)\nprint('allocated')"
PRINT = "while True:\n    print('x' * 1000)"
SOCKET = """
import socket
socket.create_connection(("127.0.0.1", {port}), timeout=1).sendall(b"here")
"""
READ_FILE = """
import os
for folder in ({folder!r}, os.path.expanduser("~/.ssh"), "/run/munge"):
    try:
        for name in os.listdir(folder):
            print(name, open(os.path.join(folder, name)).read())
    except OSError:
        pass
"""
KILL_ALL = """
import os, signal
try:
    os.kill({bystander}, 0)
    print("visible")
except PermissionError:
    print("visible")
except ProcessLookupError:
    os.kill(-1, signal.SIGKILL)
"""
SHARED_MEMORY = "open('/dev/shm/{name}', 'w').write('here')"
SYMLINK = """
import os
os.symlink({folder!r}, "/tmp/way-out")
open("/tmp/way-out/canary", "a").write("changed")
"""


@dataclass(frozen=True)
class EscapeAttempt:
    """What one program did.

    Attributes:
        name: What it tried.
        contained: Whether the walls held.
        words: What was seen.
    """

    name: str
    contained: bool
    words: str = ""


class OpenSandboxError(RuntimeError):
    """Code could get out of the sandbox, and the layout does not allow that."""


def run_escape_attempts(sandbox: Sandbox) -> list[EscapeAttempt]:
    """Run all programs in ``sandbox``; takes a few seconds."""
    small = sandbox.with_limits(replace(sandbox.limits, wall_s=min(2.0, sandbox.limits.wall_s)))
    return [probe(small) for probe in PROBES]


def ensure_contained(sandbox: Sandbox, allow_open: bool, event: Callable[[str, str], None]) -> list[EscapeAttempt]:
    """Run the programs and say loudly what is not contained.

    Args:
        sandbox: What code is to run in.
        allow_open: Whether to go on where something is not contained.
        event: Called with a kind and a text.

    Raises:
        OpenSandboxError: Something is not contained, and that is not allowed.
    """
    attempts = run_escape_attempts(sandbox)
    leaks = [attempt.name for attempt in attempts if not attempt.contained]
    if not leaks:
        event("reward_sandbox", f"reward sandbox: closed ({sandbox.words}); {len(attempts)} escape attempts contained")
        return attempts
    text = f"reward sandbox: OPEN ({sandbox.words}); not contained: {', '.join(leaks)}"
    event("reward_sandbox", text)
    if not allow_open:
        raise OpenSandboxError(
            f"{text}. Let the nodes grant user namespaces (sysctl user.max_user_namespaces), install bubblewrap, or, "
            "where all code is trusted, set data.allow_open_sandbox: true"
        )
    return attempts


def _one(sandbox: Sandbox, code: str) -> Outcome:
    (outcome,) = sandbox.run(code, [Trial()])
    return outcome


def _fork_bomb(sandbox: Sandbox) -> EscapeAttempt:
    output = _one(sandbox, FORK_BOMB).output
    born = output.partition("born ")[2].strip()
    return EscapeAttempt("fork bomb", born.isdigit() and int(born) < BOMB, f"{born or 'unknown'} processes")


def _allocation(sandbox: Sandbox) -> EscapeAttempt:
    got = "allocated" in _one(sandbox, ALLOCATION).output
    return EscapeAttempt("10 GB allocation", not got, "allocated" if got else "refused")


def _endless_print(sandbox: Sandbox) -> EscapeAttempt:
    outcome = _one(sandbox, PRINT)
    kept = len(outcome.output)
    return EscapeAttempt(
        "endless output", not outcome.finished and kept <= sandbox.limits.output_bytes, f"{kept} B kept"
    )


def _socket(sandbox: Sandbox) -> EscapeAttempt:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        _one(sandbox, SOCKET.format(port=server.getsockname()[1]))
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return EscapeAttempt("network", True, "no connection")
    return EscapeAttempt("network", False, "it reached a port of this machine")


@contextlib.contextmanager
def _bait() -> Iterator[tuple[Path, str]]:
    """A private folder at home, or in /tmp where home can't be written, with a file that holds a secret."""
    home = Path.home()
    with tempfile.TemporaryDirectory(prefix=".rltui-canary-", dir=home if os.access(home, os.W_OK) else None) as folder:
        secret = secrets.token_hex(16)
        (Path(folder) / "canary").write_text(secret, encoding="ascii")
        yield Path(folder), secret


def _files(sandbox: Sandbox) -> EscapeAttempt:
    with _bait() as (folder, secret):
        seen = _one(sandbox, READ_FILE.format(folder=str(folder))).output
    found = secret in seen or "PRIVATE KEY" in seen
    return EscapeAttempt("your files", not found, "read" if found else "not there")


def _kill_all(sandbox: Sandbox) -> EscapeAttempt:
    sleeper = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    try:
        seen = "visible" in _one(sandbox, KILL_ALL.format(bystander=sleeper.pid)).output
        alive = sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
    return EscapeAttempt(
        "kill -9 -1", alive and not seen, "processes of yours can be signalled" if seen else "nothing to kill"
    )


def _shared_memory(sandbox: Sandbox) -> EscapeAttempt:
    name = f"rltui-canary-{secrets.token_hex(8)}"
    _one(sandbox, SHARED_MEMORY.format(name=name))
    written = Path("/dev/shm", name)
    escaped = written.exists()
    written.unlink(missing_ok=True)
    return EscapeAttempt("/dev/shm", not escaped, "written" if escaped else "not there")


def _symlink(sandbox: Sandbox) -> EscapeAttempt:
    with _bait() as (folder, secret):
        way_out = Path("/tmp/way-out")
        _one(sandbox, SYMLINK.format(folder=str(folder)))
        changed = (folder / "canary").read_text(encoding="ascii") != secret
        if changed and way_out.is_symlink():
            way_out.unlink()
    return EscapeAttempt("symbolic link", not changed, "a file outside was written" if changed else "leads nowhere")


PROBES = (_fork_bomb, _allocation, _endless_print, _socket, _files, _kill_all, _shared_memory, _symlink)
