"""The local cluster: the machine that rltui runs on, through the same relay that a remote one would have."""

from __future__ import annotations

import os
import sys

from rltui.cluster.hosts import HostsCluster
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.relay_client import RelayClient
from rltui.paths import ensure_private, run_root


def trainer_python() -> str:
    """The interpreter of supervisor and trainers on this machine: ``$RLTUI_TRAINER_PYTHON``, or rltui's own."""
    return os.environ.get("RLTUI_TRAINER_PYTHON") or sys.executable


class LocalCluster(HostsCluster):
    """This machine, with nothing that a profile would have to say of it.

    Args:
        profile: What the user says of it all the same: whom to tell, and where the secrets are.
    """

    def __init__(self, profile: Profile | None = None) -> None:
        told = {"notify": profile.notify, "env_file": profile.env_file} if profile else {}
        here = {"summary": "this machine", "transport": "local", "scheduler": "local", "python": trainer_python()}
        super().__init__(Profile(name=LOCAL, **here, **told), RelayClient(LocalTransport()))  # type: ignore[arg-type]
        self._folder = str(ensure_private(run_root()))

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._folder
