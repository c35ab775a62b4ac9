"""What has gone quiet in a live run: nodes whose samplers do not speak, and steps that do not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from rltui.onnode import rundir

if TYPE_CHECKING:
    from rltui.watch.runs import LastMetrics
    from rltui.watch.snapshots import RunSnapshot, RunSummary

SPEAKING = frozenset({"starting", "running", "stopping"})

BEHIND_S = 60.0
"""A node this far behind the newest sample of another one is silent: a sampler speaks every few seconds."""

ALL_S = 300.0
"""Where all are equally old only the cluster's clock can tell, which may differ from the nodes' by minutes."""


def silent_nodes(snapshot: RunSnapshot) -> dict[str, float]:
    """Seconds since each silent node spoke; a run that has ended or waits has none that should."""
    spoken = {host.host: host.taken_at for host in snapshot.hosts if host.taken_at}
    if snapshot.summary.state not in SPEAKING or not spoken:
        return {}
    newest = max(spoken.values())
    if snapshot.taken_at - newest > ALL_S:
        return {name: snapshot.taken_at - at for name, at in spoken.items()}
    return {name: newest - at for name, at in spoken.items() if newest - at > BEHIND_S}


def halted(snapshot: RunSnapshot) -> list[str]:
    """A sentence for each process of a live run that does nothing: its title, pid, node, and why."""
    if snapshot.summary.state not in SPEAKING:
        return []
    return [
        f"{one.title or 'a process'} (pid {one.pid}) on {host.host}: {one.state} for {one.state_s:.0f} s"
        for host in snapshot.hosts
        for one in host.processes
        if one.state
    ]


QUIET_S, QUIET_STEPS = 60.0, 4.0
"""From so many seconds, and so many usual steps, without a new step on it is worth a word; a stall takes longer."""


def aged(run: RunSummary, metrics: LastMetrics, now: float) -> RunSummary:
    """``run`` without a rate that is too old to be one, and with how long no step has come.

    Args:
        run: A row with its last metrics.
        metrics: When the last step was written, and what a step takes.
        now: Epoch seconds by the cluster's clock.
    """
    # saving, loading and evaluating take their own time, and none of them makes steps
    if run.state != "running" or run.stage.stage != "training" or run.stage.detail.startswith(rundir.EVALUATING):
        return run
    waited_s = now - max(metrics.at, run.stage.since)
    if not metrics.at or waited_s <= max(QUIET_S, QUIET_STEPS * metrics.usual_step_s):
        return run
    return structs.replace(run, tokens_per_second=None, no_step_s=waited_s, usual_step_s=metrics.usual_step_s)


def no_step_words(run: RunSummary) -> str:
    """``no step for 2m10, usually 0.4 s``; empty where steps come as they should."""
    if not run.no_step_s:
        return ""
    minutes, seconds = divmod(int(run.no_step_s), 60)
    waited = f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}m{seconds:02d}"
    step = f"{run.usual_step_s:.0f}" if run.usual_step_s >= 10 else f"{run.usual_step_s:.2g}"
    return f"no step for {waited}, usually {step} s" if run.usual_step_s else f"no step for {waited}"
