"""The transport through paramiko: for machines whose only way is SSH, and where OpenSSH is not needed or not there."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Sequence

import msgspec
import paramiko

from rltui.cluster.paramiko_auth import HostKeys, authenticate, closed_after
from rltui.cluster.plain_text import printable
from rltui.cluster.prompts import Prompter
from rltui.cluster.ssh_host import SshHost
from rltui.cluster.ssh_session import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_S,
    SHELL_TIMEOUT_S,
    Opened,
    read_greeting,
    remote_command,
)
from rltui.errors import ClusterError

# without a handler Python prints paramiko's errors, with tracebacks, into the user's terminal
logging.getLogger("paramiko").addHandler(logging.NullHandler())

DEAD_LINK_MS = 30_000
"""How long the kernel keeps sending what nobody acknowledges; without it a frozen link costs 15 minutes."""

CLOSE_GRACE_S = 2.0

PIECE_S = 1.0
"""How long one wait on a channel is; reading and sending share paramiko's time-out."""


class Session(paramiko.Transport):
    """A transport that keeps what the server said when it ended the connection; paramiko only logs it."""

    goodbye = ""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        m.get_int()
        self.goodbye = m.get_text()


class ParamikoTransport:
    """Opens a relay on a remote machine, through jump hosts where there are some.

    Args:
        hosts: The machines on the way, the last one is the cluster's.
        prompter: Who is asked for what a login needs.

    Attributes:
        opened: How the last connection came about.
    """

    def __init__(self, hosts: Sequence[SshHost], prompter: Prompter) -> None:
        self._hosts = hosts
        self._prompter = prompter
        self.place = hosts[-1].hop.host
        self.opened = Opened()

    def open(self) -> ParamikoStream:
        """Connect, check the host keys, log in and start the relay's interpreter; see ``Transport``.

        Raises:
            NeedsAttentionError: A person has to act first.
        """
        transports: list[paramiko.Transport] = []
        self.opened = Opened()
        try:
            for host in self._hosts:
                transports.append(self._connect(host, transports[-1] if transports else None))
                self._log_in(transports, host)
            return self._start(transports)
        except BaseException:
            for transport in reversed(transports):
                transport.close()
            raise

    def _connect(self, host: SshHost, through: paramiko.Transport | None) -> paramiko.Transport:
        began = time.monotonic()
        try:
            sock = _tcp(host) if through is None else _tunnel(host, through)
        except (OSError, paramiko.SSHException, EOFError) as error:
            raise _unreachable(host, error, through is not None) from error
        transport = Session(sock)
        transport.banner_timeout = transport.handshake_timeout = CONNECT_TIMEOUT_S
        transport.daemon = True
        try:
            keys = HostKeys(host)
            # before start_client, whose first packet has the list of key types
            keys.prefer_known(transport)
            transport.start_client(timeout=CONNECT_TIMEOUT_S)
            # which returns without a word when the time is over
            if not getattr(transport, "initial_kex_done", True):
                raise TimeoutError
            shown = keys.check(transport.get_remote_server_key(), self._prompter)
        except (paramiko.SSHException, EOFError, OSError) as error:
            transport.close()
            raise _unreachable(host, error, through is not None) from error
        except BaseException:
            transport.close()
            raise
        connect_s = self.opened.connect_s + time.monotonic() - began
        self.opened = msgspec.structs.replace(self.opened, connect_s=connect_s, host_key=shown)
        return transport

    def _log_in(self, transports: list[paramiko.Transport], host: SshHost) -> None:
        began = time.monotonic()
        transport = transports[-1]
        how = authenticate(transport, host, self._prompter, transports[0])
        transport.set_keepalive(KEEPALIVE_S)
        auth_s = self.opened.auth_s + time.monotonic() - began
        self.opened = msgspec.structs.replace(self.opened, auth_s=auth_s, auth=how)

    def _start(self, transports: list[paramiko.Transport]) -> ParamikoStream:
        began = time.monotonic()
        command, mark = remote_command()
        transport = transports[-1]
        with closed_after(SHELL_TIMEOUT_S, transports[0]) as deadline:
            try:
                channel = transport.open_session(timeout=CONNECT_TIMEOUT_S)
                channel.exec_command(command)
                stream = ParamikoStream(channel, transports)
                greeting = read_greeting(lambda: stream.receive(1), mark)
            except (paramiko.SSHException, EOFError, OSError) as error:
                message = f"{self.place} let you in but opened no session: {printable(str(error)) or 'no answer'}."
                raise ClusterError(message, "Too many of your sessions there, or the node is overloaded.") from error
        if greeting is None:
            said = printable(stream.complaint().splitlines()[-1]) if stream.complaint() else ""
            why = (
                f"took longer than {SHELL_TIMEOUT_S:.0f} s"
                if deadline.passed
                else f"ended{f': {said}' if said else ''}"
            )
            raise ClusterError(f"The login shell on {self.place} {why}.", "Look at its start-up files (~/.bashrc).")
        shell_s = time.monotonic() - began
        self.opened = msgspec.structs.replace(self.opened, shell_s=shell_s, greeting=greeting)
        return stream


