"""Where W&B has a run: the address of its page, and the folder of its files with what opens and sends them."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from rltui.cluster.local import LocalCluster
from rltui.cluster.relay_types import RelayError
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.service.describe import attempt_path
from rltui.service.node_shell import NodeShell

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

FOLDER = "wandb"
"""In a run's folder, where rltui's trainer lets W&B write."""

LOOKED_AT_BYTES = 1 << 20
"""At each end of the log and of the events, where a run says the address of its page."""

LEET = "W&B's own view of its files; q leaves it"

PAGE = re.compile(rb"https?://[\w.:-]+/[\w.%-]+/[\w.%-]+/runs/[\w-]+")


class WandbPlace(NamedTuple):
    """Where W&B has a run.

    Attributes:
        run_id: The run.
        page: Address of its page; empty where the run has not said one.
        look: Opens W&B's own terminal view of its files where they lie; None where there are none, or no W&B here.
        look_command: The same as a line for a shell; empty where there are no files.
        send_command: What uploads runs that were made offline, as a line for a shell; empty where there are none.
    """

    run_id: str
    page: str
    look: NodeShell | None = None
    look_command: str = ""
    send_command: str = ""


def wandb_place(context: Context, run: RunSummary) -> WandbPlace:
    """Find where W&B has a run; no key of W&B's is read or sent: its own commands ask for what they need.

    Args:
        context: The run's cluster.
        run: The run.

    Raises:
        RltuiError: The run has left nothing of W&B.
        ClusterError: The cluster cannot be reached.
    """
    client = context.cluster.client
    page, folders = _page(client, run), _folders(client, run)
    if not folders:
        if not page:
            hint = "tracking.wandb=offline keeps them; another system's own folder: rltui metrics --wandb FOLDER"
            raise RltuiError(f"{run.run_id} has no files of W&B in its folder, and its log names no page.", hint)
        return WandbPlace(run.run_id, page)
    there = f"cd {shlex.quote(run.path)} && wandb"
    offline = [f"{FOLDER}/{name}" for name in folders if name.startswith("offline-")]
    look, send = f"{there} leet {FOLDER}", f"{there} sync {shlex.join(offline)}" if offline else ""
    profile = context.cluster.profile
    if isinstance(context.cluster, LocalCluster) or profile.transport == "local" or not profile.host:
        argv = [sys.executable, "-m", "wandb", "leet", FOLDER]
        shell = NodeShell(run, context.journal, "this machine", argv, run.path, what=LEET)
        return WandbPlace(run.run_id, page, shell if find_spec("wandb") else None, look, send)
    from rltui.cluster.openssh_transport import terminal_argv

    argv = terminal_argv(profile, look)
    shell = NodeShell(run, context.journal, profile.host, argv, what=LEET)
    sending = shlex.join(terminal_argv(profile, send)) if send else ""
    return WandbPlace(run.run_id, page, shell, shlex.join(argv), sending)


def _page(client: RelayClient, run: RunSummary) -> str:
    """The address that the newest attempt named last."""
    for name in (rundir.EVENTS, rundir.OUT_LOG):
        path = f"{attempt_path(run)}/{name}"
        try:
            ends = (client.read(path, 0, LOOKED_AT_BYTES).data, client.tail(path, LOOKED_AT_BYTES).data)
        except RelayError as error:
            if error.kind != "missing":
                raise
            continue
        found = [page for data in ends for page in PAGE.findall(data)]
        if found:
            return str(found[-1], "ascii", "replace")
    return ""


def _folders(client: RelayClient, run: RunSummary) -> list[str]:
    """W&B's folders of the run, the oldest first."""
    try:
        entries = client.list(f"{run.path}/{FOLDER}")
    except RelayError as error:
        if error.kind != "missing":
            raise
        return []
    return sorted(one.name for one in entries if one.type == "dir" and one.name.startswith(("offline-run-", "run-")))
