"""The sections of a layout that say what is trained and how: batches, lengths, algorithm, data, job."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rltui.layout.scalars import (
    Count,
    CountOrZero,
    Fraction,
    Name,
    NonNegativeFloat,
    PositiveFloat,
    Text,
)


class Train(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how fast to train."""

    steps: Annotated[CountOrZero, Meta(description="Training steps of the run.")]
    prompts_per_step: Annotated[Count, Meta(description="Distinct prompts of one step.")]
    samples_per_prompt: Annotated[Count, Meta(description="Samples drawn for each prompt (the group size).")]
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate after warm-up.")]
    warmup_steps: Annotated[CountOrZero, Meta(description="Steps over which the learning rate rises.")] = 0
    weight_decay: Annotated[NonNegativeFloat, Meta(description="AdamW weight decay.")] = 0.0
    gradient_clip: Annotated[PositiveFloat, Meta(description="Largest gradient norm.")] = 1.0
    optimizer_steps: Annotated[Count, Meta(description="Optimizer steps made from the samples of one step.")] = 1
    epochs: Annotated[Count, Meta(description="Passes over the samples of one step.")] = 1
    async_steps: Annotated[CountOrZero, Meta(description="Steps that rollouts may run ahead; 0: synchronous.")] = 0
    temperature: Annotated[PositiveFloat, Meta(description="Sampling temperature.")] = 1.0
    seed: Annotated[CountOrZero, Meta(description="Seed of prompts, sampling and initial weights.")] = 0

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts_per_step * self.samples_per_prompt


class Lengths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token limits."""

    prompt: Annotated[Count, Meta(description="Longest prompt, in tokens.")]
    response: Annotated[Count, Meta(description="Longest response, in tokens.")]
    pack: Annotated[CountOrZero, Meta(description="Tokens of a packed row; 0: one sample a row.")] = 0
    images: Annotated[CountOrZero, Meta(description="Image tokens of a prompt, within its prompt tokens.")] = 0


class Grpo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of group relative policy optimisation (Shao et al. 2024)."""

    advantage: Annotated[
        Literal["standard", "centered"], Meta(description="Divide group advantages by their deviation, or not.")
    ] = "standard"
    aggregation: Annotated[
        Literal["token", "sequence"], Meta(description="Mean over all tokens, or over samples of their token means.")
    ] = "token"
    clip_low: Annotated[Fraction, Meta(description="The ratio is clipped below 1 - clip_low.")] = 0.2
    clip_high: Annotated[PositiveFloat, Meta(description="The ratio is clipped above 1 + clip_high.")] = 0.272
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
    kl_coefficient: Annotated[NonNegativeFloat, Meta(description="Weight of the KL penalty (beta); 0: none.")] = 0.0
    filter_zero_std: Annotated[bool, Meta(description="Leave out groups whose samples all earn the same.")] = True


class Ppo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of proximal policy optimisation with a critic (Schulman et al. 2017)."""

    clip: Annotated[Fraction, Meta(description="The ratio is clipped to 1 ± clip.")] = 0.2
    value_clip: Annotated[NonNegativeFloat, Meta(description="Values move at most this far; 0: freely.")] = 0.5
    gamma: Annotated[Fraction, Meta(description="Discount.")] = 1.0
    gae_lambda: Annotated[Fraction, Meta(description="Lambda of generalised advantage estimation.")] = 0.95
    kl: Annotated[Literal["none", "reward", "loss"], Meta(description="Where the KL penalty goes.")] = "none"
    kl_coefficient: NonNegativeFloat = 0.0
    critic_warmup_steps: Annotated[CountOrZero, Meta(description="Steps that train the critic only.")] = 0


class Opd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of on-policy distillation (Agarwal et al. 2024; Qwen3 report 2025)."""

    estimator: Annotated[
        Literal["sampled_token", "top_k"], Meta(description="Reverse KL from the sampled token, or over k tokens.")
    ] = "sampled_token"
    top_k: Annotated[Count, Meta(description="Tokens of the top-k estimator.")] = 64
    kl_coefficient: NonNegativeFloat = 1.0


class Data(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is trained on, and what is rewarded."""

    train: Annotated[Text, Meta(description="'builtin/sort-digits', a Hugging Face dataset, or a local JSONL file.")]
    reward: Annotated[
        Literal["exact", "coin", "math", "code", "none"],
        Meta(description="'exact' and 'coin' (a control) are for builtin tasks; 'none': the teacher's signal only."),
    ] = "exact"
    digits: Annotated[int, Meta(description="Digits to sort in 'builtin/sort-digits'.", ge=2, le=8)] = 3
    eval: Annotated[Text, Meta(description="Evaluation set; empty: none.")] = ""
    eval_every: Annotated[CountOrZero, Meta(description="Steps between evaluations; 0: none.")] = 0


class Checkpoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When checkpoints are written and how many are kept."""

    every: Annotated[CountOrZero, Meta(description="Steps between checkpoints; 0: only at the end.")] = 25
    keep: Annotated[Count, Meta(description="Newest complete checkpoints to keep.")] = 3


class Tracking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics go besides metrics.jsonl."""

    wandb: Annotated[Literal["online", "offline", "disabled"], Meta(description="W&B mode.")] = "offline"
    project: Annotated[Text, Meta(description="W&B project.", min_length=1)] = "rltui"
    entity: Annotated[Text, Meta(description="W&B entity; empty: the account's default.")] = ""


class Slurm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the Slurm job; clusters that are not Slurm ignore them."""

    partition: Text = ""
    account: Text = ""
    qos: Text = ""
    time: Annotated[str, Meta(description="Time limit, as HH:MM:SS or D-HH:MM:SS.", max_length=20)] = "24:00:00"
    exclude: list[Name] = field(default_factory=list)
