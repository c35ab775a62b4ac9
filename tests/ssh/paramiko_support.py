"""Connecting through paramiko, for the tests of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.cluster.open_transport import open_transport
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.relay_client import RelayClient

if TYPE_CHECKING:
    from ssh_lab import Sshd

    from rltui.cluster.prompts import Prompter


def connect(prompter: Prompter | None = None, host: str = "login", **keys: object) -> RelayClient:
    profile = Profile(name="c", host=host, transport="paramiko", **keys)  # type: ignore[arg-type]
    return RelayClient(open_transport(profile, prompter or UnattendedPrompter()))


def accepted(server: Sshd) -> list[str]:
    return re.findall(r"Accepted (\S+) for", server.log)


def refused(server: Sshd) -> int:
    return len(re.findall(r"Failed (?!none)\S+ for", server.log))
