"""Ray without the processes that only tell of it: each is a Python that imports for a CPU second at every start.

The product leaves out what nobody asks (``rltui.onnode.ray_start``). Of what is left, most tests ask nothing of the
dashboard and of the agents that report to it; which do stands in docs/testing.md.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
from typing import Any

IDLE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "idle_agent.sh")
LISTENS = {
    "dashboard": "metrics_agent,metrics_export,dashboard_agent_listen",
    "runtime_env": "runtime_env_agent",
}
"""What a raylet waits to read of an agent's ports."""


@functools.cache
def leave_out(*agents: str, has_dashboard: bool = False) -> None:
    """Let each Ray that is started in this process from now on have none of these agents, and no dashboard.

    Args:
        agents: ``dashboard``, which measures and reports, or ``runtime_env``, without which no worker starts.
        has_dashboard: Whether the dashboard stays: from it the head learns which other nodes have joined.
    """
    services: Any = importlib.import_module("ray._private.services")
    whole = services.start_ray_process

    def start(command: list[str], *others: Any, **options: Any) -> Any:
        return whole([idle(word, agents) for word in command], *others, **options)

    services.start_ray_process = start
    if not has_dashboard:
        importlib.import_module("ray._private.node").Node.start_api_server = lambda _node, **_options: None


def idle(word: str, agents: tuple[str, ...]) -> str:
    """A raylet's option, that of an agent's command with what does nothing in the agent's place."""
    option, _, command = word.partition("=")
    agent = option.removeprefix("--").removesuffix("_agent_command")
    if agent == option or agent not in agents:
        return word
    stands = subprocess.list2cmdline(["/bin/sh", IDLE, LISTENS[agent]])
    return f"{option}={stands}{re.sub(r'^.*?[.]py', '', command, count=1)}"
