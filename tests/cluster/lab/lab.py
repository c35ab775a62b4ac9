"""The lab as tests use it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .control import ask, start_time
from .files import write_homes, write_lab
from .forward import FROM_CLUSTER
from .services import enter
from .spec import USERS, LabError, Spec, Ssh, environment_paths, why_not

HERE = Path(__file__).parent
STOP_DEADLINE_S = 120.0
RESET_DEADLINE_S = 300.0
GPU_NAME, GPU_MIB = "NVIDIA H100 80GB HBM3", 81559

CANCEL_ALL = "squeue -ha -o %A | sort -u | tee /dev/stderr | xargs -r scancel --quiet"  # says which on stderr
EMPTY = "find /tmp /var/tmp /dev/shm -mindepth 1 -maxdepth 1 -uid +2000 -exec rm -rf {} +"
"""A run that was killed with all it had leaves Ray's folder, which the next test would take for its own."""
TAKE_BACK = """
for name in $(scontrol -o show reservations | sed -n 's/^ReservationName=\\([^ ]*\\).*/\\1/p'); do
  scontrol delete reservation="$name"
done
for name in gpu debug low; do scontrol update partitionname=$name state=up; done
for name in $(sinfo -hN -o '%N %T' | awk '$2 ~ /drain|down|inval|fail/ {print $1}' | sort -u); do
  scontrol update nodename="$name" state=resume
done
"""


