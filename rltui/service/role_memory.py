"""What was estimated for each role of a run's newest attempt, to stand beside what its cards hold."""

from __future__ import annotations

from rltui.errors import RltuiError
from rltui.memory.layouts import estimate_roles
from rltui.memory.measured import KINDS
from rltui.runs.directory import load_attempt_layout
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.node_samples import RoleMemory
from rltui.watch.owners import ROLE_NAMES
from rltui.watch.snapshots import RunSummary


def role_memory(context: Context, run: RunSummary) -> tuple[RoleMemory, ...]:
    """The most that each role was estimated to take of a card; none of what has no layout, card or known model."""
    letters = {name: letter for letter, name in ROLE_NAMES.items()}
    try:
        estimate = estimate_roles(load_attempt_layout(context.cluster.client, attempt_path(run)).layout)
    except RltuiError:  # a script, another version's layout, a cluster that is away: what is held is shown all the same
        return ()
    return tuple(
        RoleMemory(letter=letters[name], moment=role.peak.moment, estimated_gib=role.peak_gib)
        for role in estimate.roles
        if (name := KINDS.get(role.role, role.role)) in letters and role.verdict != "unknown"
    )
