"""What ``rltui doctor`` asks of a machine without a scheduler: its cards, its queue, and whether runs may stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cluster.host_facts import host_state
from rltui.cluster.profile import job_variables
from rltui.service.doctor_checks import broken, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.cluster.host_facts import HostState
    from rltui.service.doctor_checks import Check, Patient


def check_host(patient: Patient) -> Iterator[Check]:
    """Cards and queue can be looked at, the profile's number of cards is right, and logging out ends no run."""
    state = host_state(patient.relay, job_variables(patient.profile))
    if state.problem:
        yield broken("queue", state.problem, "docs/clusters.md says what the queue of a machine needs.")
        return
    yield _cards(patient, state)
    running = sum(ticket.runs for ticket in state.tickets)
    users = ", ".join(sorted({ticket.user for ticket in state.tickets})[:8])
    found = f"{running} running, {len(state.tickets) - running} waiting"
    yield ok("queue", found + (f", of {users}" if users else ""))
    if state.ends_at_logout:
        cause = "systemd ends your processes when you log out (KillUserProcesses=yes)"
        yield warning("logout", "runs would end with your last session", cause, "Run there: loginctl enable-linger")


def _cards(patient: Patient, state: HostState) -> Check:
    wanted, name = patient.profile.gpus_per_node, state.cards[0].name if state.cards else ""
    if state.gpus < wanted:
        cause = f"{state.gpus} of gpus_per_node: {wanted} are there"
        return broken("GPUs", cause, "`nvidia-smi` there says which is lost; or correct the profile.")
    if not state.gpus:
        return ok("GPUs", "none: runs take CPU slots")
    free = state.gpus - len(state.held | {card.index for card in state.foreign})
    found = f"{state.gpus} × {name or 'GPU'}, {free} free"
    if state.foreign:
        which = ", ".join(str(card.index) for card in state.foreign)
        cause = f"GPU {which} is in use by what has no ticket"
        return warning("GPUs", found, cause, f"Runs wait for it: rltui queue {patient.profile.name}")
    return ok("GPUs", found)
