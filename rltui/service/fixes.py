"""The change that lowers the memory peak in a run's way, chosen by which role has the peak and who shares its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.check.rules.memory_fix import with_word
from rltui.errors import RltuiError, UsageError
from rltui.layout.roles import SERVED
from rltui.memory.layouts import estimate_roles
from rltui.runs.directory import load_attempt_layout
from rltui.runs.script_job import ScriptJob, read_script_job
from rltui.service.describe import attempt_path

if TYPE_CHECKING:
    from rltui.diagnose.verdicts import Diagnosis
    from rltui.layout.schema import Layout
    from rltui.memory.estimate import RoleEstimate
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

UTILIZATION = "roles.rollout.memory_utilization"
LEAST_UTILIZATION = 0.3
STEP = 0.1
LEAST_GAIN_GIB = 0.1

TRAINERS = ("learner", "critic")

VICTIMS = {
    "cuda_oom_fwd_bwd": "learner",
    "cuda_oom_optimizer": "learner",
    "cuda_oom_zero3_gather": "learner",
    "cuda_oom_logits": "learner",
    "oom_weight_sync": "learner",
    "engine_load_oom": "rollout",
    "engine_free_mem_lt_util": "rollout",
}
"""Whose memory a diagnosis is about."""

ENGINE_AWAKE = frozenset({"oom_weight_sync", "engine_load_oom", "engine_free_mem_lt_util"})
"""Diagnoses of moments in which an engine that sleeps while the trainer works is awake."""


class MemoryFix(Struct, frozen=True, kw_only=True):
    """One change of a layout that brings a role's peak below its card's memory."""

    role: str
    """Whose peak is in the way."""
    overrides: tuple[str, ...]
    words: tuple[str, ...]
    """Why this one, a sentence a line."""


def lower_memory(context: Context, run: RunSummary) -> MemoryFix:
    """The change that lowers the peak which ended ``run``, or the one that comes closest to its card.

    Raises:
        RltuiError: No setting lowers it, or nothing is known about the memory of this run.
    """
    from rltui.service.why import diagnose_run

    path = attempt_path(run)
    script = read_script_job(context.cluster.client, path)
    if script is not None:
        return _words_of_script(script, diagnose_run(context, run) if not run.is_live else (), run.run_id)
    layout = load_attempt_layout(context.cluster.client, path).layout
    return choose(layout, diagnose_run(context, run) if not run.is_live else (), run.run_id)


def _words_of_script(script: ScriptJob, diagnoses: Sequence[Diagnosis], run_id: str) -> MemoryFix:
    """The first remedy of what went wrong for which the script's system has words.

    Raises:
        RltuiError: None is known, as what the script takes of its cards is not estimated.
    """
    cause = next((one for one in diagnoses if one.id in VICTIMS and not one.secondary), None)
    for change, summary in _remedies(cause):
        own = script.dialect.own_words(change)
        if own:
            role = VICTIMS[cause.id] if cause is not None else ""
            return MemoryFix(role=role, overrides=(change,), words=(f"{own}: {summary}",))
    known = ", ".join(script.dialect.words.values())
    raise RltuiError(
        f"No word of {script.dialect.name} is known to mend what ended {run_id}.",
        f"rltui resubmit {run_id} -- WORD=… appends one of its own: {known}." if known else "",
    )


def choose(layout: Layout, diagnoses: Sequence[Diagnosis], run_id: str = "") -> MemoryFix:
    """The change for ``layout``, in the light of what went wrong.

    Raises:
        RltuiError: As ``lower_memory``.
    """
    cause = next((one for one in diagnoses if one.id in VICTIMS and not one.secondary), None)
    role = VICTIMS[cause.id] if cause is not None else _fullest(layout)
    if not role:
        raise RltuiError(
            f"Nothing is known about the memory of {run_id or layout.name}: "
            "no message about it in its logs, and no estimate for its model or card.",
            f"`rltui why {run_id or layout.name}` shows what is in the logs.",
        )
    words = [f"in the way: the memory of the {role}" + (f" ({cause.id})" if cause is not None else " (estimate)")]
    words += _sharing_words(layout, role, cause)
    for override, reason in _levers(layout, role, cause):
        if _changes(layout, override) and (cause is not None or _lowers(layout, role, override)):
            words.append(f"{override}: {reason}")
            words += _effect(layout, role, override)
            return MemoryFix(role=role, overrides=(override,), words=tuple(words))
    raise RltuiError(f"No setting lowers the {role}'s peak any further.", "Give it more GPUs, or shorter sequences.")


def shares_gpu(layout: Layout, role: str) -> bool:
    """Whether a rollout engine is on the GPUs of ``role``."""
    pool = getattr(getattr(layout.roles, role), "pool", "")
    if role == "critic" and not pool:
        pool = layout.roles.learner.pool
    return bool(pool) and layout.roles.rollout.pool == pool


def _levers(layout: Layout, role: str, cause: Diagnosis | None) -> Iterator[tuple[str, str]]:
    """Overrides with their reasons, best first."""
    if role in TRAINERS and shares_gpu(layout, role) and _engine_holds(layout, cause):
        yield _lower_utilization(layout), "the engine holds its share of the same cards"
    for change, summary in _remedies(cause):
        if not (role in TRAINERS and change.startswith(UTILIZATION)):
            yield change, summary
    found = _estimate(layout, role)
    if found is not None and found.knob and not (role in TRAINERS and found.knob.startswith(UTILIZATION)):
        yield found.knob, found.reason
    yield from _ladder(layout, role)


def _ladder(layout: Layout, role: str) -> Iterator[tuple[str, str]]:
    """What helps in general, the cheapest first."""
    if role in ("rollout", *SERVED):
        if role == "rollout":
            yield "roles.rollout.enforce_eager=true", "CUDA graphs take their memory outside the engine's share"
            yield _lower_utilization(layout), "a smaller KV cache leaves room for weights and graphs"
        return
    settings = layout.roles.learner if role == "learner" else layout.roles.critic
    if settings is None:
        return
    batch = settings.micro_batch or max(1, layout.train.samples_per_step // max(1, layout.slots_of(role)))
    if role == "learner":
        yield "roles.learner.chunked_logits=true", "the logits of all tokens are never held at once"
    yield f"roles.{role}.gradient_checkpointing=true", "activations are computed anew in the backward pass"
    if batch > 1:
        yield f"roles.{role}.micro_batch={batch // 2}", "half the samples are in a forward pass"
    yield f"roles.{role}.zero_stage=3", "weights, gradients and optimizer states are divided over all its GPUs"
    yield f"roles.{role}.offload=optimizer", "optimizer states move to host memory, for a slower step"


def _remedies(cause: Diagnosis | None) -> Iterator[tuple[str, str]]:
    for remedy in cause.remedies if cause is not None else ():
        for change in remedy.changes[:1]:
            if change.operation == "set" and len(remedy.changes) == 1 and not change.key.startswith("lengths."):
                value = str(change.value).lower() if isinstance(change.value, bool) else change.value
                yield f"{change.key}={value}", remedy.summary


def _sharing_words(layout: Layout, role: str, cause: Diagnosis | None) -> list[str]:
    if role not in TRAINERS:
        return []
    if not shares_gpu(layout, role):
        return [f"{role} and engine do not share a GPU: a lower memory_utilization would not help the {role}"]
    if not _engine_holds(layout, cause):
        return [f"the engine sleeps while the {role} works: its memory_utilization is not what the {role} lacks"]
    return [f"{role} and engine share their GPUs"]


def _engine_holds(layout: Layout, cause: Diagnosis | None) -> bool:
    """Whether a sharing engine has its memory at the moment of the peak."""
    return not layout.roles.rollout.sleep_while_training or (cause is not None and cause.id in ENGINE_AWAKE)


def _lower_utilization(layout: Layout) -> str:
    lower = max(LEAST_UTILIZATION, round(layout.roles.rollout.memory_utilization - STEP, 2))
    return f"{UTILIZATION}={min(lower, layout.roles.rollout.memory_utilization):g}"


def _changes(layout: Layout, override: str) -> bool:
    return with_word(layout, override) != layout


def _lowers(layout: Layout, role: str, override: str) -> bool:
    """Whether the estimate sees the peak fall; True where there is none."""
    before, after = _estimate(layout, role), _estimate(with_word(layout, override), role)
    return before is None or after is None or before.peak_gib - after.peak_gib >= LEAST_GAIN_GIB


def _effect(layout: Layout, role: str, override: str) -> list[str]:
    before, after = _estimate(layout, role), _estimate(with_word(layout, override), role)
    if before is None or after is None or before.capacity_gib is None:
        return []
    return [
        f"estimated peak of the {role}: {before.peak_gib:.1f} → {after.peak_gib:.1f} GiB of {before.capacity_gib:.1f}"
    ]


def _fullest(layout: Layout) -> str:
    """The role that comes closest to its card; engines with cards of their own fill them on purpose."""
    known = [
        found
        for role in (*TRAINERS, "rollout", *SERVED)
        if (found := _estimate(layout, role)) is not None and found.capacity_gib
        if role in TRAINERS or found.blocked or found.verdict == "no"
    ]
    return max(known, key=lambda found: found.peak_gib / (found.capacity_gib or 1.0)).role if known else ""


def _estimate(layout: Layout, role: str) -> RoleEstimate | None:
    try:
        return estimate_roles(layout).role(role)
    except UsageError:  # a model on the cluster's disk, whose shape is not seen from here
        return None
