"""Rules about one cluster: what its profile says, and with ``--live`` what it offers at this moment.

They are pure: the facts are gathered elsewhere. What nobody could tell (None, 0 or empty) is not checked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rltui.check.live_rules import cluster_rules, node_rules
from rltui.check.live_subject import LIVE_REGISTRY, LiveSubject
from rltui.check.run import Report, worst_first
from rltui.runs.script import components, profiles

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.cluster.facts import ClusterFacts
    from rltui.cluster.profile import Profile
    from rltui.layout.load import LoadedLayout

__all__ = ["LIVE_REGISTRY", "check_on"]

assert cluster_rules
assert node_rules


def check_on(report: Report, profile: Profile, facts: ClusterFacts | None = None) -> Report:
    """``report`` with what the rules about a cluster find.

    Args:
        report: Of a layout alone.
        profile: The cluster.
        facts: What it offers right now; None: only the profile is looked at.
    """
    if report.loaded is None or report.placement is None:
        return report
    layout = report.loaded.layout
    found: list[Finding] = []
    for name, part, there in zip(
        ("", *layout.hardware.more), components(layout), profiles(layout, profile), strict=True
    ):
        subject = LiveSubject(replace(report.loaded, layout=part), report.placement, there, facts)
        said = [finding for rule in LIVE_REGISTRY.values() for finding in rule.findings(subject)]
        found += [_of_kind(finding, name, report.loaded) for finding in said] if name else said
    return replace(report, findings=worst_first((*report.findings, *dict.fromkeys(found))))


def _of_kind(finding: Finding, name: str, loaded: LoadedLayout) -> Finding:
    """``finding`` with the keys of the further kind of node that it is about, in place of the first kind's."""

    def own(word: str) -> str:
        for key in ("slurm.partition", "slurm.mem_gib"):
            word = re.sub(rf"^{re.escape(key)}(?=\b)", f"hardware.{key.partition('.')[2]}", word)
        return re.sub(r"^hardware\.", f"hardware.more.{name}.", word)

    key = own(finding.key)
    file, line = loaded.place(key)
    return replace(finding, key=key, file=file, line=line, fix=tuple(map(own, finding.fix)))
