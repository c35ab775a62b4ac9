"""Each algorithm's objective as the learner calls it, from logits to loss: finite differences, and plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, pad
from trainers.data.tensors import row_tensors
from trainers.losses import token_log_probs
from trainers.objectives import objective
from trainers.roles.forward import Scores

pytestmark = pytest.mark.trainers

LENGTHS, VOCABULARY, LIKELIEST, DENOMINATOR = [4, 1, 3], 6, 3, 8.0

CASES = {
    "grpo": [
        [f"ratio={ratio}", f"aggregation={aggregation}", f"kl_coefficient={beta}", f"kl_estimator={kl}", *dual]
        for ratio, dual in (("token", ["dual_clip=1.5"]), ("sequence", []))
        for aggregation, beta, kl in (
            ("token", 0.3, "k1"),
            ("sequence", 0.3, "k2"),
            ("dr_grpo", 0.3, "k3"),
            ("token", 0.0, "k3"),
        )
    ]
    + [[f"aggregation={name}", "entropy_coefficient=0.3"] for name in ("token", "sequence", "dr_grpo")],
    "ppo": [
        ["kl=none"],
        ["kl=loss", "kl_coefficient=0.2", "entropy_coefficient=0.3"],
        *([f"kl=loss,kl_coefficient=0.3,kl_estimator={kl}"] for kl in ("k1", "k2", "k3")),
    ],
    "opd": [
        ["estimator=sampled_token"],
        ["estimator=sampled_token", "kl_coefficient=0.4"],
        *(["estimator=top_k", f"divergence={kind}"] for kind in ("reverse_kl", "forward_kl")),
        *(["estimator=top_k", "divergence=jsd", f"jsd_beta={beta}"] for beta in (0.1, 0.5, 0.9)),
    ],
}
ALL = [(algorithm, tuple(",".join(words).split(","))) for algorithm, cases in CASES.items() for words in cases]


def batch(seed: int) -> tuple[torch.Tensor, Any]:
    """Logits [B, R, V] of a policy that has moved on, and rows with all columns that any objective reads."""
    source = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    ids = torch.randint(VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=source)
    samples = [Sample((1,), tuple(row[:length])) for row, length in zip(ids.tolist(), LENGTHS, strict=True)]
    rows = row_tensors(pad(samples), torch.device("cpu"))
    logits = noise(*ids.shape, VOCABULARY)
    log_probs = logits.log_softmax(-1).gather(-1, rows.token_ids[:, -ids.shape[1] :].unsqueeze(-1)).squeeze(-1)
    likeliest = (1.5 * noise(*ids.shape, VOCABULARY)).log_softmax(-1).topk(LIKELIEST, dim=-1)
    columns = {
        "old_log_probs": log_probs + 0.3 * noise(*ids.shape),
        "engine_log_probs": log_probs + 0.4 * noise(*ids.shape),
        "reference_log_probs": log_probs + 0.5 * noise(*ids.shape),
        "teacher_log_probs": log_probs + 0.5 * noise(*ids.shape),
        "advantages": noise(*ids.shape),
        "teacher_top_ids": likeliest.indices,
        "teacher_top_log_probs": likeliest.values,
    }
    return logits, replace(rows, columns=columns)


def loss_by(algorithm: str, words: tuple[str, ...], rows: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """The loss of the rows as a function of logits, by the way that the learner takes."""
    words = tuple(f"{algorithm}.{word}" for word in words)
    minimised = objective(load_layout(ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml", words).layout)
    ids = rows.token_ids[:, -max(LENGTHS) :].unsqueeze(-1)
    scored = torch.cat([ids, rows.columns["teacher_top_ids"]], dim=-1)

    def loss(logits: torch.Tensor) -> torch.Tensor:
        log_probs, entropies = token_log_probs(logits, scored, entropy_gradient=True)
        return minimised(Scores(log_probs[..., 0], entropies, log_probs[..., 1:]), rows, DENOMINATOR).loss

    return loss


@pytest.mark.parametrize(("algorithm", "words"), ALL, ids=lambda value: value if isinstance(value, str) else None)
def test_gradient_by_the_logits_is_that_of_finite_differences(algorithm: str, words: tuple[str, ...]) -> None:
    logits, rows = batch(len(words))
    logits.requires_grad_()
    assert torch.autograd.gradcheck(loss_by(algorithm, words, rows), (logits,), eps=1e-7, atol=1e-6)


def tokens(logits: torch.Tensor, rows: Any) -> list[dict[str, Any]]:
    """Everything that is known of each response token, as plain numbers."""
    policy = logits.log_softmax(-1)
    found = []
    for row, length in enumerate(LENGTHS):
        for t in range(length):
            known = {name: values[row, t].tolist() for name, values in rows.columns.items()}
            token = int(rows.token_ids[row, rows.token_ids.shape[1] - logits.shape[1] + t])
            found.append(known | {"policy": policy[row, t].tolist(), "log_prob": float(policy[row, t, token])})
    return found


def gain(token: dict[str, Any], worth: float) -> float:
    """The clipped surrogate of one token with its truncated weight."""
    ratio = math.exp(token["log_prob"] - token["old_log_probs"])
    weight = min(math.exp(token["old_log_probs"] - token["engine_log_probs"]), 2.0)
    return weight * min(ratio * worth, min(max(ratio, 0.8), 1.2) * worth)


def apart(token: dict[str, Any], kind: str, beta: float) -> float:
    """The divergence of student and teacher over the teacher's likeliest tokens and all others as one."""
    q = [math.exp(token["policy"][i]) for i in token["teacher_top_ids"]]
    p = [math.exp(value) for value in token["teacher_top_log_probs"]]
    q, p = [*q, 1 - sum(q)], [*p, 1 - sum(p)]

    def kl(a: list[float], b: list[float]) -> float:
        return sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))

    if kind == "jsd":
        mixture = [beta * x + (1 - beta) * y for x, y in zip(p, q, strict=True)]
        return beta * kl(p, mixture) + (1 - beta) * kl(q, mixture)
    return kl(q, p) if kind == "reverse_kl" else kl(p, q)


