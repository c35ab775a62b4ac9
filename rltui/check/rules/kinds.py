"""Rules about nodes of several kinds: who is on which of them, and what cannot be done with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rltui.check.rule import Subject, Trouble, rule
from rltui.layout.schema import Layout
from rltui.placement.bundles import ROLE_KEYS, ROLES, groups


@rule("P134", "error")
def roles_of_a_kind(subject: Subject) -> Iterator[Trouble]:
    """A further kind of node does not say rightly which roles it holds.

    Each kind under `hardware.more` names at least one role of the layout, and no role is on two kinds; roles that none
    of them names stay on the first. Roles that share GPUs are on the same kind: those of one pool, and a reference or
    critic without a pool with its learner.
    """
    layout = subject.layout
    counts = Counter(role for kind in layout.hardware.more.values() for role in set(kind.roles))
    for name, kind in layout.hardware.more.items():
        key = f"hardware.more.{name}.roles"
        if not kind.roles:
            yield Trouble(f"the nodes {name!r} have no role", key)
        for role in dict.fromkeys(kind.roles):
            if role not in ROLES:
                yield Trouble(f"{role!r} is no role on GPUs; these are {', '.join(ROLES)}", key)
            elif getattr(layout.roles, role) is None:
                yield Trouble(f"the layout has no {role}", key)
            elif counts[role] > 1 or kind.roles.count(role) > 1:
                yield Trouble(f"{role} is named more than once", key)
    yield from _apart(layout)


def _apart(layout: Layout) -> Iterator[Trouble]:
    """Roles that share GPUs and are on different kinds of node."""
    for group in groups(layout):
        roles = [ROLE_KEYS[word] for word in group.members]
        if len({layout.hardware.part_of(role) for role in roles}) > 1:
            yield Trouble(f"{', '.join(roles)} share GPUs and are on different kinds of node", "hardware.more")


@rule("P135", "error")
def cards_beside_cpu_slots(subject: Subject) -> Iterator[Trouble]:
    """One kind of node has GPUs and another has CPU slots; the trainers work on one or the other."""
    parts = subject.layout.hardware.parts
    if len({part.on_cpu for part in parts}) > 1:
        cards = ", ".join(dict.fromkeys(part.gpu for part in parts))
        yield Trouble(f"the kinds of node have {cards}: GPUs and CPU slots do not go together", "hardware.more")


@rule("S609", "error")
def not_with_kinds(subject: Subject) -> Iterator[Trouble]:
    """Something is asked for that does not work in a job of several kinds of node.

    A self-test looks at nodes that are alike: make one layout for each kind.
    """
    if subject.layout.hardware.more and subject.layout.selftest is not None:
        yield Trouble("a self-test has one kind of node", "hardware.more")
