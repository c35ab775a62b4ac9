"""Engines prove that they run the learners' weights, where no sample that is trained on shows it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rltui.onnode import rundir
from trainers.data.batch import sampled
from trainers.metrics import TrainingError, check_parity, log_prob_gap
from trainers.roles.fleet import ask

if TYPE_CHECKING:
    from trainers.data.prompts import Prompt
    from trainers.loop import Loop
    from trainers.metrics import LogProbGap
    from trainers.roles.calls import Role
    from trainers.roles.engine import Completion

PROOF_INTERVAL = 20
"""Weight versions between two proofs of all engines where samples do not show it."""
PROOF_TOKENS = 256
"""Longest answer of a proof: enough for the mean, short enough to wait for."""

log = logging.getLogger("trainers")


def prove_engines(loop: Loop, version: int, restarted: Collection[Role]) -> None:
    """Have engines prove that they run weight ``version``: those that were started again, and now and then all.

    Where rollouts run ahead, no sample that is trained on has the learners' own weights to be compared with; where
    unlikely tokens are never drawn, engines and learners say different log-probabilities of all of them. A proof is
    sampled from the whole distribution.

    Raises:
        TrainingError: One does not run the learners' weights.
    """
    train = loop.layout.train
    is_due = bool(train.async_steps or train.truncates) and version > 0 and version % PROOF_INTERVAL == 0
    is_due |= train.truncates and version == 1
    for engine in loop.fleet.engines:
        if engine not in restarted and not is_due:
            continue
        title = f"{engine.title}, started again," if engine in restarted else engine.title
        apart = prove(loop, engine, title)
        if engine in restarted:
            text = f"{engine.title} runs weight version {version} and goes on"
            words = f"{text}; {apart.max_abs:.1e} apart from the learners"
            loop.session.event(rundir.RESTART, words, roles=loop.fleet.map())
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


def prove(loop: Loop, engine: Role, title: str) -> LogProbGap:
    """Compare an engine, called ``title``, with the learners on samples of its own, which no step is trained on.

    Raises:
        TrainingError: It does not run the learners' weights.
    """
    [prompt] = loop.task.prompts(loop.state.cursor, 1)
    settings = loop.sampling(loop.state.step).whole()
    settings = replace(settings, max_tokens=min(settings.max_tokens, PROOF_TOKENS))
    asked = ask(engine, "generate", [prompt.request], settings)
    [completions] = loop.fleet.finish([asked], "proving its weights")
    samples = [sampled(prompt, one) for one in completions]
    found = np.concatenate(loop.measure({"learner": "log_probs"}, samples)["learner"])
    said = np.concatenate([one.log_probs for one in completions])
    apart = log_prob_gap(found, said)
    check_parity(f"{title} and the learners", apart, loop.layout, has_experts=loop.has_experts)
    return apart
