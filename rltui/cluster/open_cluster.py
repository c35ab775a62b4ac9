"""From a name to a cluster, whatever its scheduler and the way to it."""

from __future__ import annotations

from rltui.cluster.cluster import Cluster
from rltui.cluster.hosts import LocalCluster
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.prompts import Prompter


def open_cluster(name: str, prompter: Prompter | None = None) -> Cluster:
    """The cluster ``name``; it connects when something is first asked of it.

    Args:
        name: A profile's name.
        prompter: Who answers when the way there asks something; None: nobody.

    Raises:
        UsageError: No profile has this name, or it cannot be used.
    """
    from rltui.cluster.profiles import load_profiles

    profiles = load_profiles()
    if name == LOCAL:  # it is there even where the user's words of it cannot be used
        return LocalCluster(profiles.by_name[LOCAL])
    return cluster_of(profiles.get(name), prompter)


def cluster_of(profile: Profile, prompter: Prompter | None = None) -> Cluster:
    """The cluster of a profile; see ``open_cluster``."""
    from rltui.cluster.machines import open_relay
    from rltui.cluster.open_transport import open_transport
    from rltui.cluster.prompts import UnattendedPrompter

    if profile.scheduler == "local":
        return LocalCluster(profile)
    if profile.scheduler == "hosts":
        from rltui.cluster.hosts import HostsCluster

        return HostsCluster(profile, open_relay(profile, prompter or UnattendedPrompter()))
    transport = open_transport(profile, prompter or UnattendedPrompter())
    if profile.scheduler == "ray":
        from rltui.cluster.ray_cluster import RayCluster

        return RayCluster(profile, transport)
    from rltui.cluster.slurm_cluster import SlurmCluster

    return SlurmCluster(profile, transport)
