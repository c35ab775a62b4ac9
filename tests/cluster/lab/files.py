"""Writes a lab's folder: keys, homes, and what each node has in /etc."""

from __future__ import annotations

import os
import re
import shutil
import string
import subprocess
from pathlib import Path

from .spec import (
    BY_KEY_AND_PASSWORD,
    BY_PASSWORD,
    CLUSTER,
    CPUS,
    MEMORY_MIB,
    PASSWORD_HASH,
    TEAM,
    TEAM_GID,
    USERS,
    LabError,
    Spec,
)

HERE = Path(__file__).parent
OWN_FOLDERS = (
    "etc",
    "lab",
    "root",
    "tmp",
    "usr/local/bin",
    "var/log/slurm",
    "var/spool/slurmctld",
    "var/spool/slurmd",
    "var/tmp",
)
REPLACED = ("/home", "/root", "/run", "/tmp", "/var/log", "/var/spool", "/var/tmp")  # by node.sh; see there


def tool(*argv: str) -> None:
    """Run a program that has to succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")


def write(path: Path, text: str, mode: int = 0o644, owner: str | int | None = None) -> None:
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    if owner is not None:
        shutil.chown(path, owner, owner)


def new_key(path: Path) -> str:
    """Make a key pair; returns the public half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))
    return Path(f"{path}.pub").read_text()


def write_lab(spec: Spec) -> None:
    """Write everything that the nodes need to boot."""
    folder = Path(spec.folder)
    spec.save()
    write(folder / "visible", "".join(f"{path}\n" for path in spec.visible))
    write(folder / "closed", "".join(f"{path}\n" for path in closed_folders(spec.visible)))
    new_key(folder / "ssh/id_ed25519")
    new_key(folder / "ssh/within")
    build(folder / "nvml")
    write_homes(folder)
    munge_key = os.urandom(64).hex()
    host_keys = {node: new_key(folder / "ssh/hosts" / node) for node in spec.addresses}
    known = "".join(f"{node},{spec.addresses[node]} {key.rsplit(' ', 1)[0]}\n" for node, key in host_keys.items())
    for node in spec.addresses:
        write_node(spec, node, munge_key, known)
    write_ssh(spec, known)


def closed_folders(paths: tuple[str, ...]) -> list[str]:
    """Return the topmost folders above ``paths`` that users may not enter, but for those that nodes have anew."""
    found = set()
    for path in map(Path, paths):
        above = [folder for folder in reversed(path.parents) if not str(folder).startswith(REPLACED)]
        found.update([str(folder) for folder in above if not folder.stat().st_mode & 0o001][:1])
    return sorted(found)


def build(target: Path) -> None:
    """Compile what stands in for NVIDIA's library, and what shifts a node's clock."""
    target.mkdir()
    flags = ("gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC")
    tool(*flags, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(target / "libnvidia-ml.so.1"), str(HERE / "nvml.c"))
    tool(*flags, "-o", str(target / "clock.so"), str(HERE / "clock.c"))


def write_homes(folder: Path) -> None:
    """Write every user's home as it is on the first day; one that is there is emptied."""
    authorized = (folder / "ssh/id_ed25519.pub").read_text() + (folder / "ssh/within.pub").read_text()
    for user, uid in USERS.items():
        home = folder / "home" / user
        shutil.rmtree(home, ignore_errors=True)
        write(home / ".ssh/authorized_keys", authorized, 0o600)
        write(home / ".ssh/id_ed25519", (folder / "ssh/within").read_text(), 0o600)
        write(home / ".bashrc", "")
        (home / ".ssh").chmod(0o700)
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid)


