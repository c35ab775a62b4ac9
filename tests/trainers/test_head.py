"""Log-probabilities straight from hidden states: the plain computation in value and gradient, and never all logits."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.data.tensors import RowTensors
from trainers.divergences import divergence
from trainers.losses import token_log_probs
from trainers.roles import forward
from trainers.roles.forward import measure_log_probs, response_scores, response_top_tokens, scorer
from trainers.roles.head import head_log_probs, head_top_tokens

pytestmark = pytest.mark.trainers

CHUNKS = [1, 11, 40, 100, 10**6]
"""One logit at a time, one position, several with a remainder, most of them, everything."""

VOCABULARY = 3000


def problem(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states [3, 5, 4], a head's weight [11, 4] and tokens [3, 5, 2], one of them twice in one place."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    token_ids = torch.randint(11, (3, 5, 2), generator=generator)
    token_ids[0, 0] = 7
    return hidden, weight, token_ids


@pytest.mark.parametrize("chunk_elements", CHUNKS)
def test_it_is_what_the_logits_say(chunk_elements: int) -> None:
    hidden, weight, token_ids = problem()
    found = head_log_probs(hidden, weight, token_ids, 0.7, chunk_elements)
    distribution = torch.distributions.Categorical(logits=hidden @ weight.t() / 0.7)
    for k in range(2):
        torch.testing.assert_close(found[..., k], distribution.log_prob(token_ids[..., k]), atol=1e-13, rtol=0)
    torch.testing.assert_close(found[..., 2], distribution.entropy(), atol=1e-13, rtol=0)


@pytest.mark.parametrize("chunk_elements", CHUNKS)
def test_its_gradients_are_those_of_finite_differences(chunk_elements: int) -> None:
    hidden, weight, token_ids = problem()

    def found(hidden: torch.Tensor, weight: torch.Tensor, *, entropy: bool) -> torch.Tensor:
        scores = head_log_probs(hidden, weight, token_ids, 0.7, chunk_elements, entropy_gradient=entropy)
        return scores if entropy else scores[..., :-1]

    for entropy in (False, True):
        assert torch.autograd.gradcheck(functools.partial(found, entropy=entropy), (hidden, weight))
        assert torch.autograd.gradcheck(lambda x, on=entropy: found(x, weight.detach(), entropy=on), (hidden,))


@pytest.mark.parametrize("chunk_elements", CHUNKS)
def test_likeliest_tokens_are_those_of_the_whole_distribution(chunk_elements: int) -> None:
    hidden, weight, token_ids = problem()
    own, ids, values = head_top_tokens(hidden, weight, token_ids[..., 0], 4, 0.7, chunk_elements)
    whole = (hidden @ weight.t() / 0.7).log_softmax(-1)
    torch.testing.assert_close(own, whole.gather(-1, token_ids[..., :1]).squeeze(-1), atol=1e-13, rtol=0)
    torch.testing.assert_close(values, whole.topk(4, dim=-1).values, atol=1e-13, rtol=0)
    assert torch.equal(ids, whole.topk(4, dim=-1).indices)


def qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, tie_word_embeddings=True, **sizes, **heads))


def gemma2() -> Any:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return Gemma2ForCausalLM(Gemma2Config(vocab_size=VOCABULARY, final_logit_softcapping=0.5, **sizes, **heads))


def rows() -> RowTensors:
    """Three rows of up to 6 prompt and 40 response tokens."""
    generator = torch.Generator().manual_seed(3)
    token_ids = torch.randint(VOCABULARY, (3, 46), generator=generator)
    attention, response = torch.ones(3, 46, dtype=torch.bool), torch.ones(3, 40, dtype=torch.bool)
    attention[0, :4] = attention[1, 30:] = response[1, 24:] = False
    return RowTensors(token_ids, attention, response, {})


def trained(model: Any, *, chunked: bool, entropy: bool = False) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss over the rows' tokens and two candidates each, and its gradients; with ``entropy`` less the entropy."""
    model.zero_grad()
    batch = rows()
    candidates = torch.stack([batch.token_ids[:, -40:].flip(1), batch.token_ids[:, :40]], dim=-1)
    scores = response_scores(model, batch, 0.8, candidates, chunked=chunked, entropy_gradient=entropy)
    assert scores.candidates is not None
    assert scores.entropies.requires_grad is entropy
    mask = batch.response_mask
    loss = scores.log_probs[mask].mean() + scores.candidates[mask].square().mean()
    loss = loss - scores.entropies[mask].mean() if entropy else loss
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return torch.cat([loss.detach().view(1), scores.entropies.detach()[mask]]), gradients


