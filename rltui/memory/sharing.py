"""Roles on one GPU: what each holds while another works, and the moments that follow from it.

Learner and critic keep their states on the card (less what they offload) while an engine is awake. An engine that
sleeps gives back weights and KV cache, not its CUDA context and graphs; one that does not sleep keeps its whole budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from rltui.memory.estimate import TIGHT_HEADROOM, EngineEstimate, Moment, Parts, RoleEstimate

TRAINER_STAYS = ("context", "weights", "optimizer", "reference", "adapters")
"""What a trainer keeps on the card between steps; gradients and activations are gone."""


class ColocatedRole(Struct, frozen=True, kw_only=True):
    """A role on a card that it may share.

    Attributes:
        site: The pool, or the role whose GPUs these are.
        estimate: The role as if it were alone.
        engine: What its engine holds, where it is one.
        sleeps: Whether that engine sleeps while others work.
        utilization: Its ``memory_utilization``.
    """

    site: str
    estimate: RoleEstimate
    engine: EngineEstimate | None = None
    sleeps: bool = False
    utilization: float = 0.0

    @property
    def held_gib(self) -> float:
        """What it keeps on the card while another role works."""
        if self.engine is None:
            return self.estimate.moments[0].total_gib
        if self.sleeps:
            return self.engine.non_torch_gib + self.engine.graphs_gib
        return next(moment for moment in self.estimate.moments if moment.moment == "generate").total_gib


def share(roles: Sequence[ColocatedRole], bucket_gib: float) -> tuple[RoleEstimate, ...]:
    """The estimates of all roles, each with what its neighbours hold on the same card."""
    return tuple(_beside(each, _neighbours(each, roles), bucket_gib) for each in roles)


def _neighbours(role: ColocatedRole, roles: Sequence[ColocatedRole]) -> list[ColocatedRole]:
    return [other for other in roles if other is not role and other.site == role.site]


def _beside(role: ColocatedRole, others: list[ColocatedRole], bucket_gib: float) -> RoleEstimate:
    if not others:
        return role.estimate
    learner = next((other for other in others if other.estimate.role == "learner"), None)
    if role.engine is not None and role.sleeps and learner is not None:
        moments = _sleeping(role.engine, learner, others, bucket_gib)
    else:
        held = _held(others)
        moments = [Moment(moment=m.moment, parts_gib={**m.parts_gib, **held}) for m in role.estimate.moments]
    shared = structs.replace(
        role.estimate,
        moments=tuple(moments),
        error=role.estimate.error.or_more(*(other.estimate.error for other in others)),
    )
    return _advised(role, shared, others)


def _held(others: list[ColocatedRole]) -> Parts:
    return {f"{other.estimate.role} beside": other.held_gib for other in others}


def _sleeping(
    engine: EngineEstimate, learner: ColocatedRole, others: list[ColocatedRole], bucket_gib: float
) -> list[Moment]:
    """An engine that wakes up beside the learner's states, its ZeRO-3 gradients, and all other roles."""
    wake_up, generate = wake_up_moments(learner.estimate, engine, bucket_gib)
    more = _held([other for other in others if other is not learner])
    gradients = learner.estimate.moments[0].parts_gib.get("gradients", 0.0)
    if gradients:
        more["trainer gradients"] = gradients
    return [
        structs.replace(wake_up, parts_gib={**wake_up.parts_gib, **more, "graphs": engine.graphs_gib}),
        structs.replace(generate, parts_gib={**generate.parts_gib, **more}),
    ]


def _advised(role: ColocatedRole, shared: RoleEstimate, others: list[ColocatedRole]) -> RoleEstimate:
    """The knob that lowers the peak where it is a neighbour's doing; the share of the card is one only here."""
    if shared.blocked or shared.capacity_gib is None:
        return shared
    held = sum(other.held_gib for other in others)
    beside = ", ".join(other.estimate.role for other in others)
    reason = f"{held:.1f} GiB of it belong to {beside} on the same GPU"
    awake = next((other for other in others if other.engine is not None and not other.sleeps), None)
    if role.engine is None:
        if awake is not None and awake.estimate.role == "rollout":
            return structs.replace(shared, knob="roles.rollout.sleep_while_training=true", reason=reason)
        return shared
    if role.engine.budget_gib is None:  # transformers take what they need, whatever their share of the card
        return structs.replace(shared, knob=_offload(others) or shared.knob, reason=reason)
    if shared.peak.moment != "generate":
        return structs.replace(shared, knob=_offload(others), reason=reason)
    room = shared.capacity_gib * (1 - TIGHT_HEADROOM) - (shared.peak_gib - role.utilization * shared.capacity_gib)
    # down to whole percents: rounded up it might not fit
    lower = int(100 * room / shared.capacity_gib) / 100
    needed = (role.utilization * shared.capacity_gib - (role.engine.kv_gib or 0.0)) / shared.capacity_gib
    fits = needed < lower < role.utilization
    knob = f"roles.{shared.role}.memory_utilization={lower:g}" if fits else _offload(others)
    return structs.replace(shared, knob=knob, reason=reason)


def _offload(others: list[ColocatedRole]) -> str:
    trained = max(
        (other.estimate for other in others if other.estimate.role in ("learner", "critic")),
        key=lambda estimate: estimate.moments[0].parts_gib.get("optimizer", 0.0),
        default=None,
    )
    if trained is None or not trained.moments[0].parts_gib.get("optimizer"):
        return ""
    return f"roles.{trained.role}.offload=optimizer"


def wake_up_moments(learner: RoleEstimate, engine: EngineEstimate, bucket_gib: float) -> list[Moment]:
    """Moments of an engine that wakes up on a learner's GPU.

    Weights wake first, beside the trainer's states and one bucket of new weights, then the KV cache beside the states.

    Args:
        learner: The learner's estimate, of which the states count.
        engine: The engine's estimate.
        bucket_gib: The buffer that new weights travel in.
    """
    held = learner.moments[0].parts_gib
    trainer = {f"trainer {name}": held[name] for name in TRAINER_STAYS if name in held}
    context: Parts = {"context": engine.non_torch_gib}
    weights: Parts = {"weights": engine.weights_gib}
    cache: Parts = {
        "activation": engine.activation_gib,
        "graphs": engine.graphs_gib,
        "kv": max(0.0, engine.kv_gib or 0.0),
    }
    return [
        Moment(moment="wake-up", parts_gib={**trainer, **context, **weights, "bucket": bucket_gib}),
        Moment(moment="generate", parts_gib={**trainer, **context, **weights, **cache}),
    ]