def write_node(spec: Spec, node: str, munge_key: str, known: str) -> None:
    """Write one node's disk."""
    disk = spec.disk(node)
    for name in OWN_FOLDERS:
        (disk / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (disk / name).chmod(0o1777)
    (disk / "root").chmod(0o711)  # a base interpreter may lie below
    for name in ("var/log/slurm", "var/spool/slurmctld"):
        shutil.chown(disk / name, "slurm", "slurm")
    etc = disk / "etc"
    write(etc / "hostname", f"{node}\n")
    write(etc / "hosts", "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in spec.addresses.items()))
    write(etc / "resolv.conf", "")
    write(etc / "munge/munge.key", munge_key, 0o400, "munge")
    (etc / "munge").chmod(0o700)
    shutil.chown(etc / "munge", "munge", "munge")
    write_users(etc)
    write_sshd(spec, etc, node, known)
    write_slurm(spec, etc)
    if node in spec.compute:
        write(etc / "ld.so.conf.d/00-lab.conf", "/run/nvml\n")
        shutil.copy(HERE / "nvidia-smi", disk / "usr/local/bin/nvidia-smi")


def write_users(etc: Path) -> None:
    """Add the lab's users to the machine's."""
    passwd, group, shadow = (Path("/etc", name).read_text() for name in ("passwd", "group", "shadow"))
    passwd = re.sub(r"(?m)^(root:.*:)[^:]*$", r"\1/bin/bash", passwd)
    for user, uid in USERS.items():
        secret = PASSWORD_HASH if user in (BY_PASSWORD, BY_KEY_AND_PASSWORD) else "*"
        passwd += f"{user}:x:{uid}:{uid}:{user.title()}:/home/{user}:/bin/bash\n"
        group += f"{user}:x:{uid}:\n"
        shadow += f"{user}:{secret}:19000:0:99999:7:::\n"
    group += f"team:x:{TEAM_GID}:{','.join(TEAM)}\n"
    write(etc / "passwd", passwd)
    write(etc / "group", group)
    write(etc / "shadow", shadow, 0o640)


def write_sshd(spec: Spec, etc: Path, node: str, known: str) -> None:
    """Write the host's keys and how sshd lets people in."""
    key = Path(spec.folder, "ssh/hosts", node)
    write(etc / "ssh/ssh_host_ed25519_key", key.read_text(), 0o600)
    write(etc / "ssh/ssh_host_ed25519_key.pub", Path(f"{key}.pub").read_text())
    write(etc / "ssh/ssh_known_hosts", known)
    settings = (HERE / "etc/sshd_config").read_text()
    write(etc / "ssh/sshd_config", string.Template(settings).substitute(password=BY_PASSWORD, both=BY_KEY_AND_PASSWORD))
    write(etc / "pam.d/sshd", (HERE / "etc/pam-sshd").read_text())


def write_slurm(spec: Spec, etc: Path) -> None:
    """Write Slurm's settings, the same on all nodes."""
    values = {
        "cluster": CLUSTER,
        "ctl": spec.addresses["ctl"],
        "nodes": f"node[1-{spec.compute_nodes}]",
        "gpus": spec.gpus,
        "last_gpu": spec.gpus - 1,
        "cpus": CPUS,
        "memory": MEMORY_MIB,
        "addresses": f"{spec.addresses['node1'].rsplit('.', 1)[0]}.[11-{10 + spec.compute_nodes}]",
        "storage": (HERE / "etc/slurm-accounting.conf").read_text() if spec.accounting else "",
    }
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        write(etc / "slurm" / name, string.Template((HERE / "etc" / name).read_text()).substitute(values))
    write(etc / "slurm/slurmdbd.conf", (HERE / "etc/slurmdbd.conf").read_text(), 0o600, "slurm")
    write(etc / "lab-accounts", (HERE / "etc/accounts").read_text())


def write_ssh(spec: Spec, known: str) -> None:
    """Write what ssh needs on this machine to reach the nodes."""
    ssh = Path(spec.folder, "ssh")
    login_key = next(line.split(" ", 1)[1] for line in known.splitlines() if line.startswith("login,"))
    write(ssh / "known_hosts", f"[127.0.0.1]:{spec.port} {login_key}\n{known}")
    write(
        ssh / "config",
        f"Host lab login\n  HostName 127.0.0.1\n  Port {spec.port}\n"
        f"Host {' '.join(spec.compute)}\n  ProxyJump lab\n"
        f"Host *\n  User alice\n  IdentityFile {ssh}/id_ed25519\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {ssh}/known_hosts\n  StrictHostKeyChecking yes\n",
    )
