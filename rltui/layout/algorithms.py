"""The sections of a layout that belong to one algorithm each: ``grpo``, ``ppo`` and ``opd``."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from rltui.layout.scalars import Count, CountOrZero, Fraction, Name, NonNegativeFloat, PositiveFloat
from rltui.layout.variants import VARIANTS, one_of

KlEstimator = Annotated[
    Literal["k1", "k2", "k3"],
    Meta(description="d, d²/2, or exp(-d) - 1 + d, where d is the log-ratio (Schulman 2020)."),
]
Importance = Annotated[
    Literal["off", "cap", "mask", "sequence_product", "sequence_mean", "sequence_mask"],
    Meta(
        description="Weight between trainer and engine: none; each token's, capped; tokens outside importance_low to "
        "importance_cap left out (IcePop); or one for the sample, the product or geometric mean, capped; or samples "
        "whose product is outside left out."
    ),
]
OwnSettings = Annotated[
    dict[Name, bool | int | float | str],
    Meta(description="Keyword settings of a function of your own; bundled variants have keys of their own."),
]
EntropyCoefficient = Annotated[
    NonNegativeFloat, Meta(description="Weight of the entropy bonus: the loss is less this times the mean entropy.")
]


class Grpo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of group relative policy optimisation (Shao et al. 2024) and its variants; docs/algorithms.md."""

    advantage: Annotated[
        str,
        one_of(
            VARIANTS["advantage"],
            "Reward less the group's mean, over its deviation or not; against the other samples (RLOO), the mean by "
            "tokens (OPO) or the batch (REINFORCE++); each part of it alone (GDPO); or package.module:function.",
        ),
    ] = "standard"
    advantage_settings: OwnSettings = field(default_factory=dict)
    aggregation: Annotated[
        str,
        one_of(
            VARIANTS["aggregation"],
            "Mean over all tokens; over samples of their tokens' mean or sum; of the sum over lengths.response (Dr. "
            "GRPO); or package.module:function.",
        ),
    ] = "token"
    aggregation_settings: OwnSettings = field(default_factory=dict)
    ratio: Annotated[
        str,
        one_of(
            VARIANTS["ratio"],
            "Which ratio counts, and how it is bounded: tokens (PPO), samples (GSPO), CISPO, GMPO, SAPO, Clip-Cov, "
            "KL-Cov; or package.module:function.",
        ),
    ] = "token"
    ratio_settings: OwnSettings = field(default_factory=dict)
    clip_low: Annotated[Fraction, Meta(description="The ratio is clipped below 1 - clip_low.")] = 0.2
    clip_high: Annotated[PositiveFloat, Meta(description="The ratio is clipped above 1 + clip_high.")] = 0.272
    dual_clip: Annotated[
        NonNegativeFloat,
        Meta(description="Where the advantage is negative, the ratio counts for at most this; 0: without bound."),
    ] = 0.0
    sapo_temperature_positive: Annotated[
        PositiveFloat, Meta(description="Steepness of SAPO's gate where the advantage is positive.")
    ] = 1.0
    sapo_temperature_negative: Annotated[
        PositiveFloat, Meta(description="Steepness of SAPO's gate where it is not.")
    ] = 1.05
    clip_cov_fraction: Annotated[Fraction, Meta(description="Share of the tokens that Clip-Cov leaves out.")] = 2e-4
    clip_cov_low: Annotated[float, Meta(description="Clip-Cov chooses among covariances above this,")] = 1.0
    clip_cov_high: Annotated[float, Meta(description="and below this.")] = 5.0
    kl_cov_fraction: Annotated[Fraction, Meta(description="Share of the tokens that KL-Cov penalises.")] = 2e-4
    kl_cov_coefficient: Annotated[PositiveFloat, Meta(description="Weight of KL-Cov's penalty.")] = 1.0
    importance: Importance = "cap"
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
    importance_low: Annotated[
        NonNegativeFloat,
        Meta(description="Where importance is 'mask' or 'sequence_mask', what weighs less than this is left out too."),
    ] = 0.5
    kl: Annotated[
        Literal["none", "loss", "reward"], Meta(description="Where the KL penalty goes, if it has a coefficient.")
    ] = "loss"
    kl_coefficient: Annotated[NonNegativeFloat, Meta(description="Weight of the KL penalty (beta); 0: none.")] = 0.0
    kl_estimator: Annotated[
        str,
        one_of(
            VARIANTS["kl_estimator"],
            "d, d²/2, or exp(-d) - 1 + d, where d is the log-ratio (Schulman 2020); or package.module:function.",
        ),
    ] = "k3"
    kl_estimator_settings: OwnSettings = field(default_factory=dict)
    entropy_coefficient: EntropyCoefficient = 0.0
    top_entropy_quantile: Annotated[
        Fraction, Meta(description="Share of the tokens, those of the highest entropy, that rewards move; 1: all.")
    ] = 1.0
    filter_zero_std: Annotated[bool, Meta(description="Leave out groups that teach nothing, by filter.")] = True
    filter: Annotated[
        str,
        one_of(
            VARIANTS["filter"],
            "Which groups teach: those whose rewards differ (DAPO), or whose mean is within filter_low to filter_high; "
            "or package.module:function.",
        ),
    ] = "differ"
    filter_settings: OwnSettings = field(default_factory=dict)
    filter_low: Annotated[float, Meta(description="Least mean reward of a group with filter mean_within.")] = 0.2
    filter_high: Annotated[float, Meta(description="Largest mean reward of a group with filter mean_within.")] = 0.8
    active_sampling_limit: Annotated[
        Count,
        Meta(description="Prompts are drawn until prompts_per_step groups differ, at most this many times as many."),
    ] = 1
    mask_truncated: Annotated[bool, Meta(description="No loss from samples that were cut at lengths.response.")] = False
    overlong_penalty_tokens: Annotated[
        CountOrZero, Meta(description="Tokens before the limit over which a penalty rises to 1; 0: no penalty.")
    ] = 0

    @property
    def penalises_kl(self) -> bool:
        """Whether the reference is compared with."""
        return self.kl != "none" and self.kl_coefficient > 0


