"""Routing replay: the learner sends tokens to the experts that they had when they were sampled, and learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from engine_support import LENGTHS, STOP, VOCABULARY, random_prompts, sampling
from trainer_support import LAYOUT
from vllm.outputs import CompletionOutput, RequestOutput

from rltui.layout.load import load_layout
from rltui.layout.schema import Rollout
from trainers.data import tiny_qwen3
from trainers.data.batch import Sample, split, without_routes
from trainers.data.stops import Stops
from trainers.data.tensors import row_tensors
from trainers.data.tiny_qwen3 import TinySettings
from trainers.metrics import TrainingError, check_routes, log_prob_gap
from trainers.objectives import objective
from trainers.roles import vllm_samples
from trainers.roles.completions import Completion, Request
from trainers.roles.engine import EngineActor
from trainers.roles.forward import measure_log_probs
from trainers.roles.learner import Learner
from trainers.roles.router_replay import Routers, _routers_of
from trainers.roles.sequence_group import SequenceGroup
from trainers.turns import Turns

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_support import Attempt

pytestmark = pytest.mark.trainers

CPU = torch.device("cpu")
EXPERTS, TOP_K, LAYERS = 8, 2, 3
CLOSE = 0.05
"""Times the routers' first weights: choices are close then, as after a training that balances experts."""
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 512,
    "num_experts_per_tok": TOP_K, "initializer_range": 0.2, "pad_token_id": 0, "eos_token_id": STOP,
}  # fmt: skip
EXPERT = {"moe_intermediate_size": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    # softmax, the largest, divided by their sum
    "qwen3": ("Qwen3Moe", {"num_experts": EXPERTS, "norm_topk_prob": True, **EXPERT}),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS}),
    # the largest, softmax
    "gpt-oss": ("GptOss", {"num_local_experts": EXPERTS}),
    # sigmoids, of which a bias that does not count chooses, in groups; the first layer has no experts
    "glm4": (
        "Glm4Moe",
        {"n_routed_experts": EXPERTS, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, **EXPERT},
    ),
    # no top k
    "phi": ("Phimoe", {"num_local_experts": EXPERTS}),
    "dense": ("Qwen3", {}),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Matrices this small are only slower on more, most of all where other tests compute too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mixture(family: str = "qwen3", dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    torch.manual_seed(0)
    name, own = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{**SHAPE, **own, **more})
    made = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype).eval()
    with torch.no_grad():
        for router in _routers_of(made).values():
            router.weight *= CLOSE
    if dtype is torch.float64:
        made.set_experts_implementation("eager")  # torch's grouped product has none in this precision
    return made


def routes_alone(model: Any, token_ids: Sequence[int]) -> Any:
    """What the routers of ``model`` choose for a row without its last token."""
    routers = Routers(model)
    with torch.no_grad():
        model(torch.tensor([token_ids[:-1]]), use_cache=False)
    return routers.taken()


