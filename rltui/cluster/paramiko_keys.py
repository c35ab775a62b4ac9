"""Private keys to log in with: those of the agent and those in files, with their certificates."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import datetime, timezone
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate

from rltui.cluster.known_hosts import fingerprint
from rltui.cluster.plain_text import printable
from rltui.cluster.prompts import Field, Prompter, Question
from rltui.cluster.ssh_host import SshHost

AGENT_TIMEOUT_S = 5.0
"""For the agent to list its keys: one that was forwarded over a link that is gone never answers."""

MOST_KEYS = 5
"""Keys that are offered: sshd ends the connection after six failed tries (MaxAuthTries), the first of them ours."""

PASSPHRASE_TRIES = 3

FOREVER = 2**64 - 1
"""``valid before`` of a certificate that does not end."""


class OfferedKey:
    """One key, as it is offered to a server.

    Attributes:
        key: What paramiko signs with.
        name: What it is, in words: ``agent key alice@laptop``, ``~/.ssh/id_ed25519``.
    """

    def __init__(self, key: paramiko.PKey, name: str) -> None:
        self.key = key
        self.name = name


class KeyRing:
    """The keys to offer to one host, in order: configured ones first, the agent's others last.

    Args:
        host: Whose identity files and certificates count.
        prompter: Asked for passphrases.

    Attributes:
        skipped: Why keys were passed over, one sentence each.
        wants_attention: Whether one was passed over because nobody could be asked for its passphrase.
    """

    def __init__(self, host: SshHost, prompter: Prompter) -> None:
        self._host = host
        self._prompter = prompter
        self.skipped: list[str] = []
        self.wants_attention = False

    def offers(self) -> Iterator[OfferedKey]:
        """Each key once, at most ``MOST_KEYS``; a file is opened, and its passphrase asked for, when its turn comes."""
        agent = {bytes(key.asbytes()): key for key in _agent_keys()}
        for count, key in enumerate(self._in_order(agent)):
            if count == MOST_KEYS:
                self.skipped.append(f"no more than {MOST_KEYS} keys are offered; name the right one: identity_file")
                return
            yield key

    def _in_order(self, agent: dict[bytes, paramiko.AgentKey]) -> Iterator[OfferedKey]:
        for file in map(Path, self._host.identity_files):
            blob = _public_blob(file)
            if blob is not None and blob in agent:
                key = agent.pop(blob)
                for certificate in self._certificates(file):
                    _certify(key, certificate)
                yield OfferedKey(key, f"agent key {file}")
            elif file.is_file() and (loaded := self._load(file)) is not None:
                yield OfferedKey(loaded, str(file))
        if not self._host.identities_only:
            for key in agent.values():
                comment = printable(getattr(key, "comment", "") or "") or fingerprint(key.asbytes())
                yield OfferedKey(key, f"agent key {comment}")

    def _load(self, file: Path) -> paramiko.PKey | None:
        problem = _unsafe(file)
        if problem:
            self.skipped.append(f"{file} {problem}")
            return None
        passphrases: Iterator[str | None] = iter((None,))
        if is_encrypted(file):
            if not self._prompter.attended:
                self.wants_attention = True
                self.skipped.append(f"{file} has a passphrase, and nobody can be asked for it now")
                return None
            passphrases = self._passphrases(file)
        for passphrase in passphrases:
            try:
                key = paramiko.PKey.from_path(file, passphrase.encode() if passphrase else None)  # type: ignore[arg-type]
            except (OSError, ValueError, TypeError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
                last = printable(str(error)) or type(error).__name__
                continue
            except UnsupportedAlgorithm as error:  # of some ciphers and kinds of keys that OpenSSH has
                last = printable(str(error))
                break
            for certificate in self._certificates(file):
                _certify(key, certificate)
            return key
        self.skipped.append(f"{file} cannot be read as a key ({last})")
        return None

    def _passphrases(self, file: Path) -> Iterator[str | None]:
        again = ""
        for _ in range(PASSPHRASE_TRIES):
            instructions = (again,) if again else ()
            question = Question("passphrase", str(file), (Field("Passphrase of this key:"),), instructions)
            yield self._prompter.ask(question)[0]
            again = "That was not it."

    def _certificates(self, file: Path) -> Iterator[Path]:
        for certificate in (*map(Path, self._host.certificate_files), Path(f"{file}-cert.pub")):
            if certificate.is_file():
                if ended := certificate_ended(certificate):
                    self.skipped.append(f"the certificate {certificate} ended {ended}; fetch a new one")
                yield certificate


def certificate_ended(certificate: Path) -> str:
    """When a certificate ended, in words; empty where it has not, or cannot be read."""
    try:
        loaded = load_ssh_public_identity(certificate.read_bytes())
    except (OSError, ValueError):
        return ""
    if not isinstance(loaded, SSHCertificate) or loaded.valid_before == FOREVER:
        return ""
    end = datetime.fromtimestamp(loaded.valid_before, timezone.utc).astimezone()
    return end.strftime("on %Y-%m-%d at %H:%M") if end < datetime.now(timezone.utc) else ""


def is_encrypted(file: Path) -> bool:
    """Whether a private key needs a passphrase, by its header alone."""
    try:
        text = file.read_bytes()[: 1 << 16]
    except OSError:
        return False
    if b"BEGIN OPENSSH PRIVATE KEY" not in text:
        return b"ENCRYPTED" in text[:400]
    body = b"".join(line for line in text.splitlines() if line and not line.startswith(b"-----"))
    try:
        # "openssh-key-v1", a zero byte, then the name of the cipher with its length
        return not base64.b64decode(body[:64])[15:].startswith(b"\x00\x00\x00\x04none")
    except ValueError:
        return False


def _unsafe(file: Path) -> str:
    """Like ssh: a key that others can read is not used, since it may be everybody's by now."""
    mode = file.stat().st_mode & 0o777
    return f"can be read by others (mode {mode:04o}): chmod 600 {file}" if mode & 0o077 else ""


def _public_blob(file: Path) -> bytes | None:
    try:
        return base64.b64decode(Path(f"{file}.pub").read_text("utf-8", "replace").split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _certify(key: paramiko.PKey, certificate: Path) -> None:
    """Let ``key`` be offered with a certificate, where it is one of that key."""
    try:
        key.load_certificate(str(certificate))
    except (OSError, ValueError, paramiko.SSHException):
        return
    blob = getattr(key.public_blob, "key_blob", b"")
    # a CertificateFile counts for every identity file, so it may be another key's
    if key.public_blob is not None and not _is_of(blob, key):
        key.public_blob = None


def _is_of(blob: bytes, key: paramiko.PKey) -> bool:
    fields = paramiko.Message(key.asbytes())
    # behind the name of the type comes the key itself, and a certificate of it holds the same bytes
    fields.get_text()
    return fields.get_remainder() in blob


def _agent_keys() -> tuple[paramiko.AgentKey, ...]:
    return _within(AGENT_TIMEOUT_S, lambda: paramiko.Agent().get_keys()) or ()


def _within(
    timeout_s: float, work: Callable[[], tuple[paramiko.AgentKey, ...]]
) -> tuple[paramiko.AgentKey, ...] | None:
    done: Future[tuple[paramiko.AgentKey, ...]] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except (OSError, paramiko.SSHException) as error:
            done.set_exception(error)

    threading.Thread(target=do, name="ssh agent", daemon=True).start()
    try:
        return done.result(timeout_s)
    except (FutureTimeoutError, TimeoutError, OSError, paramiko.SSHException):
        return None