class SshPath:
    """The way from this machine to the login node's sshd, and its faults. All return at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reset(self) -> None:
        """End all connections by RST; new ones are accepted."""
        ask(self._folder, "ssh", action="reset")

    def freeze(self) -> None:
        """Let no byte pass: connections stay open, new ones hang."""
        ask(self._folder, "ssh", action="freeze")

    def stop(self) -> None:
        """End all connections and refuse new ones."""
        ask(self._folder, "ssh", action="refuse")

    def thaw(self) -> None:
        """Mend it: also after ``stop``; cuts yet to come are forgotten."""
        ask(self._folder, "ssh", action="mend")

    start = thaw

    def cut_after(self, n_bytes: int, direction: str = FROM_CLUSTER, fault: str = "refuse") -> None:
        """Let exactly ``n_bytes`` more pass in ``direction`` (to_cluster or from_cluster), then fail.

        Args:
            n_bytes: Counted over all connections together, from now on.
            direction: The bytes that are counted.
            fault: ``reset``, ``freeze`` or ``refuse``, as in the methods above; the last two stay until ``start``.
        """
        ask(self._folder, "ssh", action="cut", after=n_bytes, direction=direction, fault=fault)

    def count(self) -> dict[str, int]:
        """Bytes that have passed ``to_cluster`` and ``from_cluster``, and ``cuts`` that have happened."""
        return dict(ask(self._folder, "ssh", action="count"))


class Lab:
    """A Slurm cluster: nodes ``login``, ``ctl``, ``node1`` and so on.

    Args:
        compute_nodes: Number of nodes that run jobs.
        gpus: Pretended H100 a node.
        accounting: Without it there is no slurmdbd, and ``sacct`` has nothing to say.
        folder: Where the lab's files go; without it, a new folder that is removed at the end.
    """

    def __init__(
        self, compute_nodes: int = 3, gpus: int = 4, accounting: bool = True, folder: Path | None = None
    ) -> None:
        self._owned = folder is None
        self.folder = folder or Path(tempfile.gettempdir(), f"rltui-lab-{secrets.token_hex(4)}")
        self.spec = Spec(str(self.folder), free_port(), compute_nodes, gpus, accounting, environment_paths())
        self.ssh = SshPath(self.folder)
        self._pids: dict[str, int] = {}

    @classmethod
    def running(cls, folder: Path) -> Lab:
        """Return the lab that was started in ``folder`` by another process."""
        lab = cls(folder=folder)
        lab.spec = Spec.load(folder)
        lab._note_pids()
        return lab

    def start(self) -> Lab:
        """Bring it up and wait until all nodes are idle.

        Raises:
            LabError: This machine cannot, or something did not start.
        """
        if reason := why_not():
            raise LabError(reason)
        self.folder.mkdir(mode=0o700)
        for name in ("log", "home"):
            (self.folder / name).mkdir()
        write_lab(self.spec)
        for node in self.spec.compute:
            self.gpus(node)
        owner = [str(os.getpid())] if self._owned else []
        with open(self.folder / "log/keeper", "w") as log:
            subprocess.Popen(
                [sys.executable, "-m", "lab.serve", str(self.folder), *owner],
                cwd=HERE.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_for_keeper()
            self._note_pids()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_for_keeper(self, deadline_s: float = 300.0) -> None:
        end = time.monotonic() + deadline_s
        while not (self.folder / "control").exists():
            if time.monotonic() > end:
                raise LabError(f"the lab's keeper does not start: {(self.folder / 'log/keeper').read_text()[-800:]}")
            time.sleep(0.01)

    def _note_pids(self) -> None:
        self._pids = {name: node["pid"] for name, node in self.status().items()}

    def stop(self) -> None:
        """End everything; nothing stays but, if the folder was given, its logs."""
        with contextlib.suppress(LabError):
            ask(self.folder, "stop")
        with contextlib.suppress(FileNotFoundError):
            pid, began = (self.folder / "keeper").read_text().split()
            end = time.monotonic() + STOP_DEADLINE_S
            while start_time(int(pid)) == began and time.monotonic() < end:
                time.sleep(0.02)
        if self._owned:
            shutil.rmtree(self.folder, ignore_errors=True)

    def status(self) -> dict[str, Any]:
        """By node: ``pid`` of its first process (0 if it is off) and the ``services`` that run."""
        return dict(ask(self.folder, "status"))

    def command(self, node: str, argv: Sequence[str], user: str = "alice") -> list[str]:
        """Return the command line that runs ``argv`` on a node, for a subprocess of one's own."""
        pid = self._pids[node]
        if not pid:
            raise LabError(f"{node} is off")
        return [*enter(pid, user), *argv]

    def exec(
        self, node: str, argv: Sequence[str], user: str = "alice", input: str | None = None,
        timeout: float = 300, check: bool = True,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command on a node, as if started there, in the user's home and with a bare environment.

        Raises:
            LabError: It failed, unless ``check`` is off.
        """
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        words = self.command(node, argv, user)
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **given)
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()[-800:]
            raise LabError(f"{node}: {' '.join(argv)}: exit {done.returncode}: {said}")
        return done

    def service(self, node: str, name: str, action: str) -> None:
        """``start``, ``stop`` (ask it to end) or ``kill`` slurmctld, slurmd, slurmdbd, mariadbd, munged or sshd.

        Returns when it answers, or is gone. Connections that an sshd has accepted outlive it.
        """
        ask(self.folder, "service", node=node, name=name, action=action)

    @contextlib.contextmanager
    def controller_away(self) -> Iterator[None]:
        """Have no slurmctld meanwhile. Slurm's commands on the login node give it up at once, not after 4 to 8 s."""
        of_clients = "/etc/slurm/slurm.conf"  # the login node's own: no daemon reads it
        before = self.exec("login", ["cat", of_clients]).stdout
        self.service("ctl", "slurmctld", "stop")
        self.exec("login", ["sed", "-i", "s/^MessageTimeout=.*/MessageTimeout=1/", of_clients], user="root")
        try:
            yield
        finally:
            self.exec("login", ["tee", of_clients], user="root", input=before)
            self.service("ctl", "slurmctld", "start")

    def crash(self, node: str) -> None:
        """Switch a node off at once."""
        ask(self.folder, "crash", node=node)
        self._note_pids()

    def boot(self, node: str) -> None:
        """Switch a node on again; its disk is as it was. Returns when its services answer."""
        ask(self.folder, "boot", node=node)
        self._note_pids()

    def cut(self, node: str) -> None:
        """Pull a node's network cable."""
        ask(self.folder, "link", node=node, up=False)

    def heal(self, node: str) -> None:
        """Plug it in again."""
        ask(self.folder, "link", node=node, up=True)

    def gpus(
        self, node: str, util: int = 0, mem: int = 4, procs: Sequence[tuple[int, int, int]] = (),
        xid: int = 0, lost: bool = False, only: int | None = None,
    ) -> None:  # fmt: skip
        """Say what NVML reports on a node from now on; without arguments, healthy idle GPUs.

        Args:
            node: A compute node.
            util: Utilization in percent.
            mem: Memory in use, MiB.
            procs: (GPU, pid as the node sees it, MiB) of each process.
            xid: Xid error that has come up.
            lost: Whether all questions fail with "GPU is lost".
            only: The one GPU that is so; the others are healthy and idle.
        """
        text, number = "", self.spec.compute.index(node) + 1
        for index in range(self.spec.gpus):
            used, busy, error, fault = (mem, util, xid, 15 * lost) if only in (None, index) else (4, 0, 0, 0)
            uuid = f"GPU-{number:08x}-0000-4000-8000-{index:012x}"
            watts, degrees = 70 + 6 * busy, 30 + busy // 3
            text += f"gpu {fault} {GPU_MIB} {used} {busy} {degrees} {watts} {error} {uuid} {GPU_NAME}\n"
        text += "".join(f"proc {gpu} {pid} {mib}\n" for gpu, pid, mib in procs)
        self._put(node, "gpus", text)

    def clock(self, node: str, offset_s: int) -> None:
        """Let the clock of a node be wrong for all that is started there from now on; daemons keep the right time."""
        self._put(node, "clock", f"{offset_s}\n")
        preload = "/run/nvml/clock.so\n" if offset_s else ""
        self.exec(node, ["tee", "/etc/ld.so.preload"], user="root", input=preload)

    def _put(self, node: str, name: str, text: str) -> None:
        path = self.spec.disk(node) / "lab" / name
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def ssh_settings(self, user: str = "alice") -> Ssh:
        """How ``user`` reaches the login node."""
        ssh = self.folder / "ssh"
        return Ssh("127.0.0.1", self.spec.port, user, ssh / "id_ed25519", ssh / "known_hosts", ssh / "config")

    def reset(self) -> None:
        """Make the lab as new for the next test: no jobs, idle nodes, empty homes and /tmp, sound GPUs, right time."""
        ask(self.folder, "repair")
        self._note_pids()
        self._end_jobs()
        self.exec("ctl", ["sh", "-c", TAKE_BACK], user="root", check=False)
        for node in self.spec.addresses:
            self.exec(node, ["sh", "-c", EMPTY], user="root", check=False)
            if (self.spec.disk(node) / "lab/clock").exists():
                self.clock(node, 0)
        for node in self.spec.compute:
            self.gpus(node)
        write_homes(self.folder)
        ask(self.folder, "wait_idle")

    def _end_jobs(self) -> None:
        """Cancel all jobs and kill what the users run, in jobs or not: many a job ends by itself only after 30 s."""
        users, jobs = ",".join(map(str, USERS.values())), "all"
        end = time.monotonic() + RESET_DEADLINE_S
        while jobs:
            if time.monotonic() > end:
                raise LabError(f"jobs do not end: {jobs.split()}")
            jobs = self.exec("ctl", ["sh", "-c", CANCEL_ALL], user="root", check=False).stderr.strip()
            for node in self.spec.addresses:
                self.exec(node, ["pkill", "-KILL", "-u", users], user="root", check=False)


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens, nor will while it is refused: the kernel draws none below."""
    for number in range(2000):
        port = 2000 + (os.getpid() * 7 + number) % 2000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise LabError("no port from 2000 to 3999 is free")
