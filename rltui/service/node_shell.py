"""A shell where a run is: on one of its nodes inside its job, on the host of a Ray cluster, or in its folder here."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

from rltui.cluster.hosts import LocalCluster
from rltui.cluster.openssh_transport import terminal_argv
from rltui.cluster.slurm.runner import on_cluster
from rltui.cluster.slurm.steps import shell_argv
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import RltuiError, UsageError
from rltui.runs.journal import Journal
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.snapshots import RunSummary

EARLY_S = 10.0
"""A shell that fails within this time has said something that is worth reading."""


class NodeShell:
    """A shell that can be opened in this terminal.

    Args:
        run: The run.
        journal: Where it is noted.
        node: Where it opens, in words.
        argv: Its command.
        folder: Folder that the command is started in; empty: where rltui is.
        what: What it is and how it is left, in words.
        action: What the journal calls it.

    Attributes:
        argv: The same.
        command: The same as a line for a shell, with its folder.
        where: Its run and place, in words.
    """

    def __init__(
        self,
        run: RunSummary,
        journal: Journal,
        node: str,
        argv: list[str],
        folder: str = "",
        what: str = "a shell; exit or ctrl+d leaves it",
        action: str = "shell",
    ) -> None:
        self.argv = argv
        self.where = f"{run.run_id} on {node}"
        self._about = {"run": run.run_id, "attempt": run.attempt, "cluster": run.cluster, "job": run.job_id}
        self.command = f"cd {shlex.quote(folder)} && {shlex.join(argv)}" if folder else shlex.join(argv)
        self._journal = journal
        self._folder = folder
        self._what = what
        self._action = action

    def run(self, stdout: int | None = None) -> int:
        """Show the command, and wait until the shell has ended; returns its exit code.

        Args:
            stdout: Descriptor that it prints on; None: where rltui prints.

        Raises:
            RltuiError: The journal cannot be written, or the command is not there.
        """
        about = {**self._about, "command": self.command}
        self._journal.write(self._action, "intent", **about)
        sys.stderr.write(f"rltui: {self.where}: {self._what}\n$ {self.command}\n")
        sys.stderr.flush()
        # what is typed is for the shell; one that ignores a signal would hand that on to it, a handler does not
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
        try:
            code = subprocess.call(self.argv, cwd=self._folder or None, env=_environment(), stdout=stdout)
        except OSError as error:
            self._journal.note(self._action, "failed", **self._about, reason=str(error))
            raise RltuiError(f"{self.argv[0]} cannot be started: {error.strerror}.", self.command) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        # how a shell ends is its user's affair
        outcome = {"reason": f"exit code {code}"} if code and self._action != "shell" else {}
        self._journal.note(self._action, "failed" if outcome else "done", **self._about, **outcome)
        return code

    def run_beside(self) -> str:
        """Run it in the terminal of a program that comes back on the screen; returns what is to be said, if anything.

        What a shell that failed at once has said stays until enter is pressed.
        """
        began = time.monotonic()
        try:
            code = self.run()
        except RltuiError as error:
            return f"{error.message}\n{error.hint}"
        if code and (self._action != "shell" or time.monotonic() - began < EARLY_S):
            sys.stderr.write(f"rltui: it ended with code {code}; enter goes back\n")
            sys.stderr.flush()
            sys.stdin.readline()
        return ""


def node_shell(context: Context, run: RunSummary, node: str = "") -> NodeShell:
    """The shell of a run; on Slurm the scheduler is asked whose job it is and where.

    Args:
        context: The run's cluster.
        run: A run of the user's own.
        node: One of its nodes; empty: the first.

    Raises:
        RltuiError: The run has no such node now, or its job is not the user's.
    """
    context.require_own(run)
    cluster = context.cluster
    if isinstance(cluster, SlurmCluster):
        place, part = _node(cluster, run, node)
        words = shell_argv(run.job_id, place, run.path, part)
        words = on_cluster(cluster.client, words) if cluster.profile.slurm_cluster else words
    else:
        place = "this machine" if isinstance(cluster, LocalCluster) else cluster.profile.host or "this machine"
        if node not in ("", place):
            raise UsageError(f"A shell of {run.run_id} opens on {place} only.", "Leave --node out.")
        words = [os.environ.get("SHELL") or "/bin/sh"] if place == "this machine" else []
    if place == "this machine":
        return NodeShell(run, context.journal, place, words, run.path)
    if cluster.profile.transport == "local" or not cluster.profile.host:
        return NodeShell(run, context.journal, place, words)
    there = shlex.join(words) if words else f"cd {shlex.quote(run.path)}; exec bash -l"
    return NodeShell(run, context.journal, place, terminal_argv(cluster.profile, there))


def _node(cluster: SlurmCluster, run: RunSummary, node: str) -> tuple[str, int | None]:
    """The node that was named, or the first, and its component of a het job; the job's id may be another's by now."""
    if run.state == "queued" or not run.is_live or not run.job_id:
        raise RltuiError(f"{run.run_id} has no node now ({run.state}).", "A shell needs a job that runs.")
    nodes = cluster.nodes_of(attempt_path(run), run.job_id)
    if run.share is not None:
        nodes = {one: nodes[one] for one in run.share.nodes if one in nodes}
    if not nodes:
        raise RltuiError(f"Job {run.job_id} of {run.run_id} has no node now.", "It has ended, or has not started.")
    if node and node not in nodes:
        raise UsageError(f"{run.run_id} has no node {node[:60]!r}.", f"Its nodes: {', '.join(list(nodes)[:8])}.")
    chosen = node or next(iter(nodes))
    return chosen, nodes[chosen]


def _environment() -> dict[str, str]:
    """The user's own, without what a job that rltui itself is in would tell srun to do."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SRUN_"))
    }
