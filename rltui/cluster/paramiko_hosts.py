"""Is the server who it says it is: strict host keys, a new one only after the user confirmed its fingerprint."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.cluster.known_hosts import KnownHosts, fingerprint, read_known_hosts, remember
from rltui.cluster.prompts import YES, Field, Prompter, Question
from rltui.cluster.transport import HostKeyError, NeedsAttentionError
from rltui.errors import ClusterError

if TYPE_CHECKING:
    import paramiko

    from rltui.cluster.ssh_host import SshHost

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
            f"ssh-keygen -R '{self.known.name}' -f {self._host.known_hosts_files[0]}",
        )

    def _confirm(self, key: paramiko.PKey, shown: str, prompter: Prompter) -> None:
        host = self._host.hostname
        if not prompter.attended:
            message = f"The key of {host} is not known yet: {shown}."
            raise NeedsAttentionError(
                message, "`rltui doctor CLUSTER` shows it and asks; compare with the site's page."
            )
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
            raise NeedsAttentionError(f"You did not confirm the key of {host}.", "Nothing was sent to it.")
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
