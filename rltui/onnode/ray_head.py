"""Starting Ray's head on this machine: on loopback where it is alone, else on the address that the others reach."""

import os
import secrets
import shutil
import time
from typing import Callable, Dict

from rltui.onnode import rundir
from rltui.onnode.node_network import free_ports, host
from rltui.onnode.ray_process import TRIES, RayFailedError, RayProcess, RaySpec, block_of, pinned


class RayHead(RayProcess):
    """A running Ray head.

    Attributes:
        address: Where drivers and other nodes connect, ``127.0.0.2:PORT``.
        dashboard: URL of the dashboard, on loopback whatever the address is: it runs code for whoever reaches it.
        token: What both want to see.
    """

    def __init__(self, spec: RaySpec, environment: Dict[str, str]) -> None:
        super().__init__(spec, environment)
        self.address = ""
        self.dashboard = ""
        self.token = ""

    def start(self, deadline_s: float, should_stop: Callable[[], bool], tries: int = TRIES) -> None:
        """Start Ray and wait until it answers.

        A port can be taken between our test and Ray's bind, so a Ray that dies at once is tried again on other ports.

        ``should_stop`` is asked all the while; where it says yes, the start is given up quietly.

        Raises:
            RayFailedError: It did not come up within ``deadline_s`` seconds.
        """
        self._write_token()
        deadline = time.monotonic() + deadline_s
        for attempt in range(tries):
            address = self._launch(attempt)
            if self.joined(address, deadline, should_stop):
                self.address = address
                self._write_endpoint()
                return
            if should_stop():
                return
            self.stop()
            # the failed session's gcs_server.err would tell the next try of a taken port once more
            shutil.rmtree(self.folder, ignore_errors=True)
            if time.monotonic() >= deadline or attempt == tries - 1:
                break
        busy = "at a load of %.0f on %d CPUs" % (os.getloadavg()[0], os.cpu_count() or 1)
        late = " within %g s (deadlines.ray_s), %s" % (deadline_s, busy) if time.monotonic() >= deadline else ""
        raise RayFailedError("Ray did not come up on %s%s: %s" % (host(), late, self.last_words()))

    def _launch(self, turn: int) -> str:
        """Start it on the ports of the ``turn``-th try; returns the address that it will have."""
        options = ["--head", "--dashboard-host=127.0.0.1", "--include-dashboard=true", "--temp-dir=%s" % self.folder]
        if self.spec.job:
            block = block_of(self.spec, turn)
            port, dashboard, client = block.gcs, block.dashboard, block.client_server
            own_metrics = [block.scaler_metrics, block.dashboard_metrics]
            options += pinned(block)
        else:
            port, dashboard, client, agent, metrics, *own_metrics = free_ports(7)
            options += ["--dashboard-agent-listen-port=%d" % agent, "--metrics-export-port=%d" % metrics]
            # Ray's own choice, 10002 to 19999, is the same for each Ray of a machine; 0: what the kernel gives
            options += ["--min-worker-port=0", "--max-worker-port=0"]
        options += ["--port=%d" % port, "--dashboard-port=%d" % dashboard]
        # the autoscaler warns of what has no room; a trainer of ours says it itself, and its monitor is a Python more
        options += ["--ray-client-server-port=%d" % client] if self.spec.script else ["--no-monitor"]
        # two more that are the same for every Ray of a machine by default, and have no option
        self.environment["AUTOSCALER_METRIC_PORT"] = str(own_metrics[0])
        self.environment["DASHBOARD_METRIC_PORT"] = str(own_metrics[1])
        self.dashboard = "http://127.0.0.1:%d" % dashboard
        self.launch(options)
        return "%s:%d" % (self.spec.address, port)

    def _write_token(self) -> None:
        self.token = secrets.token_hex(32)
        # with its mode from the start: between an open and a chmod others could read it
        descriptor = os.open(self.token_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(self.token)

    def _write_endpoint(self) -> None:
        endpoint = {
            "schema": rundir.SCHEMA,
            "address": self.address,
            "dashboard": self.dashboard,
            "token": self.token,
            "pid": self.process.pid if self.process else 0,
            "host": host(),
        }
        rundir.write_json(os.path.join(self.spec.attempt, rundir.RAY_ENDPOINT), endpoint)