def _tcp(host: SshHost) -> socket.socket:
    sock = socket.create_connection((host.hostname, host.port), CONNECT_TIMEOUT_S)
    # with Nagle's algorithm a request costs 45 ms instead of 5
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_LINK_MS)
    return sock


def _tunnel(host: SshHost, through: paramiko.Transport) -> paramiko.Channel:
    return through.open_channel("direct-tcpip", (host.hostname, host.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S)


def _unreachable(host: SshHost, error: Exception, is_behind: bool) -> ClusterError:
    where = f"{host.hostname} port {host.port}" + (" from the jump host" if is_behind else "")
    if isinstance(error, socket.gaierror):
        return ClusterError(
            f"{host.hostname} cannot be found: {error.strerror}.", "Check host: of the profile, and DNS."
        )
    if isinstance(error, TimeoutError):
        return ClusterError(f"{where} does not answer.", "Check the network or VPN, and whether the node is up.")
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        return ClusterError(f"{where} cannot be reached: {printable(said)}.", "Check host:, port: and the network.")
    if isinstance(error, paramiko.ChannelException):
        return ClusterError(
            f"{where} cannot be reached: {printable(error.text)}.", "Check the address and the jump host."
        )
    said = printable(str(error)) or "the connection was closed"
    return ClusterError(f"{where} does not speak SSH with us: {said}.", "It may be overloaded, or refuse this network.")


class ParamikoStream:
    """One channel as a ``ByteStream``; it owns the transports below it."""

    def __init__(self, channel: paramiko.Channel, transports: Sequence[paramiko.Transport]) -> None:
        self._channel = channel
        self._transports = transports
        self._said: deque[bytes] = deque(maxlen=20)
        channel.settimeout(PIECE_S)

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of ``data``; see ``ByteStream``. A link that stands still is closed when the time is over."""
        left = memoryview(data)
        with closed_after(timeout_s, self._transports[0]) as deadline:
            while left:
                try:
                    sent = self._channel.send(bytes(left[:65536]))
                except TimeoutError:
                    continue
                except (OSError, EOFError, paramiko.SSHException) as error:
                    if deadline.passed:
                        break
                    raise ConnectionError("the connection is gone") from error
                if not sent:
                    break
                left = left[sent:]
        if deadline.passed:
            raise TimeoutError("the relay does not take requests")
        if left:
            raise ConnectionError("the connection is closed")

    def receive(self, limit: int) -> bytes:
        """Wait for bytes; see ``ByteStream``."""
        while True:
            try:
                data = self._channel.recv(limit)
            except TimeoutError:
                self._drain()
                continue
            except (OSError, EOFError, paramiko.SSHException):
                return b""
            self._drain()
            return data

    def _drain(self) -> None:
        """Take what is on the error channel, so that it cannot fill the window that both share."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            while self._channel.recv_stderr_ready():
                self._said.append(self._channel.recv_stderr(2000))

    def close(self) -> None:
        """End the session and every connection on the way."""
        # the polite word for the channel may get stuck in a link that stands still
        with closed_after(CLOSE_GRACE_S, self._transports[0]):
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._channel.close()
            for transport in reversed(self._transports):
                transport.close()

    def was_cut(self) -> bool:
        """Whether no status of the relay came: sshd sends it after the last byte, a link that breaks does not."""
        self._channel.status_event.wait(CLOSE_GRACE_S)
        return self._channel.exit_status < 0

    def complaint(self) -> str:
        """The last lines that the other side wrote to standard error."""
        self._drain()
        return b"".join(self._said)[-2000:].decode("utf-8", "replace").strip()
