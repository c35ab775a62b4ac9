"""Addresses, interfaces and ports of this node, from the kernel alone (no ``ip``, no name service)."""

import contextlib
import fcntl
import os
import random
import socket
import struct
from typing import Iterator, List, NamedTuple, Optional, Tuple

SIOCGIFADDR = 0x8915
"""ioctl that asks for an interface's IPv4 address (netdevice(7))."""

LOWEST_PORT = 10000
HIGHEST_PORT = 32000
BLOCK_PORTS = 256
"""Ports of one job on one node: a dozen with a name, the rest for Ray's workers."""

TRIES = 5

FEWEST_PORTS = 1000
"""So many ports must lie above the kernel's for single ones to be drawn from there."""


class Ports(NamedTuple):
    """The ports of one Ray on one node.

    Outside the range from which the kernel takes ports for outgoing connections: Ray finds a free port, gives it up
    and binds it later, and any connection could take it in between.
    """

    gcs: int
    dashboard: int
    client_server: int
    agent_listen: int
    agent_grpc: int
    metrics: int
    node_manager: int
    object_manager: int
    runtime_env_agent: int
    scaler_metrics: int
    dashboard_metrics: int
    first_worker: int
    last_worker: int


class NoPortsError(Exception):
    """No block of ports is free; the text names the blocks that were tried."""


def interfaces() -> Iterator[Tuple[str, str]]:
    """Yield (name, IPv4 address) of every interface that has one."""
    for _, name in socket.if_nameindex():
        address = interface_address(name)
        if address is not None:
            yield name, address


def interface_address(name: str) -> Optional[str]:
    """IPv4 address of the interface ``name``; None where there is no such interface, or it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            # struct ifreq: 16 bytes of name, then a sockaddr_in, whose address stands behind family and port
            answer = fcntl.ioctl(asker.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def interface_of(address: str) -> str:
    """Name of the interface that has ``address``, or nothing."""
    return next((name for name, found in interfaces() if found == address), "")


def routed_address(peer: str) -> Optional[str]:
    """The address from which this node reaches ``peer``; None where the name is unknown or stands for this node.

    Nothing is sent: connecting a datagram socket only looks the route up.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            asker.connect((peer, 9))
            address = str(asker.getsockname()[0])
        except OSError:
            return None
    # Debian's /etc/hosts gives a machine's own name the address 127.0.1.1
    return None if address.startswith("127.") else address


def ephemeral_range() -> Tuple[int, int]:
    """Ports that the kernel gives to outgoing connections, first and last."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as stream:
            first, last = stream.read().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32768, 60999


def blocks(job: int, ephemeral: Tuple[int, int]) -> List[int]:
    """First ports of the blocks that job number ``job`` may try, best first.

    Jobs that share a node have neighbouring numbers, so neighbouring numbers get different blocks.
    """
    last = HIGHEST_PORT if ephemeral[0] <= LOWEST_PORT + BLOCK_PORTS else min(HIGHEST_PORT, ephemeral[0])
    count = (last - LOWEST_PORT) // BLOCK_PORTS
    # 7 and the count of blocks have no common divisor where it matters: a second try must not be a neighbour's first
    return [LOWEST_PORT + (job + 7 * turn) % count * BLOCK_PORTS for turn in range(min(TRIES, count))]


def reserve_block(job: int, skip: int = 0) -> Ports:
    """Find a block of ports that are all free at this moment.

    Args:
        job: Number of the job, from which the block follows.
        skip: How many blocks to leave out, because something took a port of them since they were found free.

    Raises:
        NoPortsError: None of the blocks is free.
    """
    candidates = blocks(job, ephemeral_range())[skip:]
    for first in candidates:
        if _all_free(first):
            return Ports._make([*range(first, first + 11), first + 16, first + BLOCK_PORTS - 1])
    tried = ", ".join("%d-%d" % (first, first + BLOCK_PORTS - 1) for first in candidates) or "none left"
    raise NoPortsError("no block of %d free ports for Ray on %s: %s" % (BLOCK_PORTS, socket.gethostname(), tried))


def free_ports(count: int) -> List[int]:
    """``count`` different TCP ports that are free at this moment on every address.

    They lie above the kernel's own range where there is room: one of that may be given to whoever else connects or
    asks for any port, in the seconds until a server listens there.
    """
    above = range(ephemeral_range()[1] + 1, 1 << 16)
    # processes that were forked from one draw the same numbers from ``random`` itself
    drawn = random.SystemRandom().sample(above, min(len(above), 16 * count)) if len(above) >= FEWEST_PORTS else []
    found: List[int] = []
    # each stays bound until the last is found, or the kernel could give one twice
    with contextlib.ExitStack() as held:
        for port in [*drawn, *[0] * count]:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("", port))
                found.append(probe.getsockname()[1])
            if len(found) == count:
                break
    return found


def _all_free(first: int) -> bool:
    with contextlib.ExitStack() as held:
        for port in range(first, first + BLOCK_PORTS):
            probe = held.enter_context(socket.socket())
            # as the servers do; without it a connection of the job before would block the port for a minute
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def host() -> str:
    """This node's name, as Slurm calls it where it does."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
