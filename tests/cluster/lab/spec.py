"""What the lab is made of: its nodes, users, services and where its files lie."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

NETWORK = "10.77.0"
CLUSTER = "lab"
PASSWORD = "opensesame"  # of the accounts that are asked for one
PASSWORD_HASH = "$6$rltui$RLV0I935Ea5PWsb6HPZ0INmjvOgjeQ3/QgcxU.Z0KL6fb4lhUGc/KoG4ng4M.PkAHqKB2.xgkwDpAmZyTvraY1"
MEMORY_MIB = 64_000
CPUS = 32
# What the users' uid is, and how sshd lets them in.
USERS = {"alice": 2001, "bob": 2002, "carol": 2003, "dora": 2004}
TEAM = ("alice", "bob")  # members of the group "team"
TEAM_GID = 2100
BY_PASSWORD = "carol"  # keyboard-interactive
BY_KEY_AND_PASSWORD = "dora"  # public key, then keyboard-interactive

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "mariadbd": "mariadb-server",
    "gcc": "gcc",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HEADERS = Path("/usr/include/stdio.h")  # libc6-dev, which gcc only recommends


class LabError(RuntimeError):
    """The lab could not do what was asked."""


def why_not() -> str | None:
    """Return why the lab cannot run on this machine, or None."""
    if os.geteuid():
        return "the Slurm test cluster needs root"
    missing = {package for program, package in PROGRAMS.items() if not shutil.which(program, path=SBIN)}
    if not HEADERS.exists():
        missing.add("libc6-dev")
    if missing:
        return f"the Slurm test cluster needs: apt-get install --no-install-recommends {' '.join(sorted(missing))}"
    return None


def environment_paths() -> tuple[str, ...]:
    """Return the folders that hold this checkout, its Python environment and that one's base interpreter."""
    checkout = Path(__file__).resolve().parents[3]
    folders = {checkout, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return tuple(sorted(str(folder) for folder in folders if not folder.is_relative_to("/usr")))


@dataclass(frozen=True)
class Spec:
    """How big a lab is and where it lies.

    Args:
        folder: The lab's own folder: disks, logs, keys.
        port: Port of 127.0.0.1 that leads to the login node's sshd.
        compute_nodes: Number of nodes that run jobs.
        gpus: Pretended H100 a node.
        accounting: Whether there is a slurmdbd; without it ``sacct`` has nothing to say.
        visible: Folders of this machine that all nodes see, read-only, at the same path.
    """

    folder: str
    port: int
    compute_nodes: int = 3
    gpus: int = 4
    accounting: bool = True
    visible: tuple[str, ...] = ()

    @property
    def compute(self) -> list[str]:
        """Names of the nodes that run jobs."""
        return [f"node{number}" for number in range(1, self.compute_nodes + 1)]

    @property
    def addresses(self) -> dict[str, str]:
        """Every node's address, by name."""
        fixed = {"login": f"{NETWORK}.2", "ctl": f"{NETWORK}.3"}
        return fixed | {name: f"{NETWORK}.{10 + number}" for number, name in enumerate(self.compute, 1)}

    def services(self, node: str) -> tuple[str, ...]:
        """Names of what runs on ``node``, in the order in which it is started."""
        if node == "ctl":
            return ("munged", "mariadbd", "slurmdbd", "slurmctld") if self.accounting else ("munged", "slurmctld")
        return ("munged", "sshd", "slurmd") if node in self.compute else ("munged", "sshd")

    def disk(self, node: str) -> Path:
        """The folder with what ``node`` has for itself."""
        return Path(self.folder, "nodes", node)

    def save(self) -> None:
        """Write this down in the lab's folder."""
        Path(self.folder, "spec.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: str | Path) -> Spec:
        """Read what ``save`` wrote."""
        values = json.loads(Path(folder, "spec.json").read_text())
        return cls(**values | {"visible": tuple(values["visible"])})


@dataclass(frozen=True)
class Ssh:
    """How a user reaches the login node from this machine.

    Args:
        host: Always 127.0.0.1.
        port: Where the lab's login node listens.
        user: Login name.
        key: Private key without a passphrase.
        known_hosts: Host keys of all nodes.
        config: For ``ssh -F``: host ``lab`` is the login node, ``node1`` and so on are reached through it.
    """

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path
    config: Path
