"""Logging in: is it the right host; then keys, then what the server asks, one try each, until it is satisfied."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import paramiko

from rltui.cluster.known_hosts import KnownHosts, fingerprint, read_known_hosts, remember
from rltui.cluster.paramiko_keys import KeyRing
from rltui.cluster.plain_text import printable
from rltui.cluster.prompts import NEXT_STEP, YES, Field, Prompter, Question
from rltui.cluster.ssh_host import SshHost
from rltui.cluster.transport import AuthFailedError, HostKeyError, NeedsAttentionError
from rltui.errors import ClusterError


class Deadline:
    """Closes a transport unless it is lifted in time; the time that a person takes to answer does not count.

    ``Channel.exec_command`` and a send into a link that stands still wait for ever; answers to a keyboard-interactive
    login are given in paramiko's own thread while its time-out for the whole login runs.

    Attributes:
        passed: Whether it has closed the transport.
    """

    def __init__(self, transport: paramiko.Transport, timeout_s: float) -> None:
        self.passed = False
        self._transport = transport
        self._left = timeout_s
        self._lock = threading.Lock()
        self._lifted = False
        self._began = 0.0
        self._timer: threading.Timer | None = None
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._lifted:
                return
            self._began = time.monotonic()
            self._timer = threading.Timer(max(0.0, self._left), self._pass)
            self._timer.daemon = True
            self._timer.start()

    def _pass(self) -> None:
        with self._lock:
            if self._lifted:
                return
            self.passed = True
        # not under the lock: close() waits for paramiko's thread, and that may be about to take it in paused()
        self._transport.close()

    def lift(self) -> None:
        """The login is done in time: let the transport live from here on."""
        with self._lock:
            self._lifted = True
            if self._timer is not None:
                self._timer.cancel()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock for the length of the block."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._left -= time.monotonic() - self._began
        try:
            yield
        finally:
            self._start()


@contextmanager
def closed_after(timeout_s: float, transport: paramiko.Transport) -> Iterator[Deadline]:
    """Close ``transport`` unless the block is done within ``timeout_s``."""
    deadline = Deadline(transport, timeout_s)
    try:
        yield deadline
    finally:
        deadline.lift()


AUTH_TIMEOUT_S = 45.0
"""For the server's share of a login; PAM modules that ask other servers take seconds each."""

LONGEST_LOGIN_S = 900.0
"""For all of it, a person's thinking included; servers end it earlier (LoginGraceTime, 120 s)."""

MOST_FACTORS = 4
MOST_LINES = 20


def authenticate(
    transport: paramiko.Transport, host: SshHost, prompter: Prompter, base: paramiko.Transport | None = None
) -> str:
    """Log in to ``host`` on a transport whose host key was checked; returns what the server accepted, in words.

    Args:
        transport: The transport.
        host: Where it leads.
        prompter: Who answers what the server asks.
        base: The transport of the first jump host, where there is one: closing it ends those within at once.

    Raises:
        AuthFailedError: The server refused.
        NeedsAttentionError: It asks something, and nobody is there to answer.
        ClusterError: It does not answer, or ended the connection.
    """
    # paramiko's own is 30 s, in which nobody finds a phone; the server's share has a deadline below
    transport.auth_timeout = LONGEST_LOGIN_S
    with closed_after(AUTH_TIMEOUT_S, base or transport) as deadline:
        login = _Login(transport, host, _PausingPrompter(prompter, deadline))
        try:
            return login.run()
        except (paramiko.SSHException, EOFError, OSError) as error:
            if deadline.passed:
                message = f"{host.title} did not finish the login in {AUTH_TIMEOUT_S:.0f} s."
                raise ClusterError(
                    message, "The login node may be overloaded; the next try opens a new one."
                ) from error
            said = goodbye_of(transport)
            if _is_lost(error) and not login.was_refused(said):
                message = f"The connection to {host.title} ended during the login{f': {said}' if said else ''}."
                raise ClusterError(message, "The next try opens a new one.") from error
            login.fail(said or printable(str(error)))


def goodbye_of(transport: paramiko.Transport) -> str:
    """What the server said when it ended the connection; empty where it just went away."""
    return printable(str(getattr(transport, "goodbye", "")))


def _is_lost(error: Exception) -> bool:
    """Whether the connection went away, rather than the login being refused: only the latter needs a person."""
    words = ("transport shut down", "No existing session", "connection dropped")
    return isinstance(error, EOFError | OSError) or any(word in str(error) for word in words)


