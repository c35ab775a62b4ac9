"""What each way to a cluster costs: to open it, and for each request. Run: ``python tests/bench/bench_transports.py``.

An sshd of its own on 127.0.0.1 is the other side, so the network costs nothing here. Goals: a framed request in 0.1 to
0.3 ms locally, 5 ms at most through paramiko (45 ms without TCP_NODELAY).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "ssh"))

from ssh_lab import Client, Sshd

from rltui.cluster.open_transport import open_transport
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.relay_client import RelayClient

OPENINGS, REQUESTS, IDLE_S = 7, 500, 5.0


def opening_s(profile: Profile) -> float:
    """Seconds from nothing to the first answer."""
    began = time.perf_counter()
    relay = RelayClient(open_transport(profile, UnattendedPrompter()))
    relay.hello()
    took_s = time.perf_counter() - began
    relay.close()
    return took_s


def request_ms(relay: RelayClient) -> tuple[float, float]:
    """Median and 95th percentile of one request."""
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        relay.hello()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def idle_share() -> float:
    """Share of a core that this process takes while a connection is open and nothing is asked, in percent."""
    before, began = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    return 100 * (time.process_time() - before) / (time.perf_counter() - began)


def measure(name: str, profile: Profile) -> None:
    """Print one line."""
    first_s = opening_s(profile)
    others_s = statistics.median(opening_s(profile) for _ in range(OPENINGS))
    relay = RelayClient(open_transport(profile, UnattendedPrompter()))
    relay.hello()
    median, high = request_ms(relay)
    idle = idle_share()
    relay.close()
    print(f"{name:<22}{1000 * first_s:9.0f}{1000 * others_s:9.0f}{median:11.3f}{high:9.3f}{idle:9.2f}")


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        client, server = Client(Path(folder, "client")), Sshd(Path(folder, "server"))
        os.environ["RLTUI_SSH_CONFIG"] = str(client.config)
        server.let_in(client.key)
        client.host("login", server.port)
        client.trust(server)
        client.host("master", server.port, f"ControlPath {folder}/m", "ControlMaster auto", "ControlPersist 60")
        server.start()
        try:
            print(f"{'':<22}{'first':>9}{'later':>9}{'request':>11}{'95 %':>9}{'idle':>9}")
            print(f"{'':<22}{'ms':>9}{'ms':>9}{'ms':>11}{'ms':>9}{'% core':>9}")
            measure("local", Profile(name="local", transport="local"))
            measure("paramiko", Profile(name="c", host="login", transport="paramiko"))
            measure("openssh", Profile(name="c", host="login", transport="openssh"))
            os.system(f"ssh -F {client.config} master true")  # noqa: S605 (a path of our own)
            measure("openssh with a master", Profile(name="c", host="master", transport="openssh"))
            os.system(f"ssh -F {client.config} -O exit master 2>/dev/null")  # noqa: S605
        finally:
            server.stop()


if __name__ == "__main__":
    main()
