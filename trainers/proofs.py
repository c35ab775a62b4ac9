"""Engines prove that they run the learners' weights, where no sample that is trained on shows it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rltui.onnode import rundir
from trainers.data.batch import sampled
from trainers.metrics import TrainingError, check_parity, log_prob_gap
from trainers.roles.fleet import ask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.batch import Sample
    from trainers.data.prompts import Prompt
    from trainers.metrics import LogProbGap
    from trainers.roles.calls import Role
    from trainers.roles.completions import Completion
    from trainers.roles.fleet import Fleet
    from trainers.roles.sampling import SamplingSettings
    from trainers.session import Session

Measure: TypeAlias = "Callable[[Mapping[str, str], Sequence[Sample]], dict[str, list[NDArray[np.float32]]]]"
"""See ``Loop.measure``."""

PROOF_INTERVAL = 20
"""Weight versions between two proofs of all engines where samples do not show it."""
PROOF_TOKENS = 256
"""Longest answer of a proof: enough for the mean, short enough to wait for."""

log = logging.getLogger("trainers")


def prove_engines(
    session: Session,
    fleet: Fleet,
    version: int,
    restarted: Collection[Role],
    gap_of: Callable[[Role], LogProbGap],
    *,
    has_experts: bool,
) -> None:
    """Have engines prove that they run weight ``version``: those that were started again, and now and then all.

    Where rollouts run ahead, no sample that is trained on has the learners' own weights to be compared with; where
    unlikely tokens are never drawn, engines and learners say different log-probabilities of all of them. A proof is
    sampled from the whole distribution.

    Args:
        session: The attempt.
        fleet: The roles.
        version: Of the weights that all engines have now.
        restarted: Engines that were started again.
        gap_of: Compares an engine with the learners.
        has_experts: Whether learners choose experts by themselves.

    Raises:
        TrainingError: One does not run the learners' weights.
    """
    train = session.layout.train
    is_due = bool(train.async_steps or train.truncates) and version > 0 and version % PROOF_INTERVAL == 0
    is_due |= train.truncates and version == 1
    for engine in fleet.engines:
        if engine not in restarted and not is_due:
            continue
        title = f"{engine.title}, started again," if engine in restarted else engine.title
        apart = gap_of(engine)
        check_parity(f"{title} and the learners", apart, session.layout, has_experts=has_experts)
        if engine in restarted:
            text = f"{engine.title} runs weight version {version} and goes on"
            words = f"{text}; {apart.max_abs:.1e} apart from the learners"
            session.event(rundir.RESTART, words, roles=fleet.map())
            log.warning(text)


def check_routes(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> None:
    """See that the engines said which experts each token had that a model reads.

    Raises:
        TrainingError: Some routes did not come: the learner would choose experts by itself without a word.
    """
    for prompt, group in zip(prompts, groups, strict=True):
        for one in (part for sample in group for part in sample.sequences):
            asked, found = len(one.asked(prompt.token_ids)), 0 if one.routes is None else len(one.routes)
            wanted = asked + len(one.token_ids) - 1
            if found != wanted:
                raise TrainingError(
                    f"roles.rollout.router_replay: an engine told the experts of {found} tokens of a sample, not of "
                    f"{wanted}; set it to false, or try roles.rollout.engine=hf"
                )


def proof_gap(fleet: Fleet, engine: Role, prompt: Prompt, settings: SamplingSettings, measure: Measure) -> LogProbGap:
    """Compare an engine with the learners on samples of its own, which no step is trained on.

    Args:
        fleet: The roles.
        engine: One of its engines.
        prompt: What it answers.
        settings: How the run samples; a proof is of the whole distribution.
        measure: Asks roles for a number a response token.
    """
    settings = settings.whole()
    settings = replace(settings, max_tokens=min(settings.max_tokens, PROOF_TOKENS))
    asked = ask(engine, "generate", [prompt.request], settings)
    [completions] = fleet.finish([asked], "proving its weights")
    samples = [sampled(prompt, one) for one in completions]
    found = np.concatenate(measure({"learner": "log_probs"}, samples)["learner"])
    return log_prob_gap(found, np.concatenate([one.log_probs for one in completions]))
