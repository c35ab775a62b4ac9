"""What a new profile should say, found out from the cluster itself; and its lines in the user's file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from rltui.cluster.facts import ClusterFacts, NodeFacts, PartitionFacts
from rltui.cluster.gather_facts import cluster_name, federation, gather_facts
from rltui.cluster.host_facts import HostState, host_state
from rltui.cluster.plain_text import plain
from rltui.cluster.profiles import EXPECTED
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.cluster.slurm.records import write_duration
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.layout.document import parse
from rltui.layout.errors import LayoutError
from rltui.paths import replace_text
from rltui.service.this_machine import NOT_SET_UP

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
  if [ -d "$value" ] && [ -w "$value" ]; then
    [ -O "$value" ] || value="${value%/}/$(id -un)"
    echo "scratch=$value"
    break
  fi
done
if type module > /dev/null 2>&1; then echo modules=yes; fi
exit 0
"""
"""A folder that is not the user's own is a project's: of its members, the first one's private run root would shut out
the others."""


def look_around(relay: RelayClient) -> Site:
    """Ask a login node and its Slurm, a handful of calls in all.

    Raises:
        ClusterError: The machine cannot be reached, or its Slurm does not answer.
    """
    facts = _slurm_facts(relay)
    done = relay.run(["bash", "-l", "-c", LOOK_AROUND], timeout_s=60, idempotent=True)
    said = dict(line.partition("=")[::2] for line in done.out.splitlines() if "=" in line)
    return Site(
        facts=facts,
        ray_address="" if facts else _ray_address(relay),
        host=None if facts else host_state(relay, {}),
        cluster_name=cluster_name(relay) if facts else "",
        federation=federation(relay) if facts else "",
        other_clusters=_other_clusters(relay) if facts else (),
        default_account=_default_account(relay) if facts else "",
        scratch=said.get("scratch", ""),
        has_modules="modules" in said,
    )


def _slurm_facts(relay: RelayClient) -> ClusterFacts | None:
    """What the machine's Slurm says; None where it has none, or no more than its tools."""
    if relay.run(["sh", "-c", "command -v scontrol"], timeout_s=30, idempotent=True).rc:
        return None
    try:
        return gather_facts(relay)
    except SlurmUnansweredError as error:
        if NOT_SET_UP not in error.message:
            raise
        return None


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
    own = cluster_name(relay)
    # one without a host has never been there, or is no more
    return tuple(row[0] for row in rows if row[0] and row[1] and row[0] != own)


def _default_account(relay: RelayClient) -> str:
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "user", relay.hello().user, "format=DefaultAccount"]
    try:
        done = relay.run(argv, timeout_s=30, idempotent=True)
    except RelayError:
        return ""
    return done.out.strip() if not done.rc and done.out.strip().isprintable() else ""


GRES = "gpu"


class Proposal(Struct, frozen=True, kw_only=True):
    """A profile to be looked over."""

    values: dict[str, Any]
    """Keys of the profile."""
    choices: dict[str, tuple[str, ...]] = {}
    """What else a key could be, best first."""
    notes: tuple[str, ...] = ()
    """What could not be found out, and what to do about it."""


def propose(site: Site, way: dict[str, Any], wanted: str = "") -> Proposal:
    """The profile that fits best; pure.

    Args:
        site: What was found.
        way: Keys that lead there: host, user and so on.
        wanted: The partition that the user chose, or several with commas; empty: the best one.

    Raises:
        UsageError: Nothing runs jobs there.
    """
    if site.facts is None and not site.ray_address and site.host is not None and site.host.gpus:
        return _host(site, site.host, way)
    if site.facts is None and not site.ray_address:
        hint = "Name the login node. For a Ray cluster, its head, or write ray_address: by hand (docs/clusters.md)."
        raise UsageError("That machine belongs to no Slurm cluster, and has neither a Ray dashboard nor a GPU.", hint)
    if site.facts is None:
        note = "There is no Slurm on that machine, but a Ray cluster."
        ray = {"scheduler": "ray", "ray_address": site.ray_address}
        return Proposal(values={**way, **ray, **_disk(site)}, notes=(note,))
    partition, choices = _partition(site.facts, site.default_account, wanted)
    nodes = site.facts.nodes_of(partition.name) if partition else ()
    values: dict[str, Any] = {**way, "scheduler": "slurm"}
    notes: list[str] = []
    if partition is None:
        notes.append("No partition of this cluster is open to you; set partition: by hand.")
    else:
        values |= _limits(partition)
        notes += _other_partitions(site.facts, partition)
    account, accounts = _account(site)
    values |= {"account": account} if account else {}
    shape, gpus, shape_notes = _shape(nodes)
    values |= shape | _disk(site)
    choices_of = {"partition": choices, "account": accounts, "gpu": gpus}
    values |= {"slurm_cluster": site.cluster_name} if site.federation else {}
    if site.other_clusters:
        names = ", ".join(site.other_clusters[:8])
        notes.append(f"This login node also reaches {names}: `rltui setup --slurm-cluster NAME` for each of them.")
    if site.has_modules:
        notes.append("The site has modules: put `module load …` lines into setup_lines if your Python needs them.")
    notes.append("`rltui doctor --nodes` tells whether nodes have internet; if they have none, set offline: true.")
    return Proposal(
        values=values,
        choices={key: found for key, found in choices_of.items() if found},
        notes=(*shape_notes, *notes),
    )


