"""Divergences over the likeliest tokens against sums over the whole vocabulary, in float64, values and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.data.batch import ADVANTAGES, ENGINE_LOG_PROBS, TEACHER_TOP_LOG_PROBS
from trainers.data.prompts import Prompt
from trainers.data.tensors import RowTensors
from trainers.divergences import divergence, with_rest
from trainers.losses import token_log_probs
from trainers.objectives import opd_objective
from trainers.opd import is_on_policy, reference_sample
from trainers.roles.forward import Scores

pytestmark = pytest.mark.trainers

VOCABULARY = 11
OPD_TINY = ROOT / "layouts/local/opd-tiny.yaml"


def pair(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of student and teacher, [2, 3, V]."""
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(2, 3, VOCABULARY, generator=generator, dtype=torch.float64) for _ in range(2))
    return student, 2.0 * teacher


def likeliest(teacher: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    found = teacher.log_softmax(-1).topk(count, dim=-1)
    return found.indices, found.values


def whole(student: torch.Tensor, teacher: torch.Tensor, kind: str, beta: float) -> torch.Tensor:
    """The divergence over the whole vocabulary, written out."""
    q, p = student.softmax(-1), teacher.softmax(-1)
    if kind == "reverse_kl":
        return (q * (q / p).log()).sum(-1)
    if kind == "forward_kl":
        return (p * (p / q).log()).sum(-1)
    m = beta * p + (1 - beta) * q
    return beta * (p * (p / m).log()).sum(-1) + (1 - beta) * (q * (q / m).log()).sum(-1)


@pytest.mark.parametrize(("kind", "beta"), [("reverse_kl", 0.5), ("forward_kl", 0.5), ("jsd", 0.5), ("jsd", 0.1)])
def test_with_all_but_one_token_it_is_the_divergence_and_with_fewer_no_more(kind: str, beta: float) -> None:
    student, teacher = pair(1)
    exact, last = whole(student, teacher, kind, beta), torch.zeros(2, 3).double()
    for count in (1, 3, 6, VOCABULARY - 1):
        ids, expected = likeliest(teacher, count)
        found = divergence(student.log_softmax(-1).gather(-1, ids), expected, kind, beta)  # type: ignore[arg-type]
        assert bool((found <= exact + 1e-12).all())
        assert bool((found >= last - 1e-12).all())  # a finer partition tells no less
        last = found
    torch.testing.assert_close(last, exact, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", ["reverse_kl", "forward_kl", "jsd"])
def test_it_is_zero_only_where_student_and_teacher_agree(kind: str) -> None:
    student, teacher = pair(2)
    ids, expected = likeliest(teacher, 4)
    same = divergence(expected, expected, kind)  # type: ignore[arg-type]
    torch.testing.assert_close(same, torch.zeros_like(same), atol=1e-12, rtol=0)
    apart = divergence(student.log_softmax(-1).gather(-1, ids), expected, kind)  # type: ignore[arg-type]
    assert bool((apart > 0.01).all())


@pytest.mark.parametrize("kind", ["reverse_kl", "forward_kl", "jsd"])
def test_gradient_through_candidates_by_finite_differences(kind: str) -> None:
    student, teacher = pair(3)
    ids, expected = likeliest(teacher, 4)

    def loss(logits: torch.Tensor) -> torch.Tensor:
        scored, _ = token_log_probs(logits, ids, 1.0, chunk_elements=2 * VOCABULARY)
        return divergence(scored, expected, kind).sum()  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(loss, (student.requires_grad_(),))


def test_the_rest_is_what_is_left_and_never_minus_infinity() -> None:
    found = with_rest(torch.tensor([[0.5, 0.3], [1.0, 0.0]], dtype=torch.float64).log())
    assert float(found[0, 2].exp()) == pytest.approx(0.2)
    assert bool(torch.isfinite(found[1, 2]))


def test_the_sampled_token_gradient_is_that_of_the_reverse_kl() -> None:
    """E[-(log p_T - log p_S) grad log p_S] is the gradient of KL(student || teacher): summed over the vocabulary."""
    student, teacher = pair(4)
    student.requires_grad_()
    q, p = student.log_softmax(-1), teacher.log_softmax(-1)
    [wanted] = torch.autograd.grad((q.exp() * (q - p)).sum(), student)
    q = student.log_softmax(-1)
    advantages = (p - q).detach()
    [found] = torch.autograd.grad(-(q.detach().exp() * advantages * q).sum(), student)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


def rows_of(logits: torch.Tensor, teacher: torch.Tensor, columns: dict[str, torch.Tensor]) -> tuple[Scores, RowTensors]:
    """What the learner hands to the objective: two rows of three response tokens, the last of them padding."""
    tokens = torch.tensor([[1, 4, 2], [7, 3, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    ids, expected = likeliest(teacher, VOCABULARY - 1)
    both = torch.cat([tokens.unsqueeze(-1), ids], -1)
    found, entropies = token_log_probs(logits, both, 1.0)
    given = {TEACHER_TOP_LOG_PROBS: expected, **columns}
    rows = RowTensors(tokens, mask, mask, given)
    return Scores(found[..., 0], entropies, found[..., 1:]), rows


@pytest.mark.parametrize(("kind", "beta"), [("reverse_kl", 0.5), ("forward_kl", 0.5), ("jsd", 0.3)])
def test_off_policy_the_loss_is_the_divergence_at_the_given_tokens_and_nothing_else(kind: str, beta: float) -> None:
    """GKD on the dataset's answers: the mean over their tokens, with its gradient by finite differences."""
    student, teacher = pair(5)
    words = ["opd.estimator=top_k", f"opd.divergence={kind}", f"opd.jsd_beta={beta}", "opd.kl_coefficient=0.7"]
    loss = opd_objective(load_layout(OPD_TINY, words).layout)

    def value(logits: torch.Tensor) -> torch.Tensor:
        return loss(*rows_of(logits, teacher, {ADVANTAGES: torch.zeros(2, 3).double()}), 5.0).loss

    exact = whole(student, teacher, kind, beta)[torch.tensor([[True, True, True], [True, True, False]])].mean()
    torch.testing.assert_close(value(student), 0.7 * exact, atol=1e-10, rtol=0)
    assert torch.autograd.gradcheck(value, (student.requires_grad_(),))


def test_on_policy_the_same_loss_has_the_rewards_gradient_besides() -> None:
    student, teacher = pair(6)
    loss = opd_objective(load_layout(OPD_TINY, ["opd.estimator=top_k"]).layout)
    scores, rows = rows_of(student.requires_grad_(), teacher, {ADVANTAGES: torch.ones(2, 3).double()})
    off = loss(scores, rows, 5.0).loss
    on_rows = replace(rows, columns={**rows.columns, ENGINE_LOG_PROBS: scores.log_probs.detach()})
    on = loss(scores, on_rows, 5.0).loss
    gradients = [torch.autograd.grad(each, student, retain_graph=True)[0] for each in (on, off)]
    likelihood = -(scores.log_probs * rows.response_mask).sum() / 5.0
    [wanted] = torch.autograd.grad(likelihood, student)
    torch.testing.assert_close(gradients[0] - gradients[1], wanted, atol=1e-12, rtol=0)


def test_steps_are_on_policy_by_a_coin_of_their_own() -> None:
    tossed = [is_on_policy(0.7, 3, step) for step in range(4000)]
    assert sum(tossed) / 4000 == pytest.approx(0.7, abs=0.03)
    assert tossed[:50] == [is_on_policy(0.7, 3, step) for step in range(50)]  # also after a resume
    assert tossed[:50] != [is_on_policy(0.7, 4, step) for step in range(50)]
    assert not any(is_on_policy(0.0, 3, step) for step in range(50))


class OneTokenADigit:
    """A tokenizer."""

    stop_token_id = 10

    def encode(self, text: str) -> list[int]:
        return [int(character) for character in text]


def test_the_answers_of_the_dataset_end_as_the_student_has_to() -> None:
    codec: Any = OneTokenADigit()
    found = reference_sample(Prompt((5, 6), "123"), codec, 8)
    assert (found.prompt_ids, found.response_ids) == ((5, 6), (1, 2, 3, 10))
    assert ENGINE_LOG_PROBS not in found.columns
    assert reference_sample(Prompt((5, 6), "123"), codec, 2).response_ids == (1, 2)
    with pytest.raises(ValueError, match=r"name their key as data\.answer_key"):
        reference_sample(Prompt((5, 6), ""), codec, 8)
