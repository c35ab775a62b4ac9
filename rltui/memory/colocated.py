"""Trainer and engine on one GPU: what is there when the engine wakes up."""

from __future__ import annotations

from rltui.memory.estimate import EngineEstimate, Moment, Parts, RoleEstimate

TRAINER_STAYS = ("context", "weights", "optimizer", "reference", "adapters")
"""What a trainer keeps on the card between steps; gradients and activations are gone."""


def wake_up_moments(
    learner: RoleEstimate, engine: EngineEstimate, *, offloaded: bool, bucket_gib: float
) -> list[Moment]:
    """Moments of an engine that wakes up on a learner's GPU.

    Weights wake first, beside the trainer's states and one bucket of new weights. The KV cache wakes after the
    trainer's states went to host memory, or, where they do not (``offloaded`` is false), beside them too.

    Args:
        learner: The learner's estimate, of which the states count.
        engine: The engine's estimate.
        offloaded: Whether the trainer's states leave the card while the engine generates.
        bucket_gib: The buffer that new weights travel in.
    """
    held = learner.moments[0].parts_gib
    trainer = {f"trainer {name}": held[name] for name in TRAINER_STAYS if name in held}
    context: Parts = {"context": engine.non_torch_gib}
    weights: Parts = {"weights": engine.weights_gib}
    staying = {} if offloaded else trainer
    if offloaded and "trainer context" in trainer:
        staying = {"trainer context": trainer["trainer context"]}
    cache: Parts = {
        "activation": engine.activation_gib,
        "graphs": engine.graphs_gib,
        "kv": max(0.0, engine.kv_gib or 0.0),
    }
    return [
        Moment(moment="wake-up", parts_gib={**trainer, **context, **weights, "bucket": bucket_gib}),
        Moment(moment="generate", parts_gib={**staying, **context, **weights, **cache}),
    ]
