"""What a login node and its Slurm, or a machine without one, say of themselves, for a new profile."""

from __future__ import annotations

from msgspec import Struct

from rltui.cluster.facts import ClusterFacts
from rltui.cluster.gather_facts import cluster_name, federation, gather_facts
from rltui.cluster.host_facts import HostState, host_state
from rltui.cluster.plain_text import plain
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError

RAY_DASHBOARD = "http://127.0.0.1:8265"


class Site(Struct, frozen=True, kw_only=True):
    """What the login node and Slurm say."""

    facts: ClusterFacts | None = None
    """None: there is no Slurm on that machine."""
    ray_address: str = ""
    """Dashboard of a Ray cluster that stands there; looked for only where there is no Slurm."""
    host: HostState | None = None
    """The machine itself, where there is no Slurm on it."""
    cluster_name: str = ""
    federation: str = ""
    """The federation that the cluster is in."""
    other_clusters: tuple[str, ...] = ()
    """Those that Slurm's tools on that machine reach besides (``-M``)."""
    default_account: str = ""
    scratch: str = ""
    """The large disk for short-lived files, where the site names one by a variable."""
    has_modules: bool = False


LOOK_AROUND = """
for name in SCRATCH CSCRATCH WORK WORKDIR PROJECT; do
  eval "value=\\${$name:-}"
  if [ -d "$value" ] && [ -w "$value" ]; then echo "scratch=$value"; break; fi
done
if type module > /dev/null 2>&1; then echo modules=yes; fi
exit 0
"""


def look_around(relay: RelayClient) -> Site:
    """Ask a login node and its Slurm, a handful of calls in all.

    Raises:
        ClusterError: The machine cannot be reached, or its Slurm does not answer.
    """
    has_slurm = relay.run(["sh", "-c", "command -v scontrol"], timeout_s=30, idempotent=True).rc == 0
    facts = gather_facts(relay) if has_slurm else None
    done = relay.run(["bash", "-l", "-c", LOOK_AROUND], timeout_s=60, idempotent=True)
    said = dict(line.partition("=")[::2] for line in done.out.splitlines() if "=" in line)
    return Site(
        facts=facts,
        ray_address="" if has_slurm else _ray_address(relay),
        host=None if has_slurm else host_state(relay, {}),
        cluster_name=cluster_name(relay) if facts else "",
        federation=federation(relay) if facts else "",
        other_clusters=_other_clusters(relay) if facts else (),
        default_account=_default_account(relay) if facts else "",
        scratch=said.get("scratch", ""),
        has_modules="modules" in said,
    )


def _ray_address(relay: RelayClient) -> str:
    try:
        answer = relay.http(f"{RAY_DASHBOARD}/api/version")
    except RelayError:
        return ""
    # one that wants a token says so before anything else
    return RAY_DASHBOARD if b"ray_version" in answer.body or answer.status == 401 else ""


def _other_clusters(relay: RelayClient) -> tuple[str, ...]:
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster,controlhost"]
    try:
        done = relay.run(argv, timeout_s=30, idempotent=True)
    except RelayError:
        return ()
    rows = [plain(line).strip().split("|") for line in done.out.splitlines() if not done.rc and line.count("|") == 1]
    # one without a host has never been there, or is no more
    return tuple(row[0] for row in rows if row[0] and row[1] and row[0] != cluster_name(relay))


def _default_account(relay: RelayClient) -> str:
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "user", relay.hello().user, "format=DefaultAccount"]
    try:
        done = relay.run(argv, timeout_s=30, idempotent=True)
    except RelayError:
        return ""
    return done.out.strip() if not done.rc and done.out.strip().isprintable() else ""
