"""The table of bars that ``rltui mem`` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rltui.memory.estimate import EngineEstimate, HostEstimate, LayoutEstimate, Moment, RoleEstimate

WIDTH = 16
"""Cells of a bar: a whole card."""

NAMED_PARTS = 3
"""Parts that a line names; the rest is in ``--json``."""

GLYPHS = {"fits": "✓", "tight": "!", "no": "✗", "unknown": "?"}


def lines(estimate: LayoutEstimate) -> Iterator[str]:
    """The estimate as lines for people: a bar a role, its parts, and what is left of the card."""
    for name, model in estimate.models:
        yield f"{'policy' if name == 'learner' else name:<9} {model}"
    for role in estimate.roles:
        yield from _role(role)
    for engine in estimate.engines:
        yield from _engine(engine)
    if estimate.host is not None:
        yield _host(estimate.host)
    if estimate.checkpoint_gib is not None:
        yield f"disk      a checkpoint takes {size_words(estimate.checkpoint_gib)}"
    yield from estimate.notes
    if estimate.roles:
        yield "±: within it lay nine in ten published peaks of such roles (docs/memory.md)"


def _role(role: RoleEstimate) -> Iterator[str]:
    card = "room not known" if role.capacity_gib is None else f"{role.capacity_gib:.1f} GiB each"
    yield f"{role.role:<9} {role.gpus} GPU{'s' if role.gpus != 1 else ''}, {card}, {role.error}"
    for moment in role.moments:
        bar = _bar(moment.total_gib, role.capacity_gib)
        yield f"  {moment.moment:<14} {bar} {moment.total_gib:6.1f} GiB  {_parts(moment)}"
    yield f"  {GLYPHS[role.verdict]} {role.verdict}: {_reason(role)}"
    if role.knob and role.verdict in ("tight", "no"):
        yield f"    {role.knob}"


def _bar(size_gib: float, capacity_gib: float | None) -> str:
    if capacity_gib is None:
        return " " * WIDTH
    filled = min(WIDTH, round(WIDTH * size_gib / capacity_gib))
    return "█" * filled + "░" * (WIDTH - filled) if size_gib <= capacity_gib else "█" * (WIDTH - 1) + "▶"


def _parts(moment: Moment) -> str:
    largest = sorted(moment.parts_gib.items(), key=lambda item: -item[1])[:NAMED_PARTS]
    return ", ".join(f"{name} {size:.1f}" for name, size in largest if size >= 0.05)


def _reason(role: RoleEstimate) -> str:
    if role.blocked:
        return role.blocked
    peak = f"the peak is {role.peak.moment} with {role.peak_gib:.1f} GiB"
    if role.capacity_gib is None:
        return peak
    free = role.capacity_gib - role.peak_gib
    room = f"{free:.1f} GiB free" if free >= 0 else f"{-free:.1f} GiB too much"
    if free < 0 and role.verdict == "tight":
        room += ", unless torch's allocator frees blocks that it caches"
    why = f"; {role.reason}" if role.reason and role.verdict != "fits" else ""
    return f"{peak}, {room}{why}"


def _engine(engine: EngineEstimate) -> Iterator[str]:
    if engine.kv_gib is None or not engine.kv_tokens or engine.max_concurrency is None:
        return
    yield (
        f"{engine.role:<9} KV cache of {engine.kv_gib:.1f} GiB a GPU: {engine.kv_tokens:,} tokens, "
        f"{engine.max_concurrency:.1f} sequences of full length"
    )


def _host(host: HostEstimate) -> str:
    parts = ", ".join(f"{name} {size:.0f}" for name, size in host.ram_parts_gib.items())
    return (
        f"host      {host.ram_gib:.0f} GiB of RAM on the fullest node ({parts}), {host.shm_gib:.0f} of it in /dev/shm"
    )


def size_words(size_gib: float) -> str:
    """``3.2 GiB``, or ``1.6 MiB`` where it is little."""
    return f"{size_gib:.1f} GiB" if size_gib >= 0.1 else f"{size_gib * 1024:.1f} MiB"
