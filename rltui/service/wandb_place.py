"""Where W&B has a run: the address of its page, and the folder of its files with what opens and sends them."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from typing import NamedTuple

from rltui.cluster.hosts import LocalCluster
from rltui.cluster.openssh_transport import terminal_argv
from rltui.cluster.relay_client import RelayClient
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.runs.claims import if_there
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.node_shell import NodeShell
from rltui.watch.snapshots import RunSummary

FOLDER = "wandb"
"""In a run's folder, where rltui's trainer lets W&B write."""

LOOKED_AT_BYTES = 1 << 20
"""At each end of the log and of the events, where a run says the address of its page."""

LEET = "W&B's own view of its files; q leaves it"

SYNC = "W&B uploads what it kept offline, and asks for your key if it has none; ctrl+c stops it"

PAGE = re.compile(rb"https?://[\w.:-]+/[\w.%-]+/[\w.%-]+/runs/[\w-]+")


class WandbPlace(NamedTuple):
    """Where W&B has a run.

    Attributes:
        page: Address of its page; empty where the run has not said one.
        look: Opens W&B's own terminal view of its files where they lie; None where there are none, or no W&B here.
        look_command: The same as a line for a shell; empty where there are no files.
        send: Uploads runs that were made offline, from where they lie; None where none waits, or no W&B is here.
        send_command: The same as a line for a shell; empty where none waits.
        unsent: Folders that ``send`` uploads, relative to the run's: those that W&B's own mark does not call synced.
    """

    page: str
    look: NodeShell | None = None
    look_command: str = ""
    send: NodeShell | None = None
    send_command: str = ""
    unsent: tuple[str, ...] = ()


def wandb_place(context: Context, run: RunSummary) -> WandbPlace:
    """Find where W&B has a run; no key of W&B's is read or sent: its own commands ask for what they need.

    Raises:
        RltuiError: The run has left nothing of W&B.
    """
    client = context.cluster.client
    page, folders = _page(client, run), _folders(client, run)
    if not folders:
        if not page:
            hint = "tracking.wandb=offline keeps them; another system's own folder: rltui metrics --wandb FOLDER"
            raise RltuiError(f"{run.run_id} has no files of W&B in its folder, and its log names no page.", hint)
        return WandbPlace(page)
    unsent = _unsent(client, run)
    look, look_command = _command(context, run, ["leet", FOLDER], LEET, "shell")
    send, send_command = None, ""
    if unsent:
        # its mark may be older than the file, which a run that goes on still writes
        send, send_command = _command(context, run, ["sync", "--include-synced", *unsent], SYNC, "wandb-sync")
    return WandbPlace(page, look, look_command, send, send_command, unsent)


def _command(
    context: Context, run: RunSummary, words: list[str], what: str, action: str
) -> tuple[NodeShell | None, str]:
    """A command of W&B's in the run's folder, and as a line for a shell; None where this machine has no W&B for it."""
    there, profile = f"cd {shlex.quote(run.path)} && wandb {shlex.join(words)}", context.cluster.profile
    if isinstance(context.cluster, LocalCluster) or profile.transport == "local" or not profile.host:
        argv = [sys.executable, "-m", "wandb", *words]
        shell = NodeShell(run, context.journal, "this machine", argv, run.path, what=what, action=action)
        return shell if find_spec("wandb") else None, there
    argv = terminal_argv(profile, there)
    return NodeShell(run, context.journal, profile.host, argv, what=what, action=action), shlex.join(argv)


def _unsent(client: RelayClient, run: RunSummary) -> tuple[str, ...]:
    """Folders of runs that were made offline and have grown since W&B marked them as synced, the oldest first."""
    patterns = ["offline-run-*/*.wandb", "offline-run-*/*.wandb.synced"]
    written_at = {file.path: file.mtime for file in client.collect(f"{run.path}/{FOLDER}", patterns, limit=1)}
    files = (path for path in written_at if path.endswith(".wandb"))
    waiting = {path.partition("/")[0] for path in files if written_at[path] > written_at.get(f"{path}.synced", 0.0)}
    return tuple(f"{FOLDER}/{name}" for name in sorted(waiting))


def _page(client: RelayClient, run: RunSummary) -> str:
    """The address that the newest attempt named last."""
    for name in (rundir.EVENTS, rundir.OUT_LOG):
        path = f"{attempt_path(run)}/{name}"
        begins = if_there(lambda: client.read(path, 0, LOOKED_AT_BYTES).data)  # noqa: B023 (it is called at once)
        ends = (begins, client.tail(path, LOOKED_AT_BYTES).data) if begins is not None else ()
        found = [page for data in ends for page in PAGE.findall(data)]
        if found:
            return str(found[-1], "ascii", "replace")
    return ""


def _folders(client: RelayClient, run: RunSummary) -> list[str]:
    """W&B's folders of the run, the oldest first."""
    entries = if_there(lambda: client.list(f"{run.path}/{FOLDER}")) or ()
    return sorted(one.name for one in entries if one.type == "dir" and one.name.startswith(("offline-run-", "run-")))
