"""How far our losses are from TRL's on the same numbers: ``python tests/bench/bench_peer_losses.py``.

TRL is no dependency of rltui: ``pip install trl==1.16.0`` into an environment that has the trainers' libraries. Its
``GRPOTrainer._compute_loss`` runs here on a stand-in for the trainer that returns given log-probabilities, and its
divergences of distillation on given logits, in float64; values and gradients are compared, and anything beyond
``LIMIT`` is an exit code of 1.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from trainers.divergences import divergence
from trainers.losses import aggregate, kl_estimate, policy_loss
from trainers.ratios import Truncation, importance_weight
from trainers.variants import VARIANTS

LIMIT = 1e-12
SAPO = {"sapo_temperature_positive": 1.0, "sapo_temperature_negative": 1.05}
SAPO_OF_TRL = {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}
BATCHES, SAMPLES, TOKENS, VOCABULARY, LOW, HIGH = 20, 6, 9, 12, 0.2, 0.28


class Clip(NamedTuple):
    """A surrogate with its bounds; SAPO has none."""

    low: float
    high: float
    ratio: str = "token"
    dual: float = 0.0

    def bound(self) -> Any:
        """The surrogate with its settings."""
        bounds = {"clip_low": self.low, "clip_high": self.high}
        dual = {"dual_clip": self.dual} if self.dual else {}
        return partial(VARIANTS["ratio"][self.ratio], **(SAPO if self.ratio == "sapo" else bounds | dual))


CASES: dict[str, tuple[Clip, str, str, float, Truncation]] = {
    # name: our clip, our aggregation, TRL's loss_type, weight of the KL, weight between trainer and engine
    "DAPO, mean over tokens": (Clip(LOW, HIGH), "token", "dapo", 0.0, Truncation(2.0, "off")),
    "GRPO, mean over samples": (Clip(LOW, HIGH), "sequence", "grpo", 0.0, Truncation(2.0, "off")),
    "Dr. GRPO": (Clip(LOW, HIGH), "dr_grpo", "dr_grpo", 0.0, Truncation(2.0, "off")),
    "dual clip": (Clip(LOW, HIGH, dual=1.4), "token", "bnpo", 0.0, Truncation(2.0, "off")),
    "GSPO": (Clip(0.03, 0.04, "sequence"), "sequence", "grpo", 0.0, Truncation(2.0, "off")),
    "CISPO": (Clip(1.0, HIGH, "cispo"), "token", "cispo", 0.0, Truncation(2.0, "off")),
    "SAPO": (Clip(LOW, HIGH, "sapo"), "sequence", "sapo", 0.0, Truncation(2.0, "off")),
    "KL in the loss": (Clip(LOW, HIGH), "sequence", "grpo", 0.1, Truncation(2.0, "off")),
    "importance weights, as given": (Clip(LOW, HIGH), "token", "dapo", 0.0, Truncation(1.3)),
}

DIVERGENCES: dict[str, tuple[Any, float]] = {
    # name: our kind, and TRL's beta, which for the JSD is ours too
    "forward KL": ("forward_kl", 0.0),
    "reverse KL": ("reverse_kl", 1.0),
    "JSD, mostly the student": ("jsd", 0.1),
    "JSD": ("jsd", 0.5),
    "JSD, mostly the teacher": ("jsd", 0.9),
}


def numbers(seed: int) -> dict[str, torch.Tensor]:
    """Ragged samples, off-policy, with one advantage a sample."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    shape = (SAMPLES, TOKENS)
    old = -2 * torch.rand(shape) - 0.1
    lengths = torch.randint(1, TOKENS + 1, (SAMPLES, 1))
    return {
        "old": old,
        "new": (old + 0.3 * torch.randn(shape)).requires_grad_(),
        "engine": old + 0.3 * torch.randn(shape),
        "reference": old + 0.3 * torch.randn(shape),
        "worth": torch.randn(SAMPLES),
        "mask": torch.arange(TOKENS) < lengths,
    }


def ours(n: dict[str, torch.Tensor], case: tuple[Clip, Any, str, float, Truncation]) -> torch.Tensor:
    """Our loss."""
    clip, aggregation, _, beta, truncation = case
    worth = n["worth"].unsqueeze(1).expand(SAMPLES, TOKENS)
    loss = policy_loss(
        n["new"],
        n["old"],
        n["engine"],
        worth,
        n["mask"],
        surrogate=clip.bound(),
        importance=truncation,
        aggregation=VARIANTS["aggregation"][aggregation],
    ).loss
    return loss + beta * aggregate(
        kl_estimate(n["new"], n["reference"], "k3"), n["mask"], VARIANTS["aggregation"][aggregation]
    )