class _PausingPrompter:
    """A prompter whose thinking time does not count against the server's."""

    def __init__(self, prompter: Prompter, deadline: Deadline) -> None:
        self._prompter = prompter
        self._deadline = deadline

    @property
    def attended(self) -> bool:
        return self._prompter.attended

    def ask(self, question: Question) -> tuple[str, ...]:
        with self._deadline.paused():
            return self._prompter.ask(question)


class _Login:
    """One login; each ``_by_…`` returns what the server wants next, None where it was refused."""

    def __init__(self, transport: paramiko.Transport, host: SshHost, prompter: Prompter) -> None:
        self._transport = transport
        self._host = host
        self._prompter = prompter
        self._ring = KeyRing(host, prompter)
        self._tried: list[str] = []
        self._accepted: list[str] = []
        self._unasked: list[str] = []
        self._was_asked = False
        self._interruption: NeedsAttentionError | None = None

    def run(self) -> str:
        allowed: Sequence[str] | None = self._by_nothing()
        for _ in range(MOST_FACTORS):
            if allowed is None or self._transport.is_authenticated():
                break
            allowed = self._one_factor(allowed)
        if not self._transport.is_authenticated():
            self.fail()
        return " + ".join(self._accepted)

    def _by_nothing(self) -> Sequence[str]:
        """Ask which methods there are; a server may also let everybody in."""
        try:
            self._transport.auth_none(self._host.user)
        except paramiko.BadAuthenticationType as error:
            return error.allowed_types
        self._accepted.append("no authentication")
        return []

    def _one_factor(self, allowed: Sequence[str]) -> Sequence[str] | None:
        methods = {
            "publickey": self._by_key,
            "keyboard-interactive": self._by_questions,
            "password": self._by_password,
        }
        for name, method in methods.items():
            # a second question after a refused answer would be a second failed try, and accounts are locked after few
            if name in allowed and not (self._was_asked and name != "publickey"):
                remaining = method()
                if remaining is not None:
                    self._was_asked = False
                    return remaining
        return None

    def _by_key(self) -> Sequence[str] | None:
        for offered in self._ring.offers():
            self._tried.append(offered.name)
            try:
                remaining = self._transport.auth_publickey(self._host.user, offered.key)
            except paramiko.BadAuthenticationType:
                return None
            except paramiko.AuthenticationException:
                if not self._transport.is_active():
                    raise
                continue
            self._accepted.append(offered.name)
            return remaining
        return None

    def _by_questions(self) -> Sequence[str] | None:
        # not even begun without a person: beginning may send a push to a phone
        if not self._prompter.attended:
            self._unasked.append("asks questions at login (keyboard-interactive)")
            return None
        self._tried.append("answers to its questions")
        try:
            remaining = self._transport.auth_interactive(self._host.user, self._answer)
        except paramiko.BadAuthenticationType:
            return None
        except paramiko.AuthenticationException:
            if self._interruption is not None:
                raise self._interruption from None
            if not self._transport.is_active():
                raise
            return None
        self._accepted.append("keyboard-interactive")
        return remaining

    def _answer(self, title: str, instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        """Runs in paramiko's thread, so what goes wrong is kept for the caller's."""
        if not prompts:
            return []
        fields = tuple(Field(printable(text) or "Answer:", echo) for text, echo in prompts)
        said = f"{title}\n{instructions}".splitlines()
        lines = tuple(line for line in map(printable, said[:MOST_LINES]) if line)
        self._was_asked = True
        try:
            return list(self._prompter.ask(Question("interactive", self._host.title, fields, lines)))
        except NeedsAttentionError as error:
            self._interruption = error
            # only this gives a login up: any answer is a try, and accounts are locked after few that failed
            self._transport.close()
            return [""] * len(prompts)

    def _by_password(self) -> Sequence[str] | None:
        if not self._prompter.attended:
            self._unasked.append("wants a password")
            return None
        question = Question("password", self._host.title, (Field("Password:"),))
        self._was_asked = True
        [password] = self._prompter.ask(question)
        self._tried.append("password")
        try:
            # paramiko would answer a keyboard-interactive question with it, whatever that asks for
            remaining = self._transport.auth_password(self._host.user, password, fallback=False)
        except paramiko.BadAuthenticationType:
            return None
        except paramiko.AuthenticationException:
            if not self._transport.is_active():
                raise
            return None
        self._accepted.append("password")
        return remaining

    def was_refused(self, said: str) -> bool:
        """Whether the server ended the connection because of us: for keys or answers that it did not like."""
        return "authentication" in said.lower() or self._interruption is not None

    def fail(self, said: str = "") -> NoReturn:
        """Say what was tried and what to do."""
        if self._interruption is not None:
            raise self._interruption
        title, skipped = self._host.title, "; ".join(self._ring.skipped)
        if self._unasked or self._ring.wants_attention:
            what = " and ".join(self._unasked) or "takes none of the keys that need no passphrase"
            refused = f"it refused {', '.join(self._tried)}" if self._tried and not self._accepted else ""
            why = "; ".join(part for part in (refused, skipped) if part)
            raise NeedsAttentionError(f"{title} {what}{f' ({why})' if why else ''}.", NEXT_STEP)
        tried = ", ".join(self._tried) or "nothing, for there is no key"
        because = f" ({said})" if said and not said.startswith("Authentication failed") else ""
        hint = f"Passed over: {skipped}." if skipped else f"Try `ssh {self._host.hop}` by hand; it must let you in."
        raise AuthFailedError(f"{title} refused the login; tried: {tried}{because}.", hint)


ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""What a key type is called where host key algorithms are agreed on, where that differs."""


class HostKeys:
    """The known keys of one host.

    Args:
        host: Which host, and in which files its keys are.
    """

    def __init__(self, host: SshHost) -> None:
        self._host = host
        name, port = (host.host_key_alias, 0) if host.host_key_alias else (host.hostname, host.port)
        self._name, self._port = name, port
        entries = read_known_hosts((*host.known_hosts_files, *host.global_known_hosts_files))
        self.known = KnownHosts(entries, name, port)

    def prefer_known(self, transport: paramiko.Transport) -> None:
        """Ask the server for a key of a type that is known first; otherwise it shows another one that is unknown."""
        options = transport.get_security_options()
        wanted = [name for kind in self.known.key_types for name in ALGORITHMS.get(kind, (kind,))]
        first = [name for name in wanted if name in options.key_types]
        options.key_types = (*first, *(name for name in options.key_types if name not in first))

    def check(self, key: paramiko.PKey, prompter: Prompter) -> str:
        """Let a known key pass, and an unknown one when the user confirms it; returns type and fingerprint.

        Raises:
            HostKeyError: The key is another than the known one, or revoked; never overridden.
            NeedsAttentionError: It is unknown and not confirmed.
        """
        shown = f"{key.get_name()} {fingerprint(key.asbytes())}"
        verdict = self.known.judge(key.asbytes())
        if verdict in ("changed", "revoked"):
            raise self._refusal(verdict, shown)
        if verdict == "unknown":
            self._confirm(key, shown, prompter)
        return shown

    def _refusal(self, verdict: str, shown: str) -> HostKeyError:
        host = self._host.hostname
        if verdict == "revoked":
            return HostKeyError(f"{host} shows a key that is revoked: {shown}.", "Ask the site; do not connect.")
        return HostKeyError(
            f"{host} shows another key than the one that is known ({', '.join(self.known.places[:3])}): {shown}. "
            "Somebody may be listening in, or the machine was set up anew.",
            f"Compare with what the site publishes. Only if it is right: "
            f"ssh-keygen -R '{self.known.name}' -f {self.known.places[0].rpartition(':')[0]}",
        )

    def _confirm(self, key: paramiko.PKey, shown: str, prompter: Prompter) -> None:
        host = self._host.hostname
        if not prompter.attended:
            message = f"The key of {host} is not known yet: {shown}."
            hint = "Compare it with the site's page: `rltui doctor CLUSTER` in a terminal asks, `a` in the cockpit too."
            raise NeedsAttentionError(message, hint)
        by_authority = "A certificate authority is known for it, which only `transport: openssh` can check."
        question = Question(
            "host-key",
            host,
            (Field(f"Is this its key? ({YES}, or the fingerprint; anything else is no)", echo=True),),
            (
                f"The key of {host} is not known yet:",
                f"  {shown}",
                "Compare it with what the site publishes.",
                *((by_authority,) if self.known.has_authority else ()),
            ),
        )
        [answer] = prompter.ask(question)
        if answer.strip() not in (YES, shown.split()[1]):
            hint = f"Nothing was sent to it. The answer that confirms it is the whole word {YES}, or the fingerprint."
            raise NeedsAttentionError(f"You did not confirm the key of {host}.", hint)
        self._remember(key)

    def _remember(self, key: paramiko.PKey) -> None:
        files = self._host.known_hosts_files
        if not files:
            return
        try:
            blob = base64.b64decode(key.get_base64())
            remember(Path(files[0]), self._name, self._port, key.get_name(), blob, self._host.hash_known_hosts)
        except OSError as error:
            raise ClusterError(f"Cannot write {files[0]}: {error.strerror}.", "The key must be kept there.") from error
