"""One node of the lab: a set of namespaces with a first process, its network cable and its services."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from .services import SERVICES, enter, is_ready
from .spec import SBIN, LabError, Spec

HERE = Path(__file__).parent
BOOT_DEADLINE_S = 300.0
READY_DEADLINE_S = 300.0
STOP_DEADLINE_S = 15.0
PREFIX_BITS = 24
# The kernel kills what is started so when the process that keeps the lab dies, however it does.
WITH_KEEPER = ("setpriv", "--pdeathsig", "KILL")
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


async def run(*argv: str, feed: str = "") -> str:
    """Run a command that has to succeed; returns its output."""
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await process.communicate(feed.encode())
    if process.returncode:
        raise LabError(f"{' '.join(argv)}: exit {process.returncode}: {(err or out).decode().strip()[-800:]}")
    return out.decode()


async def only_child(parent: int, deadline_s: float = 120.0) -> int:
    """Wait for the one child of a process and return its pid."""
    end = asyncio.get_running_loop().time() + deadline_s
    while asyncio.get_running_loop().time() < end:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        if children:
            return int(children[0])
        await asyncio.sleep(0.01)
    raise LabError(f"process {parent} has no child after {deadline_s:g} s")


class Daemon:
    """A service that runs on a node; ``process`` is the nsenter above it."""

    def __init__(self, process: asyncio.subprocess.Process, pid: int) -> None:
        self.process, self.pid = process, pid

    @property
    def alive(self) -> bool:
        return self.process.returncode is None


class Node:
    """A node that may be on or off.

    Args:
        spec: The lab.
        name: The node's.
        switch: Pid of a process in the network of the switch.
    """

    def __init__(self, spec: Spec, name: str, switch: int) -> None:
        self.name, self._spec, self._switch = name, spec, switch
        self._unshare: asyncio.subprocess.Process | None = None
        self._daemons: dict[str, Daemon] = {}
        self._logs = Path(spec.folder, "log")
        self.pid = 0

    async def boot(self) -> None:
        """Switch on; no service runs yet. Nothing happens if the node is on."""
        if self.pid:
            return
        gpus = self._spec.gpus if self.name in self._spec.compute else 0
        argv = (*WITH_KEEPER, "unshare", *NAMESPACES, "bash", str(HERE / "node.sh"))
        with open(self._logs / f"{self.name}.boot", "a") as log:
            self._unshare = await asyncio.create_subprocess_exec(
                *argv, self.name, self._spec.folder, str(gpus),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env={"PATH": SBIN}, cwd="/",
            )  # fmt: skip
        assert self._unshare.stdout
        answer = await asyncio.wait_for(self._unshare.stdout.readline(), BOOT_DEADLINE_S)
        if answer != b"ready\n":
            raise LabError(f"{self.name} does not boot: {(self._logs / f'{self.name}.boot').read_text()[-800:]}")
        self.pid = await only_child(self._unshare.pid)
        await self._plug_in()

    async def _plug_in(self) -> None:
        address = self._spec.addresses[self.name]
        last = int(address.rsplit(".", 1)[1])
        # The hardware address is kept over a reboot, so that no neighbour's ARP cache is wrong.
        await run(
            *("ip", "link", "add", "eth0", "address", f"02:00:0a:4d:00:{last:02x}", "netns", str(self.pid)),
            *("type", "veth", "peer", "name", self.name, "netns", str(self._switch)),
        )
        far_end = f"link set {self.name} master lab\nlink set {self.name} up\n"
        near_end = f"address add {address}/{PREFIX_BITS} dev eth0\nlink set eth0 up\n"
        await asyncio.gather(
            run("nsenter", "--target", str(self._switch), "--net", "ip", "-batch", "-", feed=far_end),
            run("nsenter", "--target", str(self.pid), "--net", "ip", "-batch", "-", feed=near_end),
        )

    async def crash(self) -> None:
        """Switch off at once: everything on the node dies."""
        if not self._unshare:
            return
        # The node's first process rather than unshare: that one then takes it off the process table.
        os.kill(self.pid or self._unshare.pid, signal.SIGKILL)
        await self._unshare.wait()
        await asyncio.gather(*(daemon.process.wait() for daemon in self._daemons.values()))
        self._daemons.clear()
        self._unshare, self.pid = None, 0

    async def link(self, up: bool) -> None:
        """Plug the network cable in or pull it out."""
        state = "up" if up else "down"
        await run("nsenter", "--target", str(self._switch), "--net", "ip", "link", "set", self.name, state)

    def running(self) -> list[str]:
        """Names of the services that live."""
        return [name for name, daemon in self._daemons.items() if daemon.alive]

    async def start(self, name: str) -> None:
        """Start a service and wait until it answers; nothing happens if it runs."""
        if name in self.running():
            return
        service = SERVICES[name]
        if service.socket:
            Path(f"/proc/{self.pid}/root{service.socket}").unlink(missing_ok=True)
        log_path = self._logs / f"{self.name}.{name}"
        with open(log_path, "a") as log:
            process = await asyncio.create_subprocess_exec(
                *enter(self.pid, service.user), *service.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = asyncio.get_running_loop().time() + READY_DEADLINE_S
        while not is_ready(service, self.pid):
            if process.returncode is not None or asyncio.get_running_loop().time() > end:
                raise LabError(f"{name} on {self.name} does not start: {log_path.read_text()[-800:]}")
            await asyncio.sleep(0.02)
        self._daemons[name] = Daemon(process, await only_child(process.pid))

    async def end(self, name: str, number: int) -> None:
        """End a service by a signal and wait until it is gone; nothing happens if it does not run."""
        if name not in self.running():
            return
        daemon = self._daemons.pop(name)
        os.kill(daemon.pid, number)
        try:
            await asyncio.wait_for(daemon.process.wait(), STOP_DEADLINE_S)
        except asyncio.TimeoutError:
            os.kill(daemon.pid, signal.SIGKILL)
            await daemon.process.wait()
