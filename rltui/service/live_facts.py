"""What a cluster offers right now: Slurm's partitions and nodes, room in the run root, models in the cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePosixPath

from msgspec.structs import replace

from rltui.cluster.facts import ClusterFacts
from rltui.cluster.gather_facts import recent_facts
from rltui.cluster.host_facts import facts_of, host_states
from rltui.cluster.machines import open_relay
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import Prompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.cluster.remote_paths import expanded
from rltui.layout.schema import Layout
from rltui.service.login_facts import login_facts
from rltui.service.quota import quotas

_CACHE = "~/.cache/huggingface"
_PREFIX = "models--"
_KIB_PER_GIB = 2**20


def live_facts(profile: Profile, prompter: Prompter, layout: Layout | None = None) -> ClusterFacts:
    """Ask the cluster, in a handful of calls; what it cannot tell stays None or empty.

    Args:
        profile: The cluster.
        prompter: Who is asked for passwords and codes on the way there.
        layout: What a job would run: the login node is asked about it too.

    Raises:
        ClusterError: The cluster cannot be reached, or its controller does not answer.
    """
    relay = open_relay(profile, prompter)
    try:
        return facts_through(relay, profile, layout)
    finally:
        relay.close()


def facts_through(relay: RelayClient, profile: Profile, layout: Layout | None = None) -> ClusterFacts:
    """The same through a relay that is there already: everything is asked at once, as a launch waits for it."""
    look = partial(_nodes, relay, profile)
    with ThreadPoolExecutor(3) as pool:
        facts = pool.submit(login_facts, relay, profile, layout, look) if layout else pool.submit(look)
        free = pool.submit(_free_gib, relay, expanded(relay, profile.run_root)) if profile.run_root else None
        cached = pool.submit(_cached, relay, profile)
        return replace(
            facts.result(),
            run_root_free_gib=free.result() if free else None,
            cached_models=cached.result(),
        )


def _nodes(relay: RelayClient, profile: Profile) -> ClusterFacts:
    if profile.scheduler == "slurm":
        return recent_facts(relay)
    if profile.scheduler == "hosts":
        return facts_of(host_states(relay, profile))
    return ClusterFacts()


def _free_gib(relay: RelayClient, folder: str) -> float | None:
    """Room for this user where ``folder`` is, or would be: its nearest parent that exists; quotas count."""
    places = [folder, *map(str, PurePosixPath(folder).parents)]
    # df complains of paths that do not exist and goes on: its first row is of the nearest that does
    answer = relay.run(["df", "-P", "-k", *places], idempotent=True, timeout_s=20.0)
    rows = [line.split() for line in answer.out.splitlines()[1:]]
    row = next((row for row in rows if len(row) >= 6 and row[3].isdigit()), None)
    if row is None:
        return None
    left = (quota.left_gib for quota in quotas(relay, folder))
    return min([int(row[3]) / _KIB_PER_GIB, *(one for one in left if one is not None)])


def _cached(relay: RelayClient, profile: Profile) -> tuple[str, ...] | None:
    """Names of the models in the cache that jobs would use; None where only a job would know which one that is."""
    if any("HF_" in line for line in profile.setup_lines) or profile.env_file:
        return None
    hub = profile.env.get("HF_HUB_CACHE") or f"{profile.env.get('HF_HOME', _CACHE)}/hub"
    if "$" in hub:
        return None
    try:
        entries = relay.list(expanded(relay, hub))
    except RelayError as error:
        return () if error.kind == "missing" else None
    names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
    return tuple(name.removeprefix(_PREFIX).replace("--", "/", 1) for name in names)
