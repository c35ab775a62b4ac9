"""This machine, as the rules about clusters look at one."""

from __future__ import annotations

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.profile import LOCAL
from rltui.onnode.preflight import capacity


def machine_facts() -> ClusterFacts:
    """This machine as a cluster of one node with the GPUs that an attempt's supervisor would find here.

    Its cores and memory are left out: the supervisor starts a layout for more of them, alone.
    """
    return ClusterFacts(nodes=(NodeFacts(name=LOCAL, state="idle", gpus=capacity().gpus),))
