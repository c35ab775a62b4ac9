"""The nodes of a run, to choose from: those that a diagnosis names come first. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.service.cockpit import WhyReport
from rltui.tui.picking import PickItem
from rltui.watch.snapshots import RunSnapshot, RunSummary


def known_nodes(run: RunSummary, picture: RunSnapshot | None) -> tuple[str, ...]:
    """Names of the nodes of a run: the scheduler's word, then the samplers', then those of Ray's actors."""
    found: dict[str, None] = dict.fromkeys(run.job.nodes if run.job is not None else ())
    if picture is not None:
        found |= dict.fromkeys(picture.summary.job.nodes if picture.summary.job is not None else ())
        found |= dict.fromkeys(host.host for host in picture.hosts)
        found |= dict.fromkeys(actor.node for actor in picture.actors if actor.node)
    return tuple(found)


def node_items(nodes: Sequence[str], report: WhyReport | None) -> list[PickItem]:
    """One line a node; a node that a diagnosis would keep away from comes first and says why."""
    blamed = _blamed(report)
    here = {node: because for node, because in blamed.items() if node in nodes}
    # a diagnosis may also name nodes that are kept away from already; only where it knows better are they all shown
    blamed = here or blamed
    others = [node for node in nodes if node not in blamed]
    first = [PickItem(id=node, label=node, detail=because, urgent=True) for node, because in blamed.items()]
    return first + [PickItem(id=node, label=node) for node in others]


def _blamed(report: WhyReport | None) -> dict[str, str]:
    """Node → the diagnosis that names it, causes first."""
    blamed: dict[str, str] = {}
    for finding in report.findings if report is not None else ():
        for fix in finding.fixes:
            for node in fix.exclude:
                blamed.setdefault(node, finding.diagnosis)
        for node in finding.exclude:
            blamed.setdefault(node, finding.diagnosis)
    return blamed