class Ppo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of proximal policy optimisation with a critic (Schulman et al. 2017)."""

    clip: Annotated[Fraction, Meta(description="The ratio is clipped to 1 ± clip.")] = 0.2
    value_clip: Annotated[NonNegativeFloat, Meta(description="Values move at most this far; 0: freely.")] = 0.5
    gamma: Annotated[Fraction, Meta(description="Discount.")] = 1.0
    gae_lambda: Annotated[Fraction, Meta(description="Lambda of generalised advantage estimation.")] = 0.95
    kl: Annotated[Literal["none", "reward", "loss"], Meta(description="Where the KL penalty goes.")] = "none"
    kl_coefficient: NonNegativeFloat = 0.0
    kl_estimator: KlEstimator = "k3"
    kl_target: Annotated[
        NonNegativeFloat, Meta(description="KL a token that kl_coefficient is steered to where kl is reward; 0: fixed.")
    ] = 0.0
    kl_horizon: Annotated[Count, Meta(description="Samples over which the coefficient adapts.")] = 10_000
    entropy_coefficient: EntropyCoefficient = 0.0
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
    whiten: Annotated[bool, Meta(description="Scale the advantages of a batch to mean 0 and deviation 1.")] = True
    critic_warmup_steps: Annotated[CountOrZero, Meta(description="Steps that train the critic only.")] = 0


class Opd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of on-policy distillation (Agarwal et al. 2024; Qwen3 report 2025)."""

    estimator: Annotated[
        Literal["sampled_token", "top_k"], Meta(description="Reverse KL from the sampled token, or over k tokens.")
    ] = "sampled_token"
    top_k: Annotated[Count, Meta(description="Tokens of the top-k estimator.")] = 64
    divergence: Annotated[
        Literal["reverse_kl", "forward_kl", "jsd"], Meta(description="What the top-k estimator minimises.")
    ] = "reverse_kl"
    jsd_beta: Annotated[
        float, Meta(gt=0.0, lt=1.0, description="Weight of the teacher in the mixture of the generalised JSD.")
    ] = 0.5
    on_policy_fraction: Annotated[
        Fraction,
        Meta(description="Share of steps on the student's own samples (GKD's lambda); the others take data's answers."),
    ] = 1.0
    kl_coefficient: NonNegativeFloat = 1.0
    reward_weight: Annotated[
        NonNegativeFloat,
        Meta(description="Weight of the reward's group advantages beside the teacher; 0: none."),
    ] = 0.0
    clip: Annotated[Fraction, Meta(description="The ratio is clipped to 1 ± clip.")] = 0.2
    importance_cap: Annotated[
        PositiveFloat, Meta(description="Cap of the truncated importance weight trainer/engine.")
    ] = 2.0
