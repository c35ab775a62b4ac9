"""What was different in an attempt from the last one that went well: where to look when no cause is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.errors import RltuiError
from rltui.layout.diff import diff
from rltui.layout.load import load_text
from rltui.onnode import node_report, rundir
from rltui.runs.claims import parsed

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient
    from rltui.diagnose.diagnose import Findings
    from rltui.watch.snapshots import RunSummary

READ = (rundir.STAGE, rundir.LAYOUT, rundir.SCRIPT_RUN, rundir.JOB, rundir.SLURM, rundir.PREFLIGHT)
MOST_BYTES = 1 << 18
MOST_CHANGES = 12


class Differences(Struct, frozen=True, kw_only=True):
    """How an attempt differs from an earlier one that made steps."""

    attempt: int
    """The earlier one."""
    step: int
    """How far it came."""
    changes: tuple[str, ...] = ()
    """``key: before → now``, a line each; empty where nothing that is written down differs."""

    def in_words(self) -> list[str]:
        """The same as lines for people."""
        head = f"Attempt {self.attempt} made steps up to {self.step}"
        if not self.changes:
            return [f"{head}; nothing that is written down was different there: layout, script, code, nodes, versions."]
        return [f"{head}; what is different since:", *(f"    {line}" for line in self.changes)]


def unexplained(client: RelayClient, run: RunSummary, found: Findings) -> Differences | None:
    """``differences`` of a run that ended for no known cause; None where there is one, or nothing went wrong."""
    if run.is_live or run.state == "finished" or (found.diagnoses and found.first_exception is None):
        return None
    return differences(client, run)


def differences(client: RelayClient, run: RunSummary) -> Differences | None:
    """How the attempt of ``run`` differs from the newest earlier one that made steps; None without such a one."""
    if run.attempt < 2:
        return None
    found = client.collect(run.path, [f"{rundir.ATTEMPTS}/*/{name}" for name in READ], MOST_BYTES)
    attempts: dict[int, dict[str, str]] = {}
    for file in found:
        _, folder, name = file.path.split("/", 2)
        if folder.isdigit() and file.text is not None:
            attempts.setdefault(int(folder), {})[name] = file.text
    now = attempts.get(run.attempt, {})
    for number in sorted((one for one in attempts if one < run.attempt), reverse=True):
        before = attempts[number]
        came = int(parsed(before.get(rundir.STAGE)).get("step") or 0)
        if came:
            return Differences(attempt=number, step=came, changes=tuple(_changes(before, now)[:MOST_CHANGES]))
    return None


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    lines = _layout_changes(before, now) or _script_changes(before, now)
    then, since = parsed(before.get(rundir.JOB)), parsed(now.get(rundir.JOB))
    if then.get("code") != since.get("code"):
        lines.append("rltui's own code is another version")
    nodes = [parsed(files.get(rundir.SLURM)).get("nodes", []) for files in (before, now)]
    if nodes[0] and nodes[1] and set(nodes[0]) != set(nodes[1]):
        lines.append(f"nodes: {_listed(nodes[0])} → {_listed(nodes[1])}")
    versions = node_report.changed_since(parsed(before.get(rundir.PREFLIGHT)), parsed(now.get(rundir.PREFLIGHT)))
    return [*lines, f"versions: {versions}"] if versions else lines


def _layout_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    if rundir.LAYOUT not in before or rundir.LAYOUT not in now:
        return []
    try:
        old, new = (load_text(files[rundir.LAYOUT], rundir.LAYOUT).layout for files in (before, now))
    except RltuiError:  # written by another version of rltui
        return []
    return [f"{one.key}: {one.a} → {one.b}" for one in diff(old, new)] if old is not None and new is not None else []


def _script_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    old, new = parsed(before.get(rundir.SCRIPT_RUN)), parsed(now.get(rundir.SCRIPT_RUN))
    if not old or not new:
        return []
    pairs = [("words", " ".join(old.get("words", [])), " ".join(new.get("words", [])))]
    for section in ("hardware", "slurm"):
        known = old.get(section, {})
        pairs += [(f"{section}.{key}", known.get(key), value) for key, value in new.get(section, {}).items()]
    return [f"{key}: {then or '–'} → {since or '–'}" for key, then, since in pairs if then != since]


def _listed(nodes: list[str]) -> str:
    return f"{', '.join(nodes[:8])}{' …' if len(nodes) > 8 else ''}"