def _host(site: Site, host: HostState, way: dict[str, Any]) -> Proposal:
    """A machine with cards and no scheduler."""
    name = host.cards[0].name if host.cards else ""
    gpu, candidates = gpu_type(name, set())
    values = {**way, "scheduler": "hosts", "gpus_per_node": host.gpus, "cpus_per_node": host.cpus}
    values |= {"memory_gib": float(int(host.memory_gib)), **({"gpu": gpu} if gpu else {}), **_disk(site)}
    notes = [f"There is no Slurm on that machine, but {host.gpus} × {name or 'GPU'}: runs share it by tickets."]
    if not gpu:
        meant = f" It may be {' or '.join(candidates)}." if candidates else ""
        notes.append(f"rltui's table of cards has none of that name.{meant} Set gpu: yourself.")
    if len({card.name for card in host.cards}) > 1:
        notes.append("Its cards are not all alike; a run gets any of them.")
    return Proposal(values=values, notes=tuple(notes))


def _partition(facts: ClusterFacts, account: str, wanted: str) -> tuple[PartitionFacts | None, tuple[str, ...]]:
    """The wanted one, else the default if it has GPUs, else that with the most; those down or closed come last."""

    def weight(one: PartitionFacts) -> tuple[bool, bool, bool, int]:
        gpus = sum(node.gpus for node in facts.nodes_of(one.name))
        is_open = not one.accounts or not facts.accounts or bool({account, *facts.accounts} & set(one.accounts))
        return (one.is_up and is_open, gpus > 0, one.is_default, gpus)

    ordered = sorted(facts.partitions, key=weight, reverse=True)
    chosen = next((one for one in ordered if one.name in wanted.split(",")), ordered[0] if ordered else None)
    return chosen, tuple(one.name for one in ordered)


def _other_partitions(facts: ClusterFacts, chosen: PartitionFacts) -> list[str]:
    """A word on partitions that a launch may take too; which of them (preempted, for tests …) is the user's to say."""
    others = [one.name for one in facts.partitions if one.is_up and one.name != chosen.name]
    others = [name for name in others if any(node.gpus for node in facts.nodes_of(name))]
    return [f"Other partitions with GPUs: {', '.join(others)}; partitions: lets a launch take them."] if others else []


def _limits(partition: PartitionFacts) -> dict[str, Any]:
    limits: dict[str, Any] = {"partition": partition.name}
    if partition.max_time_s:
        limits["max_time"] = write_duration(partition.max_time_s)
    if partition.max_nodes:
        limits["max_nodes"] = partition.max_nodes
    return limits


def _account(site: Site) -> tuple[str, tuple[str, ...]]:
    accounts = site.facts.accounts if site.facts else ()
    first = site.default_account if site.default_account in accounts else ""
    ordered = tuple(dict.fromkeys([*([first] if first else []), *accounts]))
    return (ordered[0] if ordered else ""), ordered


def _shape(nodes: Sequence[NodeFacts]) -> tuple[dict[str, Any], tuple[str, ...], list[str]]:
    """What the most nodes of the partition have: GPUs with their type, CPUs, memory."""
    with_gpus = [node for node in nodes if node.gpus] or list(nodes)
    if not with_gpus:
        return {}, (), ["No node of that partition can be seen; set gpu: and gpus_per_node: by hand."]
    kinds = Counter((node.gpu, node.gpus) for node in with_gpus)
    (kind, count), _ = kinds.most_common(1)[0]
    alike = [node for node in with_gpus if (node.gpu, node.gpus) == (kind, count)]
    values: dict[str, Any] = {
        "gpus_per_node": count,
        "cpus_per_node": min(node.cpus for node in alike),
        "memory_gib": float(int(min(node.memory_gib for node in alike))),
    }
    notes = []
    if len(kinds) > 1:
        others = ", ".join(
            f"{total} with {number} {name or 'GPUs'}" for (name, number), total in kinds.most_common()[1:]
        )
        notes.append(f"Not all nodes of that partition are alike; there are also {others}.")
    if not count:
        return values, (), [*notes, "That partition has no GPUs."]
    values["gres"] = f"{GRES}:{kind}" if kind else GRES
    gpu, candidates = gpu_type(kind, {feature for node in alike for feature in node.features})
    if gpu:
        values["gpu"] = gpu
    else:
        meant = f" It may be {' or '.join(candidates)}." if candidates else ""
        notes.append(
            f"Slurm calls the GPU {kind or 'nothing'}, which may mean several cards.{meant} Set gpu: yourself."
        )
    return values, candidates, notes


