"""Nodes of a live run whose samplers have gone quiet: what is known of them is old."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSnapshot

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
