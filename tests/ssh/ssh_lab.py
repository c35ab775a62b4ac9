"""Real SSH servers for tests: Debian's sshd on 127.0.0.1 with keys of its own, and a link that can freeze or break."""

from __future__ import annotations

import contextlib
import getpass
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from free_ports import free_ports
from rltui.cluster.transport import NeedsAttentionError

if TYPE_CHECKING:
    from rltui.cluster.prompts import Question
    from rltui.cluster.relay_client import RelayClient

DEADLINE_S = 60.0
PASSWORD = "correct horse"


def says_hello(relay: RelayClient) -> bool:
    try:
        return relay.hello().pid > 0
    finally:
        relay.close()


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "", comment: str = "test") -> Path:
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def wait_until(condition, what: str, deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s:.0f} s for {what}"
        time.sleep(0.01)


class Sshd:
    """One sshd that lets the present user in.

    Args:
        folder: For its keys and files.
        lines: More lines of its configuration.
        with_pam: Whether it asks through PAM; the answer is then ``PASSWORD``. Needs root and a mount namespace, in
            which alone the machine's PAM configuration is another.
    """

    def __init__(self, folder: Path, *lines: str, with_pam: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        [self.port] = free_ports(1)
        self.host_key = folder / "host_key"
        if not self.host_key.exists():
            make_key(self.host_key)
        self.authorized = folder / "authorized_keys"
        self.authorized.touch(0o600)
        self._lines = lines
        self._with_pam = with_pam
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def let_in(self, key: Path) -> None:
        with self.authorized.open("a") as stream:
            stream.write(Path(f"{key}.pub").read_text())

    def start(self) -> Sshd:
        config = self.folder / "sshd_config"
        config.write_text("\n".join([*self._own_lines(), *self._lines]) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        assert program, "these tests need Debian's openssh-server"
        words = [program, "-D", "-e", "-f", str(config)]
        if self._with_pam:
            words = self._in_own_etc(words)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._listens, f"sshd on port {self.port}")
        return self

    def _own_lines(self) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized}",
            f"PidFile {self.folder}/pid",
            "StrictModes no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
            f"UsePAM {'yes' if self._with_pam else 'no'}",
            "PrintMotd no",
            "LoginGraceTime 30",
        ]

    def _in_own_etc(self, words: list[str]) -> list[str]:
        check, pam = self.folder / "check", self.folder / "pam"
        check.write_text(f'#!/bin/sh\n[ "$PAM_TYPE" = auth ] || exit 0\nread -r answer\n[ "$answer" = "{PASSWORD}" ]\n')
        check.chmod(0o755)
        pam.write_text(
            f"auth required pam_exec.so expose_authtok quiet {check}\nauth required pam_permit.so\n"
            "account required pam_permit.so\nsession required pam_permit.so\n"
        )
        mount = f'mount --bind {pam} /etc/pam.d/sshd && exec "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *words]

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(DEADLINE_S)
            self._process = None


class Link:
    """A TCP connection in between: passes everything on, until it is frozen (nothing moves) or cut (reset).

    Args:
        target: Port that it leads to.
        limit: Bytes, both ways together, after which the fault comes by itself.
        fault: ``freeze`` or ``cut``.
    """

    def __init__(self, target: int, limit: int | None = None, fault: str = "freeze") -> None:
        self._target = target
        self.passed = 0
        self._limit = limit
        self._fault = fault
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self.connections += 1
            self._pairs.append((near, far))
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with contextlib.suppress(OSError, ValueError):
            while True:
                for one in select.select([near, far], [], [], 0.5)[0]:
                    self._flows.wait()
                    data = one.recv(65536)
                    if not data:
                        raise OSError
                    self._pass_on(data, other[one])
        near.close()
        far.close()

    def _pass_on(self, data: bytes, to: socket.socket) -> None:
        room = len(data) if self._limit is None else max(0, self._limit - self.passed)
        to.sendall(data[:room])
        self.passed += min(room, len(data))
        if room < len(data):
            self._limit = None
            if self._fault == "cut":
                raise OSError
            self.freeze()
            self._flows.wait()

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        for near, far in self._pairs:
            for one in (near, far):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._flows.set()
        self._listener.close()
        self.cut()


class Scripted:
    """A person at the keyboard who answers by what the question says."""

    attended = True

    def __init__(self, **answers: str) -> None:
        self._answers = answers
        self.asked: list[Question] = []

    def ask(self, question: Question) -> tuple[str, ...]:
        self.asked.append(question)
        answer = self._answers.get(question.kind.replace("-", "_"))
        if answer is None:
            raise NeedsAttentionError(f"You did not answer {question.title}.")
        return (answer,) * len(question.fields)


class Client:
    """A user's side: a folder with keys, known hosts and an SSH configuration that names the servers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.config = folder / "config"
        self.known_hosts = folder / "known_hosts"
        self.config.write_text("")
        self.key = make_key(folder / "id_ed25519", comment="alice@laptop")

    def host(self, name: str, port: int, *lines: str, key: Path | None = None) -> None:
        own = [
            "HostName 127.0.0.1",
            f"Port {port}",
            f"User {getpass.getuser()}",
            f"IdentityFile {key or self.key}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
        ]
        with self.config.open("a") as stream:
            # ssh takes the first value it finds
            stream.write(f"Host {name}\n" + "".join(f"  {line}\n" for line in (*lines, *own)))

    def trust(self, server: Sshd, port: int = 0) -> None:
        public = Path(f"{server.host_key}.pub").read_text()
        with self.known_hosts.open("a") as stream:
            stream.write(f"[127.0.0.1]:{port or server.port} {public}")


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path