def gpu_type(gres: str, features: set[str]) -> tuple[str, tuple[str, ...]]:
    """The card in rltui's table for Slurm's word, and those that it may be; never a guess.

    Args:
        gres: Type in the GRES, such as ``h100`` or (found by Slurm itself) ``nvidia_h100_80gb_hbm3``.
        features: Features of the nodes; sites write there what the GRES leaves open, such as ``a100_80gb``.
    """
    for word in (gres, *sorted(features)):
        gpu = find_gpu(word) if word else None
        if gpu is not None:
            return gpu.name, ()
    return "", tuple(nearest_gpus(gres)) if gres else ()


def _disk(site: Site) -> dict[str, Any]:
    return {"run_root": f"{site.scratch.rstrip('/')}/rltui-runs"} if site.scratch else {}


def as_block(name: str, values: dict[str, Any]) -> str:
    """The lines of ``clusters.yaml`` for one cluster."""
    plain = msgspec.to_builtins({key: value for key, value in values.items() if value not in ("", [], {}, None)})
    return yaml.safe_dump({name: plain}, sort_keys=False, allow_unicode=True, width=120)


HEADER = "# Clusters that rltui knows: docs/clusters.md. No secrets: env_file names the file that has them.\n"


def with_block(text: str, name: str, block: str) -> str:
    """``text`` with the cluster ``name`` as in ``block``, in the place of the old one or at the end.

    Raises:
        UsageError: The file cannot be edited so that only this cluster changes.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    span = _span(lines, name)
    if span is None:
        changed = "".join([*(lines or [HEADER]), "\n", block])
    else:
        changed = "".join([*lines[: span[0]], block, *lines[span[1] :]])
    _check(text, changed, name)
    return changed


def _span(lines: list[str], name: str) -> tuple[int, int] | None:
    """From the line of the key ``name`` to behind its last line; comments above the next key are the next one's."""
    key = re.compile(rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')\s*:(?:\s|$)")
    start = next((index for index, line in enumerate(lines) if key.match(line)), None)
    if start is None:
        return None
    end = start + 1
    for index in range(start + 1, len(lines)):
        if lines[index][:1] not in (" ", "\t", "#", "\n", "\r", "-", "}", "]"):
            break
        if lines[index][:1] in (" ", "\t", "-", "}", "]") and lines[index].strip():
            end = index + 1
    return start, end


def entry_of(text: str, name: str) -> dict[str, Any] | None:
    """The keys that the file has for a cluster, or None.

    Raises:
        UsageError: The file cannot be read as YAML.
    """
    try:
        values = parse(text, "clusters.yaml", EXPECTED).values if _has_content(text) else {}
    except LayoutError as error:
        raise UsageError(
            f"Your clusters.yaml cannot be read: {error}", "Mend it first; `rltui info` names it."
        ) from error
    entry = values.get(name)
    return entry if isinstance(entry, dict) else None


def _check(before: str, after: str, name: str) -> None:
    """What is written must read as the old file with one cluster changed, whatever YAML the old one was in."""
    try:
        new = parse(after, "clusters.yaml", EXPECTED).values
        old = parse(before, "clusters.yaml", EXPECTED).values if _has_content(before) else {}
    except LayoutError as error:
        raise UsageError(
            f"The file cannot be edited by itself: {error}", "Add the lines shown above by hand."
        ) from error
    new.pop(name, None)
    old.pop(name, None)
    if new != old:
        raise UsageError("The file cannot be edited by itself.", "Add the lines shown above by hand.")


def _has_content(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def write_file(path: Path, text: str) -> None:
    """Replace the file in one step; a link is followed, and the mode stays.

    Raises:
        RltuiError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(path, text)
    except OSError as error:
        raise RltuiError(
            f"Cannot write {path}: {error.strerror}.", "Set RLTUI_CONFIG_DIR to another folder."
        ) from error