@pytest.mark.parametrize("family", ["qwen3", "mixtral", "gpt-oss", "glm4"])
def test_a_model_that_moved_computes_with_the_routes_of_before_and_its_own_scores(family: str) -> None:
    model, ids = mixture(family, torch.float64), torch.tensor(random_prompts([12, 12]))
    routers = Routers(model)
    before = model(ids, use_cache=False).logits.detach()
    taken = torch.from_numpy(routers.taken()).long()
    assert taken.shape == (24, LAYERS, TOP_K)
    routers.replay(taken)
    torch.testing.assert_close(model(ids, use_cache=False).logits.detach(), before)
    _move_routers(model, 1.0)
    routers.replay(None)
    model(ids, use_cache=False)
    assert (np.sort(routers.taken(), -1) != np.sort(taken.numpy(), -1)).mean() > 0.1  # it would have chosen others
    routers.replay(taken)
    logits = model(ids, use_cache=False).logits
    np.testing.assert_array_equal(routers.taken(), taken.numpy())
    # the loss is smooth in the routers' weights while routes stay: a difference is the gradient's
    weight = next(iter(_routers_of(model).values())).weight
    wanted = torch.randn(logits.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (logits * wanted).sum().backward()
    steepest = weight.grad / weight.grad.norm()
    values = []
    with torch.no_grad():
        for step in (1e-3, -2e-3):
            weight += step * steepest
            values.append(float((model(ids, use_cache=False).logits * wanted).sum()))
    assert float(weight.grad.norm()) == pytest.approx((values[0] - values[1]) / 2e-3, rel=0.01)


def _move_routers(model: Any, scale: float) -> None:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for router in _routers_of(model).values():
            noise = torch.randn(router.weight.shape, generator=generator).to(router.weight.dtype)
            router.weight += scale * router.weight.std() * noise


def test_the_weights_of_given_experts_are_the_softmax_over_them() -> None:
    model = mixture(dtype=torch.float64)
    router = model.model.layers[1].mlp.gate
    routers = Routers(model)
    hidden = torch.randn(5, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    given = torch.tensor([[0, 5], [7, 1], [2, 3], [4, 6], [6, 4]])
    routers.replay(torch.stack([given] * LAYERS, dim=1))
    _, weights, experts = router(hidden)
    assert torch.equal(experts, given)
    chosen = (hidden @ router.weight.T).gather(1, given)
    torch.testing.assert_close(weights, chosen.softmax(dim=-1))


def test_what_has_no_routers_or_other_ones_is_refused() -> None:
    with pytest.raises(ValueError, match="Qwen3ForCausalLM has no routers"):
        Routers(mixture("dense"))
    model = mixture("phi")
    Routers(model)
    with pytest.raises(ValueError, match="PhimoeTopKRouter does not choose its experts by their scores"):
        model(torch.tensor([[5, 6, 7]]))
    model = mixture()
    routers = Routers(model)
    routers.replay(torch.zeros(2, LAYERS, TOP_K, dtype=torch.int64))
    with pytest.raises(ValueError, match="routes of 2 tokens, and the model reads 3"):
        model(torch.tensor([[5, 6, 7]]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixture")
    mixture().save_pretrained(path)
    return path


def engine(folder: Path, precision: str = "fp32") -> EngineActor:
    rollout = Rollout(engines=1, engine="hf", precision=precision, router_replay=True, max_concurrency=8)
    actor = EngineActor(rollout, str(folder), LENGTHS, 0)
    actor.load()
    return actor


PROMPTS = random_prompts([9, 4, 17, 6])


def test_an_engine_notes_the_experts_of_every_token_it_read(folder: Path) -> None:
    """Whatever company and padding a sample had: they are those of a pass over it alone."""
    found = engine(folder).generate(PROMPTS, sampling(samples_per_prompt=3))
    assert len({len(one.token_ids) for one in found}) > 1
    for one in found:
        ids = [*PROMPTS[one.prompt_index], *one.token_ids]
        assert one.routes is not None
        assert one.routes.dtype == np.uint8
        np.testing.assert_array_equal(np.sort(one.routes, -1), np.sort(routes_alone(mixture(), ids), -1))


def samples_of(found: Sequence[Completion]) -> list[Sample]:
    columns = {"advantages": 1.0, "staleness": 0.0}
    return [
        Sample(
            tuple(PROMPTS[one.prompt_index]), one.token_ids, {**columns, "engine_log_probs": one.log_probs},
            routes=one.routes,
        )
        for one in found
    ]  # fmt: skip


def learner_of(policy: Any, *words: str) -> Learner:
    layout = load_layout(LAYOUT, ["roles.rollout.router_replay=true", *words]).layout
    learner = Learner(layout, 0, "")
    learner._engine, learner._objective, learner._routers = policy, objective(layout), Routers(policy)
    return learner


def mismatches(learner: Learner, samples: list[Sample]) -> list[float]:
    """KL of engine and trainer a token, with the routes of the engine and with those that the trainer chooses."""
    found = []
    for rows in (split(samples, 1)[0], split(without_routes(samples), 1)[0]):
        values = measure_log_probs(learner._scores, rows, 0, CPU)[rows.response_mask]
        found.append(log_prob_gap(values, rows.columns["engine_log_probs"][rows.response_mask]).kl)
    return found


def test_trainer_and_engine_agree_better_with_the_routes_of_the_engine(folder: Path) -> None:
    """With the same weights they are one policy; in another precision and after the routers moved, nearer to it."""
    settings = sampling(samples_per_prompt=8)
    exact = samples_of(engine(folder).generate(PROMPTS, settings))
    assert max(mismatches(learner_of(mixture()), exact)) < 1e-9
    rounded = samples_of(engine(folder, "bf16").generate(PROMPTS, settings))
    moved = mixture()
    _move_routers(moved, 0.3)
    for policy, samples in ((mixture(), rounded), (moved, exact)):
        replayed, chosen = mismatches(learner_of(policy), samples)
        assert replayed < 0.2 * chosen


def loss_and_gradient(learner: Learner, samples: list[Sample], pack: int, micro_batch: int) -> tuple[float, Any]:
    learner._engine.zero_grad()
    total = 0.0
    for part in split(samples, 2, pack):
        for rows in part.micro_batches(micro_batch):
            tensors = row_tensors(rows, CPU)
            loss = learner._objective(learner._scores(tensors), tensors, 70.0).loss
            loss.backward()
            total += float(loss.detach())
    return total, torch.cat([p.grad.flatten() for p in learner._engine.parameters() if p.grad is not None])


def test_routes_follow_their_tokens_through_padding_packing_parts_and_recomputed_activations(folder: Path) -> None:
    samples = samples_of(engine(folder).generate(PROMPTS, sampling(samples_per_prompt=3)))
    policy = mixture(dtype=torch.float64)
    _move_routers(policy, 0.5)
    learner = learner_of(policy)
    whole, slope = loss_and_gradient(learner, samples, 0, 0)
    free, _ = loss_and_gradient(learner, without_routes(samples), 0, 0)
    assert abs(free - whole) > 1e-4
    for recomputed, pack, micro_batch in ((False, 64, 1), (False, 0, 1), (False, 64, 0), (True, 0, 2)):
        if recomputed:
            policy.train()
            policy.gradient_checkpointing_enable()
        loss, gradient = loss_and_gradient(learner, samples, pack, micro_batch)
        assert loss == pytest.approx(whole, abs=1e-6)
        torch.testing.assert_close(gradient, slope, atol=1e-6, rtol=0)


def test_ranks_that_share_a_row_have_the_routes_of_their_tokens() -> None:
    ids = torch.arange(3, 14).unsqueeze(0)
    inputs = {"input_ids": ids, "position_ids": ids, "logits_to_keep": torch.arange(4)}
    for size in (1, 2, 3, 4):
        for place in range(size):
            group = SequenceGroup(None, size, place)
            assert torch.equal(group.own(ids[0]), group.share(inputs)["input_ids"][0])


def completion(tokens: int, routes: int | None) -> Completion:
    made = None if routes is None else np.full((routes, LAYERS, TOP_K), tokens, np.uint8)
    return Completion(0, (5,) * tokens, (-1.0,) * tokens, "stop", 0, routes=made)


def test_a_sample_of_several_turns_keeps_the_routes_of_each() -> None:
    known, unknown = Turns((3,), 20), Turns((3,), 20)
    for expert, tokens in ((2, 5), (4, 12)):
        known.answer(completion(expert, tokens))
        unknown.answer(completion(expert, None))
    routes = known.whole().routes
    assert routes is not None
    assert routes[:, 0, 0].tolist() == [2] * 5 + [4] * 7
    assert unknown.whole().routes is None


def test_routes_that_did_not_come_end_the_run() -> None:
    prompt: Any = SimpleNamespace(token_ids=(3, 4, 5))
    check_routes([prompt], [[completion(2, 4)]])
    for routes, words in ((None, "0 tokens of a sample, not of 4"), (5, "5 tokens of a sample, not of 4")):
        with pytest.raises(TrainingError, match=words):
            check_routes([prompt], [[completion(2, 4), completion(2, routes)]])
    with pytest.raises(ValueError, match="1 of 2 samples came without routes"):
        split([Sample((3,), (4,), routes=np.zeros((1, 1, 1), np.uint8)), Sample((3,), (4,))], 1)


def answer(sample: vllm_samples.Sample, routes: Any = None) -> RequestOutput:
    """vLLM's of a step that sampled token 7, with its own classes; the last has routes."""
    output = CompletionOutput(0, "", [7], None, [{7: SimpleNamespace(logprob=-0.5)}], routed_experts=routes)  # type: ignore[list-item]
    output.weight_versions = None if routes is None else [SimpleNamespace(version="3")]
    return RequestOutput(sample.name, None, [3, 4, 5], None, [output], finished=routes is not None)


@pytest.mark.parametrize(("told", "kept", "expert"), [(np.uint8, np.uint8, 255), (np.uint16, np.int16, 300)])
def test_vllm_tells_the_routes_of_a_sample_at_its_end(told: Any, kept: Any, expert: int) -> None:
    request = Request(1, [3, 4, 5], sampling(samples_per_prompt=1, max_tokens=2))
    sample = vllm_samples.Sample(request, 0, {}, Stops((STOP,), (), ""))
    sample.take(answer(sample), 3)
    sample.take(answer(sample, np.full((4, LAYERS, TOP_K), expert, told)), 3)
    routes = sample.completion().routes
    assert routes is not None
    assert routes.dtype == kept
    assert routes.shape == (3 + 2 - 1, LAYERS, TOP_K)
    assert routes.max() == expert


@pytest.fixture(scope="module")
def untaught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The builtin model, with experts: it answers in the right form and knows nothing of sorting."""
    settings = TinySettings(digits=3, seed=1)
    vocabulary, path = tiny_qwen3.VOCABULARY, tmp_path_factory.mktemp("untaught")
    shape = {**tiny_qwen3.tiny_config(settings).to_dict(), "num_experts": EXPERTS, "num_experts_per_tok": TOP_K}
    del shape["model_type"], shape["architectures"]
    torch.manual_seed(0)
    model = transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**shape, moe_intermediate_size=64, norm_topk_prob=True)
    )
    tiny_qwen3._warm_up(model, settings, lambda *_: None)
    model.save_pretrained(path)
    tiny_qwen3.new_tokenizer(vocabulary, settings.max_positions).save_pretrained(path)
    return path


REPLAY = ["roles.rollout.router_replay=true"]


@pytest.mark.slow
def test_a_mixture_of_experts_learns_and_resumes(untaught: Path, launch: Callable[..., Attempt]) -> None:
    """The engine has half the precision, so that its routes are not those that the learner would choose."""
    run_that_learns_and_resumes(untaught, launch, 30, 0.4, [*REPLAY, "roles.rollout.precision=bf16"])


@pytest.mark.slow
def test_adapters_on_experts_learn_and_resume(untaught: Path, launch: Callable[..., Attempt]) -> None:
    words = [*REPLAY, "roles.learner.lora_rank=8", "train.learning_rate=4e-3"]
    lines = run_that_learns_and_resumes(untaught, launch, 15, 0.33, words)
    assert max(line["parity_max_abs"] for line in lines) < 1e-4  # the engine has base and updates


def run_that_learns_and_resumes(
    model: Path, launch: Callable[..., Attempt], steps: int, reward: float, more: list[str]
) -> list[dict[str, Any]]:
    """The run's metrics, after it was ended at two thirds and went on as if nothing had happened."""
    words = [f"roles.learner.model={model}", "roles.learner.gpus=[1]", "tracking.wandb=disabled"]
    words += [f"train.steps={steps}", f"checkpoint.every={steps // 3}", *more]
    whole = launch(1, *words)
    assert whole.wait() == 0, whole.log()[-3000:]
    assert whole.mean_reward(1, 3) <= 0.25
    assert whole.mean_reward(steps - 4, steps) >= reward
    lines = whole.metrics()
    (whole.run / "checkpoints" / f"step-{steps:06d}" / "COMPLETE").unlink()
    again = launch(2, *words)
    assert again.wait() == 0, again.log()[-3000:]
    assert again.rewards(steps * 2 // 3 + 1, steps) == whole.rewards(steps * 2 // 3 + 1, steps)
    return lines
