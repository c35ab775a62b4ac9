"""What stands already beside better divisions of its GPUs: how long it takes, and what would change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from rltui.hardware.gpus import find_gpu
from rltui.layout.diff import diff, setting_text
from rltui.layout.schema import Layout
from rltui.plan.of_layout import request_of_layout, setup_of_layout
from rltui.plan.rank import Proposal
from rltui.plan.request import Request
from rltui.plan.throughput import step_time

DIVIDING = {
    "learner": (
        *("gpus", "pool", "tensor_parallel", "sequence_parallel", "pipeline_parallel", "expert_parallel"),
        *("zero_stage", "hpz_partition", "offload", "micro_batch", "gradient_checkpointing"),
    ),
    "rollout": ("engines", "pool", "engine", "tensor_parallel", "memory_utilization", "sleep_while_training"),
    "reference": ("pool", "zero_stage"),
    "critic": ("pool", "zero_stage", "offload", "micro_batch", "gradient_checkpointing"),
    "teacher": ("engines", "engine", "pool", "tensor_parallel", "memory_utilization"),
}
"""Keys of each role that a division of GPUs decides; all else of a role stays as its layout has it."""


class Standing(Struct, frozen=True, kw_only=True):
    """What a plan is to be better than.

    Attributes:
        name: Its preset, file, script or run, as the user said it.
        layout: Its settings.
        again: The words that start it with other settings, such as ``rltui launch NAME``; none of another system's
            script, which overrides cannot divide anew.
        words: Of a script, its system's own words by the key of a layout that means the same.
    """

    name: str
    layout: Layout
    again: tuple[str, ...] = ()
    words: Mapping[str, str] = {}


def as_it_stands(standing: Standing, request: Request) -> Proposal:
    """It as a proposal without a rank, by the lengths and rates of ``request``.

    Raises:
        RltuiError: ``plan`` does not predict such runs, with the reason.
    """
    own, setup = request_of_layout(standing.layout), setup_of_layout(standing.layout)
    known = ("rates", "measured", "response_mean", "response_spread", "prompt_tokens")
    own = structs.replace(own, **{name: getattr(request, name) for name in known})
    return Proposal(rank=0, setup=setup, time=step_time(own, setup), layout=standing.layout, text="", why="")


def divided_like(layout: Layout, planned: Layout) -> Layout:
    """``layout`` with the hardware and the division of ``planned``, and all its other settings.

    A pool that has the GPUs of one that is there already has its name.
    """
    names = _pool_names(layout, planned)
    roles, theirs = layout.roles, planned.roles
    changed: dict[str, Any] = {}
    for name, keys in DIVIDING.items():
        own, other = getattr(roles, name), getattr(theirs, name)
        if own is not None and other is not None:
            values = {key: getattr(other, key) for key in keys}
            values["pool"] = names.get(values["pool"], "")
            changed[name] = structs.replace(own, **values)
    hardware = {name: getattr(planned.hardware, name) for name in ("nodes", "gpus_per_node")}
    if find_gpu(layout.hardware.gpu) != find_gpu(planned.hardware.gpu):
        hardware["gpu"] = planned.hardware.gpu
    return structs.replace(
        layout,
        hardware=structs.replace(layout.hardware, **hardware),
        pools={names[name]: pool for name, pool in planned.pools.items()},
        roles=structs.replace(roles, **changed),
        lengths=structs.replace(layout.lengths, pack=planned.lengths.pack),
    )


def _pool_names(layout: Layout, planned: Layout) -> dict[str, str]:
    """What the pools of ``planned`` are called in ``layout``, where pools as large are: each has a name of its own."""
    at_home = {
        getattr(planned.roles, role).pool: getattr(layout.roles, role).pool
        for role in ("critic", "learner")
        if getattr(planned.roles, role) is not None and getattr(layout.roles, role) is not None
    }
    names: dict[str, str] = {}
    for name, pool in planned.pools.items():
        alike = [own for own, there in layout.pools.items() if there == pool and own not in names.values()]
        home = at_home.get(name, "")
        names[name] = home if home in alike else next(iter(alike), name)
    return names if len(set(names.values())) == len(names) else {name: name for name in names}


def changes(layout: Layout, other: Layout) -> tuple[str, ...]:
    """The overrides, ``key=value``, that make ``other`` of ``layout``; pools are named all at once."""
    words = [f"{each.key}={_value(each.b)}" for each in diff(layout, other) if not each.key.startswith("pools.")]
    if layout.pools != other.pools:
        words.insert(0, f"pools={_value({name: {'gpus': pool.gpus} for name, pool in other.pools.items()})}")
    return tuple(words)


def differences(standing: Standing, other: Layout) -> Iterator[str]:
    """What ``other`` has otherwise, a line a key, with the system's own word where rltui knows it."""
    for each in diff(standing.layout, other):
        own = standing.words.get(each.key, "")
        said = f" ({own}={setting_text(each.b)})" if own and each.b is not None else ""
        yield f"{each.key}: {setting_text(each.a)} → {setting_text(each.b)}{said}"


def _value(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
