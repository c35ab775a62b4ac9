"""Proximal policy optimisation with a critic: ``python -m trainers.ppo --attempt DIR``.

One step, top to bottom: engines answer the step's prompts; answers are rewarded; policy, reference and critic say what
they think of every token; generalised advantage estimation turns that into advantages and returns; policy and critic
make their optimizer steps, at the same time where they have GPUs of their own (split placement) and one after the other
where they share them (standard placement); the engines get the new weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from trainers import attempt
from trainers.colocation import concurrent
from trainers.data.batch import (
    ADVANTAGES,
    COLUMN_OF,
    OLD_LOG_PROBS,
    REFERENCE_LOG_PROBS,
    RETURNS,
    VALUES,
    Rows,
    packing_efficiency,
    pad,
    sampled,
    with_columns,
    without_routes,
)
from trainers.loop import Loop
from trainers.metrics import (
    check_numbers,
    critic_metrics,
    merge,
    overlap_s,
    sample_metrics,
    source_metrics,
    timing_names,
)
from trainers.rewards import training_rewards
from trainers.roles.critic import Critic
from trainers.roles.learner import Learner
from trainers.stopping import leave

if TYPE_CHECKING:
    import torch

    from trainers.data.batch import Sample
    from trainers.data.prompts import Prompt
    from trainers.roles.completions import Completion
    from trainers.roles.step_report import RankReport, StepReport

ADAPTION_BOUND = 0.2
"""Most that one step may move the KL coefficient by, before the horizon divides it (Ziegler et al. 2019)."""

LEAST_FACTOR = 0.5
"""Least that one step multiplies the KL coefficient by, however small the horizon."""


class Ppo(Loop):
    """The training loop of one attempt."""

    def step(self) -> dict[str, float]:
        """One training step; its metrics."""
        began, train = time.monotonic(), self.layout.train
        number, version = self.state.step + 1, self.state.weight_version
        with self.phase("generate"):
            prompts, groups = self.generate(number)
        self.rest()
        with self.phase("reward"):
            true_rewards = self.rewards(prompts, groups)
            rewards = training_rewards(self.layout.data.reward, true_rewards, train.seed, number)
        with self.phase("measure"):
            samples = self.measured(prompts, groups)
        with self.phase("advantages"):
            samples, metrics, coefficient = self.with_advantages(samples, [r for group in rewards for r in group])
        with self.phase("train"):
            metrics |= self.update(number, samples)
        # while only the critic learns, the policy's weights stay as the engines have them
        version += not self.warming_up
        self.sync(version)
        state = self.state.after_step(train.prompts_per_step, version)
        self.state = structs.replace(state, kl_coefficient=coefficient)
        metrics |= source_metrics(prompts, true_rewards, self.layout.data.eval_pass)
        metrics |= sample_metrics(groups, true_rewards) | self.meter.measure(prompts, groups, time.monotonic() - began)
        return metrics | timing_names(metrics)

    @property
    def warming_up(self) -> bool:
        """Whether the next step trains the critic only."""
        return self.state.step < self.layout.ppo.critic_warmup_steps

    @property
    def kl_coefficient(self) -> float:
        """Weight of the KL penalty in the reward, as it stands."""
        here = self.state.kl_coefficient
        return self.layout.ppo.kl_coefficient if here is None else here

    def measured(self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[Sample]:
        """The samples with what policy, critic and, where there is a KL penalty, reference say of their tokens."""
        samples = [sampled(prompt, sample) for prompt, group in zip(prompts, groups, strict=True) for sample in group]
        kinds = ["learner", "critic"]
        if self.layout.ppo.kl != "none" and self.layout.ppo.kl_coefficient:
            kinds.append("reference")
        found = self.measure(kinds, samples)
        return with_columns(samples, {COLUMN_OF[kind]: values for kind, values in found.items()})

    def with_advantages(
        self, samples: Sequence[Sample], rewards: Sequence[float]
    ) -> tuple[list[Sample], dict[str, float], float | None]:
        """The samples with advantages and returns; metrics; and the KL coefficient of the next step."""
        import torch

        from trainers.advantages import generalised_advantages, token_rewards, whiten
        from trainers.losses import kl_estimate

        settings, rows = self.layout.ppo, pad(without_routes(samples))
        mask = torch.from_numpy(rows.response_mask)
        values, kl = _column(rows, VALUES), None
        if REFERENCE_LOG_PROBS in rows.columns:
            kl = kl_estimate(_column(rows, OLD_LOG_PROBS), _column(rows, REFERENCE_LOG_PROBS), settings.kl_estimator)
        in_reward = kl if settings.kl == "reward" else None
        earned = token_rewards(torch.tensor(rewards), mask, in_reward, self.kl_coefficient)
        advantages, returns = generalised_advantages(earned, values, mask, settings.gamma, settings.gae_lambda)
        metrics = _measures(values, returns, kl, mask)
        if settings.whiten:
            advantages = whiten(advantages, mask)
        columns = {ADVANTAGES: _per_sample(advantages, samples), RETURNS: _per_sample(returns, samples)}
        return with_columns(samples, columns), metrics, self.next_kl_coefficient(metrics.get("kl"), len(samples))

    def next_kl_coefficient(self, kl: float | None, num_samples: int) -> float | None:
        """The adaptive controller of Ziegler et al. 2019: proportional to how far the KL is off its target."""
        settings = self.layout.ppo
        if settings.kl != "reward" or not settings.kl_target or kl is None:
            return None
        error = min(max(kl / settings.kl_target - 1.0, -ADAPTION_BOUND), ADAPTION_BOUND)
        # a batch of several horizons would take off more than there is, and a penalty below 0 rewards the distance
        return self.kl_coefficient * max(LEAST_FACTOR, 1.0 + error * num_samples / settings.kl_horizon)

    def update(self, number: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Make the optimizer steps of policy and critic in training step ``number``; their metrics."""
        # in the warm-up of the critic, the policy's samples are only measured
        trained, measured = ([], samples) if self.warming_up else (samples, [])
        shards = {
            "critic": self.shards(number, without_routes(samples), kind="critic"),
            "learner": self.shards(number, trained, measured),
        }
        trains: dict[str, Callable[..., Any]] = {"critic": Critic.train, "learner": Learner.train}
        reports: dict[str, list[Any]] = {}
        for together in concurrent(self.layout, list(shards)):
            calls = {kind: self.fleet.begin(kind, trains[kind], shards[kind]) for kind in together}
            reports |= {kind: self.fleet.finish(begun, "training") for kind, begun in calls.items()}
        metrics = self._merged(reports["learner"], reports["critic"])
        micro_batch = self.layout.roles.learner.micro_batch
        metrics["packing_efficiency"] = packing_efficiency(shards["learner"], micro_batch)
        check_numbers(number, metrics, self.layout, has_experts=self.has_experts)
        return metrics

    def _merged(self, learners: list[StepReport], critics: list[RankReport]) -> dict[str, float]:
        self.memory_gib = [report.memory_gib for report in learners]
        updates = {
            "time/update_actor": max(r.ended_at for r in learners) - min(r.began_at for r in learners),
            "time/update_critic": max(r.ended_at for r in critics) - min(r.began_at for r in critics),
            "time/update_overlap": overlap_s(learners, critics),
        }
        policy = merge(learners, self.layout.sharing_of("learner"), truncates=self.layout.train.truncates)
        return policy | critic_metrics(critics) | updates


def _column(rows: Rows, name: str) -> torch.Tensor:
    import torch

    return torch.from_numpy(rows.columns[name])


def _per_sample(values: torch.Tensor, samples: Sequence[Sample]) -> list[Any]:
    return [row[: len(sample.response_ids)] for row, sample in zip(values.numpy(), samples, strict=True)]


def _measures(
    values: torch.Tensor, returns: torch.Tensor, kl: torch.Tensor | None, mask: torch.Tensor
) -> dict[str, float]:
    """How well the critic foresaw the returns, and how far the policy is from the reference."""
    seen, came = values[mask], returns[mask]
    spread = float(came.var()) if came.numel() > 1 else 0.0
    found = {
        "value_mean": float(seen.mean()),
        "return_mean": float(came.mean()),
        "explained_variance": 1.0 - float((came - seen).var()) / spread if spread else 0.0,
    }
    return found if kl is None else found | {"kl": float(kl[mask].mean())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return attempt.main("ppo", Ppo, arguments)


if __name__ == "__main__":
    leave(main())
