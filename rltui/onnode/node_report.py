"""What the nodes said before the start, put together: which of them are bad, and why."""

import collections
import json
import re
from typing import Any, Dict, Iterable, List, Sequence

from rltui.onnode.node_check import MARK

CLOCK_SKEW_S = 2.0

_SRUN = re.compile(
    r"srun: error: ([\w.-]+): task|failed on node ([\w.-]+)|slurmstepd-([\w.-]+): "
    r"|srun: error: (?:Node failure on|Unable to resolve) \"?([\w.-]+)"
)


def parse(output: str) -> Dict[str, Dict[str, Any]]:
    """The nodes' lines in a step's output, by node; other lines are none of ours."""
    reports: Dict[str, Dict[str, Any]] = {}
    for line in output.splitlines():
        # not only at its start: what a prolog or a shell's start-up file printed may stand in front
        start = line.find('{"%s"' % MARK)
        if start < 0:
            continue
        try:
            value = json.loads(line[start:])
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("node"), str):
            reports[value["node"]] = value
    return reports


def merge(
    nodes: Sequence[str], reports: Dict[str, Dict[str, Any]], errors: str, asked_at: float, answered_at: float
) -> Dict[str, Any]:
    """All reports as one (``preflight.json``).

    Args:
        nodes: The job's nodes; the first one is the head.
        reports: By node, see ``parse``.
        errors: What srun said on stderr; it names nodes on which nothing could be started.
        asked_at: When the step was started, by the head's clock.
        answered_at: When the last answer was there, by the head's clock.

    Returns:
        ``ok``, ``bad_nodes`` (reason by node), and ``nodes`` with all facts.
    """
    merged = {node: dict(reports.get(node, {"problems": [], "warnings": []})) for node in nodes}
    _judge_silence(merged, reports, errors, answered_at - asked_at)
    answered = [node for node in nodes if node in reports]
    for node in answered:
        early, late = asked_at - reports[node]["time"], reports[node]["time"] - answered_at
        if max(early, late) > CLOCK_SKEW_S:
            merged[node]["warnings"].append(
                "its clock is %.0f s %s" % (max(early, late), "late" if early > 0 else "early")
            )
    _judge_environments(merged, answered)
    bad = {node: "; ".join(report["problems"]) for node, report in merged.items() if report["problems"]}
    return {"schema": 1, "ok": not bad, "bad_nodes": bad, "seconds": round(answered_at - asked_at, 2), "nodes": merged}


def _judge_silence(
    merged: Dict[str, Dict[str, Any]], reports: Dict[str, Dict[str, Any]], errors: str, waited_s: float
) -> None:
    """Silent nodes are bad; where srun names some of them, the others may only have been cut off with them."""
    silent = [node for node in merged if node not in reports]
    named = [node for node in silent if node in named_by_srun(errors)]
    for node in named or silent:
        words = last_words(errors, node)
        merged[node]["problems"].append(words or "did not answer within %.0f s" % waited_s)
    for node in set(silent) - set(named or silent):
        merged[node]["warnings"].append("was not asked to the end")


def _judge_environments(merged: Dict[str, Dict[str, Any]], answered: Sequence[str]) -> None:
    """Nodes with other versions than most are bad; in a tie those that differ from the head."""
    hashes = [merged[node].get("environment") for node in answered]
    if len(set(hashes)) < 2:
        return
    counts = collections.Counter(hashes)
    usual = max(counts, key=lambda one: (counts[one], one == hashes[0]))
    reference = merged[answered[hashes.index(usual)]].get("versions", {})
    for node in answered:
        if merged[node].get("environment") != usual:
            differences = differing(merged[node].get("versions", {}), reference)
            merged[node]["problems"].append("another environment: " + differences)


def differing(versions: Dict[str, str], reference: Dict[str, str]) -> str:
    """``ray 2.9.0 instead of 2.60.0, vllm none instead of 0.32.0``; empty where all are equal."""
    names = sorted(name for name in {*reference, *versions} if reference.get(name) != versions.get(name))
    return ", ".join("%s %s instead of %s" % (n, versions.get(n, "none"), reference.get(n, "none")) for n in names)


def changed_since(before: Dict[str, Any], now: Dict[str, Any]) -> str:
    """In what the environment differs from that of an earlier attempt (two ``preflight.json``); empty: in nothing."""
    first: Dict[str, Any] = next(iter(before.get("nodes", {}).values()), {})
    second: Dict[str, Any] = next(iter(now.get("nodes", {}).values()), {})
    if not first.get("versions") or not second.get("versions"):
        return ""
    return differing(second["versions"], first["versions"])


def named_by_srun(errors: str) -> List[str]:
    """Nodes that srun or slurmstepd complain about, in order."""
    found = [next(filter(None, match.groups())) for match in _SRUN.finditer(errors)]
    return list(dict.fromkeys(found))


def last_words(errors: str, node: str) -> str:
    """The line of srun's errors that tells most about ``node``; empty where none names it."""
    lines = [line.strip() for line in errors.splitlines() if node in named_by_srun(line)]
    telling = [line for line in lines if "task" not in line.split(node, 1)[-1][:8]]
    return (telling or lines or [""])[0][:300]


def sentence(bad: Dict[str, str], total: int) -> str:
    """One sentence that names the bad nodes."""
    shown: Iterable[str] = ("%s: %s" % item for item in list(bad.items())[:4])
    more = " and %d more" % (len(bad) - 4) if len(bad) > 4 else ""
    return "%d of %d nodes cannot run this job; %s%s" % (len(bad), total, "; ".join(shown), more)
