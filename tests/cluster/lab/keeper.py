"""All parts of a running lab together: the switch, the nodes and the way in."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from typing import Any

from .forward import Forwarder
from .node import PREFIX_BITS, WITH_KEEPER, Node, run
from .services import enter
from .spec import NETWORK, LabError, Spec

SIGNALS = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}
IDLE_DEADLINE_S = 300.0


class Keeper:
    """All parts of one lab."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.nodes: dict[str, Node] = {}
        self.forwarder: Forwarder | None = None
        self._switch: asyncio.subprocess.Process | None = None
        self._began = time.monotonic()

    def log(self, text: str) -> None:
        """Note how far the start is."""
        print(f"{time.monotonic() - self._began:6.2f} s  {text}", flush=True)

    async def start(self) -> None:
        """Bring everything up; returns when all nodes are idle."""
        await self._start_switch()
        self.nodes = {name: Node(self.spec, name, self._switch_pid) for name in self.spec.addresses}
        await asyncio.gather(*(self._first_boot(node) for node in self.nodes.values()))
        self.log("nodes are up, slurmctld answers")
        self.forwarder = Forwarder(self.spec.port, (self.spec.addresses["login"], 22), self._switch_pid)
        await self.forwarder.start()
        await asyncio.gather(*(self.nodes[name].start("slurmd") for name in self.spec.compute), self._add_accounts())
        self.log("slurmd runs, accounts are there")
        await self.wait_idle()
        self.log("idle")

    @property
    def _switch_pid(self) -> int:
        assert self._switch
        return self._switch.pid

    async def _start_switch(self) -> None:
        words = (*WITH_KEEPER, "unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity")
        self._switch = await asyncio.create_subprocess_exec(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self._switch.stdout
        await self._switch.stdout.readline()
        wiring = f"link add lab type bridge\naddress add {NETWORK}.1/{PREFIX_BITS} dev lab\nlink set lab up\n"
        await run("nsenter", "--target", str(self._switch_pid), "--net", "ip", "-batch", "-", feed=wiring)

    async def _first_boot(self, node: Node) -> None:
        await node.boot()
        for name in self.spec.services(node.name):
            if name != "slurmd":  # needs the controller
                await node.start(name)
                self.log(f"{node.name}: {name}")

    async def _add_accounts(self) -> None:
        if self.spec.accounting:
            lines = "sacctmgr -iQ add qos high priority=1000 && sacctmgr -iQ load /etc/lab-accounts"
            await run(*enter(self.nodes["ctl"].pid), "sh", "-c", lines)

    async def wait_idle(self) -> None:
        """Wait until Slurm says of every compute node that it is idle."""
        end = time.monotonic() + IDLE_DEADLINE_S
        command = (*enter(self.nodes["ctl"].pid), "sinfo", "-hN", "-p", "gpu", "-o", "%N %T")
        restarted: set[str] = set()
        while time.monotonic() < end:
            states = dict(line.split() for line in (await run(*command)).splitlines())
            if list(states.values()) == ["idle"] * self.spec.compute_nodes:
                return
            # The controller seldom looks whether a silent node is back; a slurmd that starts tells it.
            for name in {name for name, state in states.items() if state.endswith("*")} - restarted:
                restarted.add(name)
                await self.nodes[name].end("slurmd", signal.SIGTERM)
                await self.nodes[name].start("slurmd")
            await asyncio.sleep(0.05)
        raise LabError(f"not all nodes are idle after {IDLE_DEADLINE_S:g} s: {states}")

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        if name not in self.nodes:
            raise LabError(f"no node {name}; there are {', '.join(self.nodes)}")
        return self.nodes[name]

    async def boot(self, node: str) -> None:
        """Switch a node on and start its services."""
        await self.node(node).boot()
        for name in self.spec.services(node):
            await self.nodes[node].start(name)

    async def crash(self, node: str) -> None:
        """Switch a node off."""
        await self.node(node).crash()

    async def link(self, node: str, up: bool) -> None:
        """Plug a node's cable in or pull it out."""
        await self.node(node).link(up)

    async def service(self, node: str, name: str, action: str) -> None:
        """Start, stop or kill a service."""
        if name not in self.spec.services(node) or not self.node(node).pid:
            raise LabError(f"no {name} on {node}, or the node is off")
        if action == "start":
            await self.node(node).start(name)
        else:
            await self.node(node).end(name, SIGNALS[action])

    async def ssh(self, action: str, **values: Any) -> dict[str, int]:
        """Break or mend the way to the login node; returns the bytes that went each way and the cuts so far."""
        forwarder = self.forwarder
        assert forwarder
        if action == "mend":
            await forwarder.mend()
        elif action == "cut":
            forwarder.cut(**values)
        elif action != "count":
            forwarder.fault(action)
        return {**forwarder.bytes, "cuts": forwarder.cuts}

    async def repair(self) -> None:
        """Put back all nodes, cables and services, and the way to the login node."""
        await self.ssh("mend")
        await asyncio.gather(
            *(self._repair(node) for node in self.nodes.values() if node.name != "ctl"), self._repair(self.nodes["ctl"])
        )

    async def _repair(self, node: Node) -> None:
        if node.pid:
            await node.link(up=True)
        await self.boot(node.name)

    async def status(self) -> dict[str, Any]:
        """What is on, by node."""
        return {name: {"pid": node.pid, "services": node.running()} for name, node in self.nodes.items()}

    async def stop(self) -> None:
        """End everything."""
        await asyncio.gather(*(node.crash() for node in self.nodes.values()))
        if self._switch:
            self._switch.kill()
            await self._switch.wait()
