"""``rltui nodes``: partitions and nodes of a Slurm cluster, and which GPUs are free."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from rltui.cli.output import add_cluster_name, add_json, answer, columns, named_cluster
from rltui.cli.words import moment
from rltui.cluster.facts import PartitionFacts
from rltui.cluster.prompts import TerminalPrompter
from rltui.cluster.slurm.nodes import Reservation
from rltui.cluster.slurm.records import write_duration
from rltui.errors import UsageError
from rltui.onnode.bad_nodes import BadNode
from rltui.service.bad_nodes import words
from rltui.service.nodes import NodeGroup, clusters_nodes, forget_node, grouped, node_report

NODES_WIDTH = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster_name(parser, default="the only one with Slurm")
    parser.add_argument("--partition", default="", metavar="P", help="only this partition's nodes")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--forget", default="", metavar="NODE", help="forget what runs remember against NODE")
    one.add_argument("--report", default="", metavar="NODE", help="print what they remember, for the site's admins")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Show partitions and nodes: GPUs free, why a node is out of service, and what runs remember against it."""
    name, prompter = named_cluster(options), TerminalPrompter()
    if options.forget:
        forgotten = forget_node(name, options.forget, prompter)
        answer(options, {"forgotten": forgotten}, (), f"{options.forget} is forgotten: {words(forgotten)}")
        return 0
    if options.report:
        text = node_report(name, options.report, prompter)
        answer(options, {"report": text}, text.splitlines())
        return 0
    found = clusters_nodes(name, prompter)
    profile, facts = found.profile, found.facts
    shown = [one for one in facts.partitions if options.partition in ("", one.name)]
    if not shown:
        known = ", ".join(one.name for one in facts.partitions)
        raise UsageError(f"{profile.name} has no partition {options.partition[:60]!r}.", f"Known: {known}.")
    groups = grouped(found, options.partition)
    told = {"cluster": profile.name, "facts": facts, "groups": groups, "bad_nodes": found.bad}
    kept = ["", *_reservations(found.reservations)] if found.reservations else []
    bad = ["", *_bad(found.bad)] if found.bad else []
    tables = [*_partitions(shown, groups), "", *node_table(groups)]
    lines = [_summary(profile.name, groups), "", *tables, *kept, *bad]
    answer(options, {**told, "reservations": found.reservations}, lines)
    return 0


def _reservations(kept: Sequence[Reservation]) -> Iterable[str]:
    """Nodes that are kept for somebody, or from everybody; ``slurm.reservation=NAME`` takes one."""
    rows = [(one.name, one.nodes or "–", moment(one.starts_at), moment(one.ends_at), _for_whom(one)) for one in kept]
    return columns(("RESERVATION", "NODES", "FROM", "TO", "FOR"), rows)


def _for_whom(one: Reservation) -> str:
    named = [*one.users, *(f"account {name}" for name in one.accounts), *(f"group {name}" for name in one.groups)]
    return "nobody: maintenance" if one.is_maintenance else ", ".join(named)


def _bad(bad: Sequence[BadNode]) -> Iterable[str]:
    """What runs remember, with the newest evidence; the table of nodes above may cut it."""
    rows = [(one.node, f"{one.count}×", words(one), one.evidence[-1].evidence) for one in bad]
    return columns(("REMEMBERED", "", "WHY", "EVIDENCE"), rows, frozenset({1}))


def _summary(name: str, groups: Sequence[NodeGroup]) -> str:
    nodes = sum(len(group.nodes) for group in groups)
    gpus = sum(group.gpus * len(group.nodes) for group in groups)
    out = sum(group.gpus * len(group.nodes) for group in groups if not group.is_usable)
    lost = f", {out} out of service" if out else ""
    return f"{name}: {nodes} node{'s' * (nodes != 1)}, {gpus} GPUs: {_free(groups)} free{lost}"


def _free(groups: Sequence[NodeGroup]) -> int:
    return sum((group.gpus_free or 0) * len(group.nodes) for group in groups if group.is_usable)


def _partitions(partitions: Sequence[PartitionFacts], groups: Sequence[NodeGroup]) -> Iterable[str]:
    header = ("PARTITION", "NODES", "GPUS FREE", "MAX TIME", "MAX NODES", "")
    return columns(header, [_partition(one, groups) for one in partitions], frozenset({1, 2}))


def _partition(one: PartitionFacts, groups: Sequence[NodeGroup]) -> tuple[str, ...]:
    inside = [group for group in groups if one.name in group.partitions]
    limits = [f"accounts {', '.join(one.accounts)}"] if one.accounts else []
    limits += [f"QOS {', '.join(one.qos)}"] if one.qos else []
    return (
        one.name + ("*" if one.is_default else ""),
        str(sum(len(group.nodes) for group in inside)),
        f"{_free(inside)}/{sum(group.gpus * len(group.nodes) for group in inside)}",
        write_duration(one.max_time_s) if one.max_time_s else "no limit",
        str(one.max_nodes) if one.max_nodes is not None else "no limit",
        "; ".join([*([] if one.is_up else ["closed"]), *limits]),
    )


def node_table(groups: Sequence[NodeGroup]) -> Iterable[str]:
    """Nodes that are alike in a line: how many of their GPUs are free, and why they are out of service."""
    header = ("NODES", "", "STATE", "FREE", "GPU", "WHY")
    return columns(header, [_row(group) for group in groups], frozenset({1, 3}))


def _row(group: NodeGroup) -> tuple[str, ...]:
    names = group.names
    free = "?" if group.gpus_free is None else str(group.gpus_free)
    return (
        names if len(names) <= NODES_WIDTH else names[: NODES_WIDTH - 1] + "…",
        f"×{len(group.nodes)}",
        group.state,
        f"{free}/{group.gpus}" if group.gpus else "–",
        group.gpu or "–",
        group.reason,
    )
