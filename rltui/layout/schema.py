"""The layout schema: one YAML file says algorithm, models, hardware, roles and training settings.

The same structs are read by rltui (checks, placement, rendering) and by the trainers, so that a layout that
passes the check means the same thing on the cluster. They are frozen; overrides make new ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rltui.layout.algorithms import Grpo, Opd, Ppo
from rltui.layout.grading import SERVED_REWARDS
from rltui.layout.roles import (
    SERVED,
    Critic,
    Hardware,
    Judge,
    Learner,
    Pool,
    Reference,
    Reward,
    Roles,
    Rollout,
    Teacher,
)
from rltui.layout.scalars import CPU, Algorithm, Name, Precision, System, Text
from rltui.layout.selftest import Selftest
from rltui.layout.settings import (
    Checkpoint,
    Data,
    Deadlines,
    Lengths,
    Slurm,
    Tracking,
    Train,
    rewards_of,
)

__all__ = [
    "CPU",
    "Algorithm",
    "Checkpoint",
    "Critic",
    "Data",
    "Deadlines",
    "Grpo",
    "Hardware",
    "Judge",
    "Layout",
    "Learner",
    "Lengths",
    "Opd",
    "Pool",
    "Ppo",
    "Precision",
    "Reference",
    "Reward",
    "Roles",
    "Rollout",
    "Selftest",
    "Slurm",
    "Teacher",
    "Tracking",
    "Train",
]


class Layout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layout, as loaded: every default filled in, every value typed."""

    layout: Annotated[Literal[1], Meta(description="Version of this schema.")]
    name: Annotated[Name, Meta(description="Letters, digits, dot, dash and underscore, at most 64.")]
    summary: Annotated[Text, Meta(description="One line for the list of layouts.")] = ""
    algorithm: Algorithm
    hardware: Hardware
    pools: Annotated[dict[Name, Pool], Meta(description="Named groups of GPUs that roles share.")] = field(
        default_factory=dict
    )
    roles: Roles
    train: Train
    lengths: Lengths
    grpo: Grpo = field(default_factory=Grpo)
    ppo: Ppo = field(default_factory=Ppo)
    opd: Opd = field(default_factory=Opd)
    data: Data
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    deadlines: Deadlines = field(default_factory=Deadlines)
    tracking: Tracking = field(default_factory=Tracking)
    slurm: Slurm = field(default_factory=Slurm)
    system: Annotated[System, Meta(description="Whose trainers its memory is estimated for; an import says it.")] = (
        "rltui"
    )
    selftest: Selftest | None = None
    unsure: Annotated[
        list[Text],
        Meta(description="Keys that an import could not settle; an error about them is a note.", max_length=200),
    ] = field(default_factory=list)

    def slots_of(self, role: str) -> int:
        """GPUs (or CPU slots) that ``role`` works on, its own or its pool's; 0 where the layout has no such role.

        Reference and critic without a pool of their own sit with the learner.
        """
        found = getattr(self.roles, role)
        if found is None:
            return 0
        if role in ("reference", "critic") and not found.pool:
            return self.slots_of("learner")
        if found.pool:
            return self.pools[found.pool].total if found.pool in self.pools else 0
        if role == "learner":
            return sum(found.gpus)
        return found.engines * found.tensor_parallel if role in ("rollout", *SERVED) else 0

    def hardware_of(self, role: str) -> Hardware:
        """The kind of node that ``role`` sits on; reference and critic without a pool sit with the learner."""
        found = getattr(self.roles, role)
        is_guest = role in ("reference", "critic") and not (found and found.pool)
        return self.hardware.parts[self.hardware.part_of("learner" if is_guest else role)]

    @property
    def num_engines(self) -> int:
        """Rollout engines, counted out of their pool where the layout does not say."""
        rollout = self.roles.rollout
        pool = self.pools.get(rollout.pool)
        return rollout.engines or (sum(gpus // rollout.tensor_parallel for gpus in pool.gpus) if pool else 0)

    @property
    def num_ranks(self) -> int:
        """Data-parallel ranks of the learner."""
        return self.slots_of("learner") // self.roles.learner.ranks_of_a_row

    @property
    def exports(self) -> bool:
        """Whether the model is written as a Hugging Face folder when all steps are done."""
        sends = self.tracking.artifact and self.tracking.wandb != "disabled"
        return self.checkpoint.export or bool(self.checkpoint.push_to_hub) or sends

    @property
    def entropy_coefficient(self) -> float:
        """Weight of the entropy bonus in the objective; 0 where the algorithm has none."""
        return {"grpo": self.grpo.entropy_coefficient, "ppo": self.ppo.entropy_coefficient}.get(self.algorithm, 0.0)

    def cut_of(self, role: Learner | Critic) -> Learner | Critic:
        """What says how the model of the learner or critic is cut: Megatron's critics are cut as policies are."""
        return self.roles.learner if self.system.startswith("megatron") else role

    def sharing_of(self, role: str) -> int:
        """How many neighbouring ranks of a role share the tokens of their rows."""
        return self.roles.learner.sequence_parallel if role == "learner" else 1

    @property
    def divided(self) -> tuple[str, ...]:
        """The frozen roles whose weights are divided over their GPUs, so that these work together only."""
        names = ("reference", "reward_model")
        return tuple(
            name for name in names if getattr(getattr(self.roles, name), "zero_stage", 0) and self.slots_of(name) > 1
        )

    @property
    def num_reward_workers(self) -> int:
        """Processes that compute rewards or play, environments or agents; none where there is nothing to do here."""
        reward, data = self.roles.reward, self.data
        elsewhere = all(one in (*SERVED_REWARDS, "none") for one in rewards_of(data))
        if reward is None or (elsewhere and not data.environment):
            return 0
        return reward.workers