@pytest.mark.parametrize("kind", ["none", "k1", "k2", "k3"])
def test_ppo_minimises_the_clipped_surrogate_and_the_kl(kind: str) -> None:
    logits, rows = batch(20)
    words = ("kl=none",) if kind == "none" else ("kl=loss", "kl_coefficient=0.3", f"kl_estimator={kind}")
    expected = 0.0
    for token in tokens(logits, rows):
        d = token["log_prob"] - token["reference_log_probs"]
        penalty = {"none": 0.0, "k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[kind]
        expected += 0.3 * penalty - gain(token, token["advantages"])
    assert float(loss_by("ppo", words, rows)(logits)) == pytest.approx(expected / DENOMINATOR, abs=1e-13)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_kl_that_is_in_the_rewards_is_not_in_the_loss_too(algorithm: str) -> None:
    logits, rows = batch(23)
    words = (("kl=reward", "kl_coefficient=0.3"), ("kl=reward", "kl_coefficient=0.0"))
    with_kl, without = (loss_by(algorithm, one, rows)(logits) for one in words)
    assert with_kl == without


def entropies_at(temperature: float, logits: torch.Tensor) -> torch.Tensor:
    """The entropy [B, R] of each position's distribution, as PyTorch computes it."""
    return torch.distributions.Categorical(logits=logits / temperature).entropy()


@pytest.mark.parametrize(("algorithm", "aggregation"), [("ppo", ""), ("grpo", "token"), ("grpo", "sequence")])
def test_the_entropy_bonus_is_the_coefficient_times_the_mean_entropy(algorithm: str, aggregation: str) -> None:
    """By the same mean as the surrogate, over the policy's own tokens, and in value and gradient."""
    logits, rows = batch(22)
    logits.requires_grad_()
    words = (f"aggregation={aggregation}",) if aggregation else ()
    mask = rows.response_mask
    share = 1 / mask.double().sum(1, keepdim=True) if aggregation == "sequence" else torch.ones(len(LENGTHS), 1)
    bonus = 0.3 * (entropies_at(1.0, logits) * mask * share).sum() / DENOMINATOR
    losses = [loss_by(algorithm, (*words, f"entropy_coefficient={c}"), rows)(logits) for c in (0.0, 0.3)]
    torch.testing.assert_close(losses[1], losses[0] - bonus, atol=1e-13, rtol=0)
    gradients = [torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (*losses, bonus)]
    torch.testing.assert_close(gradients[1], gradients[0] - gradients[2], atol=1e-13, rtol=0)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_with_an_entropy_bonus_a_policy_learns_the_softmax_of_rewards_over_the_coefficient(algorithm: str) -> None:
    """What maximises E[R] + c H: each token once, weighted by its chance, is the exact gradient of that."""
    rewards, c = torch.tensor([0.0, 0.3, 1.0, 0.8, 0.1, 0.6], dtype=torch.float64), 0.4
    rows = row_tensors(pad([Sample((1,), (token,)) for token in range(VOCABULARY)]), torch.device("cpu"))
    uniform = torch.full((VOCABULARY, 1), -math.log(VOCABULARY), dtype=torch.float64)
    rows = replace(rows, columns={"engine_log_probs": uniform, "advantages": rewards.unsqueeze(1)})
    words = [f"{algorithm}.entropy_coefficient={c}", f"{algorithm}.importance_cap=100"]
    minimised = objective(load_layout(ROOT / "layouts" / "local" / f"{algorithm}-tiny.yaml", words).layout)
    table = torch.zeros(VOCABULARY, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([table], lr=5.0)
    for _ in range(200):
        optimizer.zero_grad()
        logits = table.expand(VOCABULARY, 1, VOCABULARY)
        log_probs, entropies = token_log_probs(logits, rows.token_ids[:, -1:], entropy_gradient=True)
        minimised(Scores(log_probs, entropies), rows, float(VOCABULARY)).loss.backward()
        optimizer.step()
    torch.testing.assert_close(table.detach().softmax(-1), (rewards / c).softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("kind", "beta", "weight"),
    [
        ("sampled_token", 0.5, 0.7),
        ("reverse_kl", 0.5, 1.0),
        ("forward_kl", 0.5, 0.7),
        ("jsd", 0.1, 1.0),
        ("jsd", 0.8, 0.7),
    ],
)
def test_distillation_minimises_the_divergence_beside_the_rewards_surrogate(
    kind: str, beta: float, weight: float
) -> None:
    """By the sampled token, the log-ratio of teacher to policy is part of the token's advantage."""
    logits, rows = batch(21)
    words = [f"estimator={'sampled_token' if kind == 'sampled_token' else 'top_k'}", f"kl_coefficient={weight}"]
    words += [f"divergence={kind}", f"jsd_beta={beta}"] if kind != "sampled_token" else []
    expected = 0.0
    for token in tokens(logits, rows):
        if kind == "sampled_token":
            expected -= gain(
                token, token["advantages"] + weight * (token["teacher_log_probs"] - token["old_log_probs"])
            )
        else:
            expected += weight * apart(token, kind, beta) - gain(token, token["advantages"])
    assert float(loss_by("opd", tuple(words), rows)(logits)) == pytest.approx(expected / DENOMINATOR, abs=1e-12)