@pytest.mark.parametrize("make", [qwen3, gemma2])
def test_a_model_learns_the_same_with_and_without_chunks(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a tied head, and with logits that are squeezed after the head, where all of them must be held."""
    monkeypatch.setattr(forward, "head_log_probs", functools.partial(head_log_probs, chunk_elements=20_000))
    torch.manual_seed(0)
    model = make().double()
    with caplog.at_level(logging.WARNING, "trainers"):
        for entropy in (False, True):
            plain, plain_gradients = trained(model, chunked=False, entropy=entropy)
            chunked, gradients = trained(model, chunked=True, entropy=entropy)
            torch.testing.assert_close(chunked, plain, atol=1e-10, rtol=0)
            for name, gradient in plain_gradients.items():
                torch.testing.assert_close(gradients[name], gradient, atol=1e-10, rtol=0)
    assert len(caplog.records) == (1 if make is gemma2 else 0)
    assert "forward" not in model.get_output_embeddings().__dict__


@pytest.mark.parametrize("chunked", [True, False])
def test_a_model_has_no_token_for_what_only_a_larger_vocabulary_knows(chunked: bool) -> None:
    """Of one tokenizer, models of two sizes may have embeddings of other lengths, as Qwen2.5 has."""
    torch.manual_seed(0)
    model, batch = qwen3().double(), rows()
    known = batch.token_ids[:, -40:].flip(1).unsqueeze(-1)
    wanted = response_scores(model, batch, 0.8, known, chunked=chunked).candidates
    beyond = torch.full_like(known, VOCABULARY + 5)
    found = response_scores(model, batch, 0.8, torch.cat([known, beyond], dim=-1), chunked=chunked).candidates
    assert wanted is not None
    assert found is not None
    torch.testing.assert_close(found[..., :1], wanted)
    assert found[..., 1].eq(forward.NEVER).all()
    distance = divergence(found, torch.tensor([0.3, 0.01]).double().log().expand_as(found), "reverse_kl")
    distance.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("make", [qwen3, gemma2])
def test_a_teacher_finds_the_same_with_and_without_chunks(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    model, batch = make().double(), rows()
    own, ids, values = response_top_tokens(model, batch, 0.8, 5)
    with torch.no_grad():
        logits = model(**forward.response_inputs(batch)).logits
    expected, _ = token_log_probs(logits, forward.response_tokens(batch), 0.8)
    torch.testing.assert_close(own, expected, atol=1e-10, rtol=0)
    assert torch.equal(ids, logits.topk(5, dim=-1).indices)
    torch.testing.assert_close(values, token_log_probs(logits, ids, 0.8)[0], atol=1e-10, rtol=0)


class Largest(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize(("dtype", "entropy"), [(torch.float32, True), (torch.bfloat16, False)])
def test_the_logits_of_all_tokens_are_never_there(
    dtype: torch.dtype, entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in either pass is larger than the head's own weight, though the logits would be four times that."""
    monkeypatch.setattr(forward, "head_log_probs", functools.partial(head_log_probs, chunk_elements=20_000))
    torch.manual_seed(0)
    model = qwen3().to(dtype)
    with Largest() as watch:
        trained(model, chunked=True, entropy=entropy)
    assert watch.elements == VOCABULARY * 32 < 3 * 40 * VOCABULARY / 3
    with Largest() as watch:
        trained(model, chunked=False)
    assert watch.elements >= 3 * 40 * VOCABULARY  # the watch sees what it looks for


def test_measuring_keeps_the_padded_shape() -> None:
    from trainers.data.batch import Rows

    torch.manual_seed(0)
    model, batch = qwen3().eval(), rows()
    arrays = Rows(batch.token_ids.numpy(), batch.attention_mask.numpy(), batch.response_mask.numpy(), {}, np.arange(3))
    parts = measure_log_probs(scorer(model), arrays, 2, torch.device("cpu"))
    whole = measure_log_probs(scorer(model, chunked=False), arrays, 0, torch.device("cpu"))
    assert parts.shape == (3, 40)
    np.testing.assert_allclose(parts[batch.response_mask], whole[batch.response_mask], atol=1e-5)
