"""The JSON form of an estimate, as ``rltui mem --json`` prints it."""

from __future__ import annotations

from typing import Any

from rltui.memory.estimate import EngineEstimate, HostEstimate, LayoutEstimate, RoleEstimate

SCHEMA = 1


def as_json(estimate: LayoutEstimate) -> dict[str, Any]:
    """The estimate as builtins, in the form that ``rltui mem --json`` prints."""
    return {
        "schema": SCHEMA,
        "roles": [_role_json(role) for role in estimate.roles],
        "engines": [_engine_json(engine) for engine in estimate.engines],
        "host": None if estimate.host is None else _host_json(estimate.host),
        "checkpoint_gib": None if estimate.checkpoint_gib is None else round(estimate.checkpoint_gib, 3),
        "models": dict(estimate.models),
        "notes": list(estimate.notes),
    }


def _rounded(parts: dict[str, float]) -> dict[str, float]:
    return {name: round(size, 3) for name, size in parts.items()}


def _role_json(role: RoleEstimate) -> dict[str, Any]:
    return {
        "role": role.role,
        "gpus": role.gpus,
        "capacity_gib": role.capacity_gib,
        "moments": [
            {"moment": m.moment, "total_gib": round(m.total_gib, 3), "parts_gib": _rounded(m.parts_gib)}
            for m in role.moments
        ],
        "peak_gib": round(role.peak_gib, 3),
        "peak_moment": role.peak.moment,
        "error": role.error.above,
        "error_below": role.error.below,
        "verdict": role.verdict,
        "knob": role.knob,
        "reason": role.reason,
    }


def _engine_json(engine: EngineEstimate) -> dict[str, Any]:
    return {
        "role": engine.role,
        "weights_gib": round(engine.weights_gib, 3),
        "activation_gib": round(engine.activation_gib, 3),
        "kv_gib": None if engine.kv_gib is None else round(engine.kv_gib, 3),
        "kv_tokens": engine.kv_tokens,
        "max_concurrency": None if engine.max_concurrency is None else round(engine.max_concurrency, 2),
        "graphs_gib": round(engine.graphs_gib, 3),
        "non_torch_gib": round(engine.non_torch_gib, 3),
    }


def _host_json(host: HostEstimate) -> dict[str, Any]:
    return {"ram_gib": round(host.ram_gib, 3), "ram_parts_gib": _rounded(host.ram_parts_gib), "shm_gib": host.shm_gib}
