"""What experts cost a learner beyond their matrices: tokens that travel to them, and what waits for those.

A token's experts are known only when its layer runs. Where ranks divide them, tokens are sent to their ranks and back
in every pass of every micro-batch, and all ranks wait for the one whose experts were asked for most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.hardware.parameters import count_parameters
from rltui.plan.cards import ITEM_BYTES, network_bytes_per_s, nvlink_gpus

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.request import Request
    from rltui.plan.setup import Training

BUSIEST = 1.75
"""Tokens of the rank that gets most of them, by the mean. Read off pairs of published runs that differ in nothing but
forced balance: Qwen3-235B-A22B at four lengths on 256 H100 (1.74 to 1.77) and 30B-A3B on 16 (1.97)."""

DISPATCH_S = {"plain": 2.5e-3, "fused": 0.5e-3}
"""Of each layer with experts, pass and micro-batch, however few tokens there are. Plain (NCCL's all-to-all), the host
learns how many tokens each rank gets before it can launch what follows; fused (DeepEP, HybridEP), the card goes on.
Chosen on published runs at one and four rows in a micro-batch, most of them of Megatron on H100, H800 and B300."""

LOOP_S = 0.1e-3
"""Of each expert in a pass of a layer, where they are computed one after the other (transformers before its fifth
version): a dozen small kernels. Chosen on verl's FSDP learner and ms-swift's at ZeRO-2."""


def waiting_flops(model: Architecture, learner: Training) -> float:
    """Forward FLOPs of a token that its rank waits for, in the mean: what the busiest rank's experts compute more."""
    experts = model.experts
    if experts is None or learner.expert_parallel == 1 or learner.routed_evenly:
        return 0.0
    # 2 FLOPs a parameter (a product and a sum), of the top_k experts that a token visits
    return (BUSIEST - 1) * 2.0 * count_parameters(model).routed * experts.top_k / experts.count


def dispatch_s(request: Request, model: Architecture, learner: Training, tokens: float) -> float:
    """Seconds in which ``tokens`` of each rank's own go over the network to experts of other nodes and back, in a pass.

    NVLink's part hides behind the products. A fused dispatcher sends a node one copy of a token, however many of its
    experts are chosen; a plain one sends it to each of them.
    """
    experts, nodes = model.experts, -(-learner.expert_parallel // nvlink_gpus(request))
    if experts is None or nodes == 1:
        return 0.0
    copies = experts.top_k * (nodes - 1) / nodes
    if learner.dispatch == "fused":
        # other nodes on which at least one of the token's experts is, were experts drawn evenly
        copies = (nodes - 1) * (1 - (1 - 1 / nodes) ** experts.top_k)
    # twice: to the experts, and back
    sent = 2 * ITEM_BYTES * copies * (experts.latent or model.hidden) * experts.layers * tokens
    return sent / network_bytes_per_s(request)


def launch_s(model: Architecture, learner: Training) -> float:
    """Seconds of one pass of a micro-batch in which a rank's layers with experts do nothing but begin."""
    experts = model.experts
    if experts is None:
        return 0.0
    seconds = DISPATCH_S[learner.dispatch] if learner.expert_parallel > 1 else 0.0
    seconds += LOOP_S * experts.count / learner.expert_parallel if learner.loops_experts else 0.0
    return seconds * experts.layers / learner.pipeline_parallel
