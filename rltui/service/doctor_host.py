"""What ``rltui doctor`` asks of a machine without a scheduler: its cards, its queue, and whether runs may stay."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from msgspec.structs import replace

from rltui.cluster.host_facts import HostState, host_states
from rltui.cluster.machines import machines_of
from rltui.errors import ClusterError
from rltui.service.doctor_checks import Check, ClusterUnderTest, broken, failed, ok, warning


def check_host(tested: ClusterUnderTest) -> Iterator[Check]:
    """Cards and queue can be looked at, the profile's number of cards is right, and logging out ends no run."""
    several = len(tested.profile.hosts) > 1
    for name, state in host_states(tested.relay, tested.profile).items():
        checks = list(_of(tested, state))
        if several and isinstance(state, HostState):
            checks.append(_disk(tested, name))
        for check in checks:
            yield replace(check, name=f"{name} {check.name}") if several else check


def _disk(tested: ClusterUnderTest, name: str) -> Check:
    """Whether a machine sees what the first one writes into the folder of the runs."""
    root = tested.root.path
    probe = f"{root}/.rltui-doctor-{secrets.token_hex(6)}"
    tested.relay.run(["mkdir", "-p", "-m", "700", "--", root], timeout_s=30)
    tested.relay.put(probe, b"", 0o600, exclusive=True)
    try:
        seen = machines_of(tested.relay, tested.profile)[name].run(["cat", probe], timeout_s=30).rc == 0
    finally:
        tested.relay.run(["rm", "-f", "--", probe], timeout_s=30)
    if seen:
        return ok("disk", f"sees {root}")
    hint = "Set run_root: to a folder that all of hosts: see, or write a profile for each."
    return broken("disk", f"{root} is another folder there, or none", hint)


def _of(tested: ClusterUnderTest, state: HostState | ClusterError) -> Iterator[Check]:
    if isinstance(state, ClusterError):
        yield failed("connection", state)
        return
    if state.problem:
        yield broken("queue", state.problem, "docs/clusters.md says what the queue of a machine needs.")
        return
    yield _cards(tested, state)
    running = sum(ticket.runs for ticket in state.tickets)
    users = ", ".join(sorted({ticket.user for ticket in state.tickets})[:8])
    found = f"{running} running, {len(state.tickets) - running} waiting"
    yield ok("queue", found + (f", of {users}" if users else ""))
    if state.ends_at_logout:
        cause = "systemd ends your processes when you log out (KillUserProcesses=yes)"
        yield warning("logout", "runs would end with your last session", cause, "Run there: loginctl enable-linger")


def _cards(tested: ClusterUnderTest, state: HostState) -> Check:
    wanted, name = tested.profile.gpus_per_node, state.cards[0].name if state.cards else ""
    if state.gpus < wanted:
        cause = f"{state.gpus} of gpus_per_node: {wanted} are there"
        return broken("GPUs", cause, "`nvidia-smi` there says which is lost; or correct the profile.")
    if not state.gpus:
        return ok("GPUs", "none: runs take CPU slots")
    found = f"{state.gpus} × {name or 'GPU'}, {state.free} free"
    if state.foreign:
        which = ", ".join(str(card.index) for card in state.foreign)
        cause = f"GPU {which} is in use by what has no ticket"
        return warning("GPUs", found, cause, f"Runs wait for it: rltui queue {tested.profile.name}")
    return ok("GPUs", found)
