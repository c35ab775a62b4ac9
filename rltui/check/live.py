"""Rules about one cluster: what its profile says, and with ``--live`` what it offers at this moment.

They are pure: the facts are gathered elsewhere. What nobody could tell (None, 0 or empty) is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from rltui.check.live_rules import cluster_rules, login_rules, node_rules, storage_rules
from rltui.check.live_subject import LIVE_REGISTRY, LiveSubject
from rltui.check.run import SEVERITIES, Report
from rltui.cluster.profile import in_partition

if TYPE_CHECKING:
    from rltui.cluster.facts import ClusterFacts
    from rltui.cluster.profile import Profile

__all__ = ["LIVE_REGISTRY", "check_on"]

assert cluster_rules
assert login_rules
assert node_rules
assert storage_rules


def check_on(report: Report, profile: Profile, facts: ClusterFacts | None = None) -> Report:
    """``report`` with what the rules about a cluster find.

    Args:
        report: Of a layout alone.
        profile: The cluster.
        facts: What it offers right now; None: only the profile is looked at.
    """
    if report.loaded is None or report.placement is None:
        return report
    profile = in_partition(profile, report.loaded.layout.slurm.partition)
    subject = LiveSubject(report.loaded, report.placement, profile, facts)
    found = [finding for rule in LIVE_REGISTRY.values() for finding in rule.findings(subject)]
    findings = sorted(
        (*report.findings, *found), key=lambda finding: (SEVERITIES.index(finding.severity), finding.code)
    )
    return replace(report, findings=tuple(findings))