def theirs(trainer: Any, n: dict[str, torch.Tensor], case: tuple[Clip, str, str, float, Truncation]) -> torch.Tensor:
    """TRL's loss; it is given our importance weights, because it computes its own while it samples."""
    clip, _, loss_type, beta, truncation = case
    args = SimpleNamespace(
        delta=clip.dual or None,
        use_bias_correction_kl=False,
        steps_per_generation=1,
        top_entropy_quantile=1.0,
        **SAPO_OF_TRL,
    )
    alone = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x, gather_for_metrics=lambda x: x
    )
    stand_in = SimpleNamespace(
        args=args, accelerator=alone, beta=beta, loss_type=loss_type, model=SimpleNamespace(training=True),
        epsilon_low=clip.low, epsilon_high=1 + clip.high if clip.ratio == "cispo" else clip.high,
        importance_sampling_level="sequence" if clip.ratio == "sequence" else "token",
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, aux_loss_enabled=False, _entropy_bonus_enabled=False,
        use_vllm=truncation.mode != "off", vllm_importance_sampling_correction=True, entropy_coef=0.0,
        current_gradient_accumulation_steps=1, max_completion_length=TOKENS, _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (n["new"], torch.zeros(SAMPLES, TOKENS), None),
    )  # fmt: skip
    ids = torch.zeros(SAMPLES, TOKENS, dtype=torch.long)
    mask = n["mask"].double()
    inputs = {
        "prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1], "completion_ids": ids, "completion_mask": mask,
        "advantages": n["worth"], "old_per_token_logps": n["old"], "ref_per_token_logps": n["reference"],
        "num_items_in_batch": mask.sum(),
        "importance_sampling_ratio": importance_weight(n["old"], n["engine"], n["mask"], truncation)[0],
    }  # fmt: skip
    loss: torch.Tensor = trainer._compute_loss(stand_in, None, inputs)
    return loss


def divergences(peer: Any, kind: Any, beta: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ours and TRL's sum over all positions, and the student's logits; ours is told of all tokens but the last."""
    torch.manual_seed(seed)
    student = torch.randn(SAMPLES, TOKENS, VOCABULARY, dtype=torch.float64, requires_grad=True)
    teacher = 2 * torch.randn(SAMPLES, TOKENS, VOCABULARY, dtype=torch.float64)
    shown = [logits.log_softmax(-1)[..., :-1] for logits in (student, teacher)]
    own = divergence(shown[0], shown[1], kind, beta).sum()
    return own, peer.generalized_jsd_loss(student, teacher, beta=beta, reduction="sum"), student


def compare(name: str, pairs: Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> bool:
    """Print the largest differences of (ours, TRL's, of what the gradient is taken); whether they are in the limit."""
    apart = {"loss": 0.0, "gradient": 0.0}
    for own, peer, leaf in pairs:
        [own_grad], [peer_grad] = torch.autograd.grad(own, leaf), torch.autograd.grad(peer, leaf)
        scale = max(1.0, abs(float(peer.detach())))
        apart["loss"] = max(apart["loss"], abs(float(own.detach() - peer.detach())) / scale)
        apart["gradient"] = max(apart["gradient"], float((own_grad - peer_grad).abs().max()))
    print(f"  {name:30s} loss {apart['loss']:.1e}  gradient {apart['gradient']:.1e}")
    return max(apart.values()) <= LIMIT


def batches(trainer: Any, case: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Ours, TRL's, and the log-probabilities, of each random batch."""
    for seed in range(BATCHES):
        n = numbers(seed)
        yield ours(n, case), theirs(trainer, n, case), n["new"]


def main() -> int:
    """Print one line a case; return 1 where one is beyond the limit, 2 where there is no TRL."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import trl
        from trl.experimental.gkd import GKDTrainer
        from trl.trainer.grpo_trainer import GRPOTrainer
    except ImportError as error:
        print(f"{error}: install TRL beside the trainers' libraries, pip install trl==1.16.0", file=sys.stderr)
        return 2
    print(f"TRL {trl.__version__}, {BATCHES} random batches of {SAMPLES} samples: largest difference")
    fine = [compare(name, batches(GRPOTrainer, case)) for name, case in CASES.items()]
    for name, (kind, beta) in DIVERGENCES.items():
        fine.append(compare(name, (divergences(GKDTrainer, kind, beta, seed) for seed in range(BATCHES))))
    return int(not all(fine))


if __name__ == "__main__":
    sys.exit(main())
