"""Group relative policy optimisation: ``python -m trainers.grpo --attempt DIR``.

One step, top to bottom: engines answer the step's prompts; answers are rewarded; a sample's advantage is its reward
against its siblings'; the learners make their optimizer steps; the engines get the new weights. Everything that watches
a run learns of it from the files that ``rltui.onnode.rundir`` names.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainers import attempt
from trainers.data.batch import (
    ADVANTAGES,
    COLUMN_OF,
    ENGINE_LOG_PROBS,
    OLD_LOG_PROBS,
    REFERENCE_LOG_PROBS,
    STALENESS,
    pad,
    sampled,
    with_columns,
)
from trainers.groups import Drawn, choose, next_draw
from trainers.loop import Loop
from trainers.metrics import sample_metrics, source_metrics
from trainers.rewards import training_rewards
from trainers.rewards.parts import parts_of
from trainers.stopping import leave

if TYPE_CHECKING:
    import torch

    from trainers.advantages import Groups
    from trainers.data.batch import Sample

LENGTH = "grpo.overlong_penalty_tokens"
"""The penalty's name among parts of the reward, which no user's own part has: that would be overwritten."""


class Grpo(Loop):
    """The training loop of one attempt."""

    def step(self) -> dict[str, float]:
        """One training step; its metrics."""
        began, version = time.monotonic(), self.state.weight_version
        number = self.state.step + 1
        drawn = self.draw(number)
        self.rest()
        trained, measured, metrics = self.with_advantages(drawn)
        with self.phase("train"):
            metrics |= self.optimize(number, trained, measured)
        # without a trained sample no optimizer step was made, and the engines have these weights already
        version += bool(trained)
        self.sync(version)
        self.state = self.state.after_step(len(drawn.prompts), version)
        metrics |= sample_metrics(drawn.groups, drawn.true_rewards)
        metrics |= source_metrics(drawn.prompts, drawn.true_rewards, self.layout.data.eval_pass)
        metrics |= signal_metrics(drawn, self.layout.grpo.filter)
        if self.layout.grpo.active_sampling_limit > 1:
            metrics["prompts_tried"] = float(len(drawn.prompts))
        return metrics | self.meter.measure(drawn.prompts, drawn.groups, time.monotonic() - began)

    def draw(self, number: int) -> Drawn:
        """Sample the prompts of step ``number``, and further ones as long as too few groups have a signal."""
        import torch

        from trainers.variants import variant

        teaches = variant(self.layout.grpo, "filter")
        drawn, train, limit = Drawn(), self.layout.train, self.layout.grpo.active_sampling_limit
        while count := next_draw(train.prompts_per_step, limit, drawn.signal):
            with self.phase("generate"):
                prompts, groups = self.generate(number, len(drawn.prompts), count)
            with self.phase("reward"):
                drawn.prompts += prompts
                drawn.groups += groups
                drawn.true_rewards += self.rewards(prompts, groups)
                # of all groups so far: what a further draw earns must not depend on in how many draws the prompts
                # came
                drawn.rewards = training_rewards(self.layout.data.reward, drawn.true_rewards, train.seed, number)
                drawn.signal = teaches(torch.tensor(drawn.rewards)).tolist()
        return drawn

    def with_advantages(self, drawn: Drawn) -> tuple[list[Sample], list[Sample], dict[str, float]]:
        """Samples to train on, with their advantages; those that are only measured; metrics.

        Of what is not trained on, one sample a group is measured: a pass over all would cost a third of training them
        and tell entropy and mismatch hardly better. Penalties come after the choice of groups: whether a prompt can
        teach anything is a matter of the task's reward.
        """
        from trainers.variants import variant

        grpo, limit = self.layout.grpo, self.layout.lengths.response
        chosen, others = choose(self.layout.train.prompts_per_step, drawn.signal, grpo.filter_zero_std)
        measured = [sample for i in others for sample in samples_of(drawn, i)[:1]]
        samples = [sample for i in chosen for sample in samples_of(drawn, i)]
        if not samples:
            return [], measured, {}
        owners = owners_of(drawn, chosen)
        groups = groups_of(drawn, chosen, limit, grpo.overlong_penalty_tokens)
        samples, metrics = self.with_log_probs(samples)
        if grpo.penalises_kl and grpo.kl == "reward":
            groups = replace(groups, rewards=self.less_kl(groups.rewards, samples, owners))
        advantages = variant(grpo, "advantage")(groups).reshape(-1).tolist()
        samples = with_columns(samples, {ADVANTAGES: [advantages[owner] for owner in owners]})
        if not grpo.mask_truncated:
            return samples, measured, metrics
        cut_short = [(i, one.finish_reason == "length") for i in chosen for one in drawn.groups[i]]
        numbered = [cut_short[owner] for owner in owners]
        trained = [sample for sample, (_, is_cut) in zip(samples, numbered, strict=True) if not is_cut]
        cut = {i: bare(sample) for sample, (i, is_cut) in zip(samples, numbered, strict=True) if is_cut}
        return trained, [*measured, *cut.values()], metrics

    def with_log_probs(self, samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, float]]:
        """The samples with what the policy and the reference say of their tokens, where that is needed."""
        grpo = self.layout.grpo
        kinds = []
        needs_policy = grpo.kl == "reward" or self.layout.train.truncates  # engines' are of another distribution then
        if self.needs_old_log_probs or (grpo.penalises_kl and needs_policy):
            kinds.append("learner")
        if grpo.penalises_kl:
            kinds.append("reference")
        if not kinds:
            return list(samples), {}
        with self.phase("measure"):
            found = self.measure(kinds, samples)
        samples = with_columns(samples, {COLUMN_OF[kind]: values for kind, values in found.items()})
        if not grpo.penalises_kl:
            return samples, {}
        kl, mask = self._kl(samples)
        return samples, {"kl": float(kl[mask].mean())}

    def less_kl(self, rewards: torch.Tensor, samples: Sequence[Sample], owners: Sequence[int]) -> torch.Tensor:
        """The rewards [P, G] less the penalty of each sample's KL to the reference, in all of its sequences."""
        import torch

        from trainers.advantages import penalised_rewards

        kl, mask = self._kl(samples)
        less = penalised_rewards(rewards.new_zeros(len(samples)), kl, mask, self.layout.grpo.kl_coefficient)
        return rewards.reshape(-1).index_add(0, torch.tensor(owners), less.to(rewards.dtype)).reshape(rewards.shape)

    def _kl(self, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimates of KL(policy || reference) [B, R] at each token, and the mask."""
        import torch

        from trainers.variants import variant

        rows = pad(samples)
        # the engine says the same but for rounding, and spares a pass where nothing else needs one
        policy = rows.columns.get(OLD_LOG_PROBS, rows.columns[ENGINE_LOG_PROBS])
        reference = rows.columns[REFERENCE_LOG_PROBS]
        kl = variant(self.layout.grpo, "kl_estimator")(torch.from_numpy(policy), torch.from_numpy(reference))
        return kl, torch.from_numpy(rows.response_mask)


def samples_of(drawn: Drawn, group: int) -> list[Sample]:
    """The sequences of the samples of one group as the learner takes them, not yet judged."""
    return [sampled(drawn.prompts[group], part) for sample in drawn.groups[group] for part in sample.sequences]


def owners_of(drawn: Drawn, chosen: Sequence[int]) -> list[int]:
    """Which of the samples of these groups each of their sequences belongs to."""
    samples = [sample for i in chosen for sample in drawn.groups[i]]
    return [number for number, sample in enumerate(samples) for _ in sample.sequences]


def groups_of(drawn: Drawn, chosen: Sequence[int], limit: int, penalty_tokens: int) -> Groups:
    """What advantages are computed from, of the groups that are trained on.

    Args:
        drawn: The step's samples.
        chosen: Numbers of these groups.
        limit: Longest response.
        penalty_tokens: See ``trainers.advantages.overlong_penalty``; the penalty is one more part of the reward.
    """
    import torch

    from trainers.advantages import Groups, overlong_penalty

    # by sequence: the limit is that of one, and a sample of an agent may have several
    longest = [[max([len(part.token_ids) for part in one.sequences] or [0]) for one in drawn.groups[i]] for i in chosen]
    said = torch.tensor(longest)
    lengths = torch.tensor([[sample.sampled_tokens for sample in drawn.groups[i]] for i in chosen])
    rewards = torch.tensor([drawn.rewards[i] for i in chosen])
    penalty = overlong_penalty(said, limit, penalty_tokens)
    parts = parts_of([reward for i in chosen for reward in drawn.rewards[i]], rewards.shape)
    if parts and penalty_tokens:
        parts[LENGTH] = penalty, 1.0
    return Groups(rewards + penalty, lengths, parts)


def signal_metrics(drawn: Drawn, by: str) -> dict[str, float]:
    """Shares of groups whose rewards do not differ and, by another filter than that, that ``by`` leaves out."""
    import torch

    from trainers.advantages import differ

    found = {"zero_std_fraction": 1.0 - float(differ(torch.tensor(drawn.rewards)).double().mean())}
    return found if by == "differ" else found | {"filtered_fraction": 1.0 - sum(drawn.signal) / len(drawn.signal)}


def bare(sample: Sample) -> Sample:
    """``sample`` with what is needed to measure it only."""
    return replace(sample, columns={name: sample.columns[name] for name in (ENGINE_LOG_PROBS, STALENESS)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return attempt.main("grpo", Grpo, arguments)


if __name__ == "__main__":
    leave(main())
