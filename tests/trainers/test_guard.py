"""The guard of weights below fp32: a broken bucket stops a run, a whole one does not; also where rollouts run ahead."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from engine_support import LENGTHS, build_model, perturb, random_prompts, reference_log_probs, sampling
from trainer_support import LAYOUT

from free_ports import free_ports
from rltui.layout.load import load_layout
from rltui.layout.schema import Rollout
from trainers import weight_sync
from trainers.data.prompts import Prompt
from trainers.metrics import LogProbGap, TrainingError, check_parity, log_prob_gap, merge
from trainers.ppo import Ppo
from trainers.roles.calls import Role
from trainers.roles.completions import Completion
from trainers.roles.engine import EngineActor
from trainers.roles.sampling import training_settings
from trainers.roles.step_report import RankReport, StepReport
from trainers.weight_sync import PROOF_INTERVAL, prove_engines
from trainers.weights import ParameterMeta, WeightGroup, WeightSender

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def half_engine(folder: Path, precision: Any) -> EngineActor:
    build_model().save_pretrained(folder)
    actor = EngineActor(Rollout(engines=1, engine="hf", precision=precision), str(folder), LENGTHS, 0)
    actor.load()
    return actor


def hand_over(actor: EngineActor, named: Iterable[tuple[str, torch.Tensor]], faulty: int | None) -> None:
    """Send tensors in small buckets; the ``faulty``-th carries noise of the same size instead of its weights."""
    sent = [(name, tensor.clone()) for name, tensor in named]
    if faulty is not None:
        name, tensor = sent[faulty]
        sent[faulty] = (name, torch.randn_like(tensor.float()).to(tensor.dtype) * tensor.float().std())
    group = WeightGroup("127.0.0.1", free_ports(1)[0], 2, timeout_s=300.0)
    manifest = [ParameterMeta.of(*pair) for pair in sent]
    with ThreadPoolExecutor(1) as threads:
        joined = threads.submit(lambda: (actor.join_weight_group(group, 1), actor.receive_weights(manifest, 1)))
        sender = WeightSender(group, timeout_s=300.0)
        sender.send(sent, 1)
        joined.result(timeout=300)
        sender.close()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("faulty", [None, 1, 5])
def test_a_corrupted_bucket_stops_a_run_in_half_precision(tmp_path: Path, precision: str, faulty: int | None) -> None:
    learner = build_model()
    perturb(learner, 3)
    actor = half_engine(tmp_path, precision)
    hand_over(actor, ((name, value.to(HALF[precision])) for name, value in learner.named_parameters()), faulty)
    prompts = random_prompts([5, 9, 12, 30])
    found = actor.generate(prompts, sampling(samples_per_prompt=16))
    seen = [reference_log_probs(learner, prompts[one.prompt_index], one, 1.0).numpy() for one in found]
    apart = log_prob_gap(np.concatenate(seen), np.concatenate([one.log_probs for one in found]))
    layout = load_layout(LAYOUT, [f"roles.{role}.precision={precision}" for role in ("learner", "rollout")]).layout
    if faulty is None:
        assert apart.kl < 1e-3
        check_parity("engine 0", apart, layout)
    else:
        with pytest.raises(TrainingError, match="does not run the learner"):
            check_parity("engine 0", apart, layout)


AHEAD, CUT = "train.async_steps=2", "train.top_p=0.9"


@pytest.mark.parametrize(("word", "version", "restarted", "proven"), [
    ("train.seed=1", PROOF_INTERVAL, [], []), (AHEAD, PROOF_INTERVAL, [], ["engine", "other"]),
    (AHEAD, PROOF_INTERVAL + 1, [], []), (AHEAD, PROOF_INTERVAL + 1, ["other"], ["other"]),
    ("train.seed=1", 3, ["engine"], ["engine"]), (AHEAD, 0, [], []),
    (CUT, 0, [], []), (CUT, 1, [], ["engine", "other"]), (CUT, 2, [], []),
    (CUT, PROOF_INTERVAL, [], ["engine", "other"]),
])  # fmt: skip
def test_engines_prove_their_weights_now_and_then_where_samples_do_not(
    word: str, version: int, restarted: list[str], proven: list[str]
) -> None:
    asked: list[Any] = []
    engines = [Role("engine", None), Role("other", None)]
    fleet: Any = SimpleNamespace(engines=engines, map=list)
    session: Any = SimpleNamespace(layout=load_layout(LAYOUT, [word]).layout, event=lambda *_, **__: None)

    def gap_of(engine: Role) -> LogProbGap:
        asked.append(engine.title)
        return LogProbGap(0.0, 0.0)

    again = {one for one in engines if one.title in restarted}
    prove_engines(session, fleet, version, again, gap_of, has_experts=False)
    assert asked == proven


def test_a_proof_is_sampled_from_the_whole_distribution_and_samples_of_a_part_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layout = load_layout(LAYOUT, ["train.top_p=0.9", "train.top_k=5", "train.min_p=0.1"]).layout
    codec: Any = SimpleNamespace(stop_token_ids=(2,), stop_texts=())
    asked: list[Any] = []
    said = Completion(0, (5, 6), (-1.0, -2.0), "length", 1)
    monkeypatch.setattr(weight_sync, "ask", lambda *words: asked.append(words))
    engine, of_run = Role("engine", None), training_settings(layout, codec, 1)
    fleet: Any = SimpleNamespace(engines=[engine], finish=lambda *_: [[said]])
    session: Any = SimpleNamespace(layout=layout)

    def gap_of(engine: Role) -> LogProbGap:
        return weight_sync.proof_gap(
            fleet, engine, Prompt((7,), ""), of_run, lambda *_: {"learner": [np.array([-1.0, -2.5])]}
        )

    with pytest.raises(TrainingError, match="does not run the learner"):
        prove_engines(session, fleet, 1, (), gap_of, has_experts=False)
    settings = asked[0][-1]
    assert not settings.is_truncated
    assert of_run.is_truncated
    assert settings == replace(of_run, top_p=1.0, top_k=0, min_p=0.0)
    report = StepReport(**{one.name: 1 for one in fields(StepReport)})
    assert "parity_max_abs" in merge([report])
    assert "parity_max_abs" not in merge([report], truncates=layout.train.truncates)


@pytest.mark.parametrize(("words", "compares"), [([], True), (["train.top_p=0.9"], False)])
def test_ppo_compares_no_samples_of_a_part_either(words: list[str], compares: bool) -> None:
    loop: Any = object.__new__(Ppo)
    loop.layout = load_layout(LAYOUT, words).layout
    report = StepReport(**{one.name: 1 for one in fields(StepReport)})
    values = RankReport(**{one.name: 1 for one in fields(RankReport)})
    assert ("parity_max_abs" in loop._merged([report], [values])) == compares
