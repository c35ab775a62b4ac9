"""Rules about the variants of GRPO: settings that contradict each other, or undo each other."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.layout.algorithms import Grpo
from rltui.layout.variants import VARIANTS, is_own

TOKEN_SCALE = 0.01
"""A clip range as wide as this is meant for ratios of single tokens."""


@rule("B233", "warning", "grpo")
def grpo_kl_at_odds(subject: Subject) -> Iterator[Trouble]:
    """Where GRPO's KL penalty goes and how much it weighs contradict each other.

    A coefficient alone puts the penalty into the loss; `kl: reward` without one does nothing.
    """
    grpo = subject.layout.grpo
    if grpo.kl != "loss" and (grpo.kl == "none") != (grpo.kl_coefficient == 0):
        message = f"grpo.kl is {grpo.kl} with kl_coefficient {grpo.kl_coefficient:g}: no penalty is applied"
        yield Trouble(message, "grpo.kl", ("grpo.kl=none", "grpo.kl_coefficient=0.0"))


@rule("B234", "warning", "grpo")
def sequence_ratio_with_token_clip(subject: Subject) -> Iterator[Trouble]:
    """The ratio is that of whole samples, and its clip range is meant for single tokens, so nothing is ever clipped.

    A sample's ratio is a geometric mean over its tokens and stays close to 1: GSPO (Zheng et al. 2025) clips it at
    3e-4 below and 4e-4 above.
    """
    grpo = subject.layout.grpo
    if grpo.ratio == "sequence" and max(grpo.clip_low, grpo.clip_high) >= TOKEN_SCALE:
        yield Trouble(
            f"ratio sequence with clip_low {grpo.clip_low:g} and clip_high {grpo.clip_high:g}",
            "grpo.clip_high",
            ("grpo.clip_low=0.0003", "grpo.clip_high=0.0004"),
        )


@rule("B235", "error", "grpo")
def dual_clip_too_small(subject: Subject) -> Iterator[Trouble]:
    """The dual clip is at or below 1, where it stops the gradient of bad samples that the policy has not moved on.

    It bounds how much a ratio above 1 can count where the advantage is negative (Ye et al. 2020); 3 is usual.
    """
    grpo = subject.layout.grpo
    if 0 < grpo.dual_clip <= 1:
        yield settled_by(f"dual_clip {grpo.dual_clip:g} is not above 1", "grpo.dual_clip", 3.0)


@rule("B236", "warning", "grpo")
def setting_of_another_variant(subject: Subject) -> Iterator[Trouble]:
    """A setting of GRPO belongs to another variant than the one that is chosen, and nothing reads it.

    CISPO has no dual clip, SAPO no clip range, and only Clip-Cov and KL-Cov choose tokens. A function of your own reads
    what stands in `grpo.<kind>_settings`, and bundled variants do not.
    """
    grpo = subject.layout.grpo
    for kind, names in VARIANTS.items():
        chosen = getattr(grpo, kind)
        others = {key for keys in names.values() for key in keys} - set(names.get(chosen, ()))
        own = {f"{kind}_settings"} if not is_own(chosen) else set()
        for field in structs.fields(Grpo):
            value, usual = getattr(grpo, field.name), {} if field.name in own else field.default
            if field.name in others | own and value != usual:
                message = f"{field.name} has no effect with {kind} {chosen}"
                fixes = () if field.name in own else (f"grpo.{field.name}={usual}",)  # settings of what function?
                yield Trouble(message, f"grpo.{field.name}", fixes)


@rule("B237", "note", "grpo")
def sequence_ratio_with_token_mean(subject: Subject) -> Iterator[Trouble]:
    """The ratio is that of whole samples, but the loss is averaged over tokens: long samples weigh more.

    GSPO (Zheng et al. 2025) and GMPO (Zhao et al. 2025) average over samples, and so does SAPO (Gao et al. 2025).
    """
    grpo = subject.layout.grpo
    if grpo.ratio in ("sequence", "gmpo", "sapo") and grpo.aggregation in ("token", "dr_grpo"):
        message = f"ratio {grpo.ratio} with aggregation {grpo.aggregation}"
        yield settled_by(message, "grpo.aggregation", "sequence")


@rule("B238", "error", "grpo")
def importance_window(subject: Subject) -> Iterator[Trouble]:
    """The window of importance weights leaves out tokens on which trainer and engine agree: it must hold 1.

    IcePop keeps weights from 0.5 to 5.
    """
    grpo = subject.layout.grpo
    if "mask" not in grpo.importance or grpo.importance_low <= 1 <= grpo.importance_cap:
        return
    yield Trouble(
        f"weights are kept from {grpo.importance_low:g} to {grpo.importance_cap:g}, which does not hold 1",
        "grpo.importance_low",
        ("grpo.importance_low=0.5", "grpo.importance_cap=5.0"),
    )


@rule("B239", "error", "grpo")
def active_sampling_of_everything(subject: Subject) -> Iterator[Trouble]:
    """Active sampling draws prompts until enough groups have a signal, but groups without one are to be trained on."""
    grpo = subject.layout.grpo
    if grpo.active_sampling_limit > 1 and not grpo.filter_zero_std:
        yield Trouble(
            f"active_sampling_limit {grpo.active_sampling_limit} without filter_zero_std",
            "grpo.active_sampling_limit",
            ("grpo.filter_zero_std=true",),
        )


@rule("B240", "warning", "grpo")
def overlong_penalty_for_all(subject: Subject) -> Iterator[Trouble]:
    """The penalty of long responses begins at the first token, so that short answers are fined too.

    DAPO (Yu et al. 2025) lets it rise over the last fifth of the limit.
    """
    grpo, limit = subject.layout.grpo, subject.layout.lengths.response
    if grpo.overlong_penalty_tokens >= limit:
        yield settled_by(
            f"overlong_penalty_tokens {grpo.overlong_penalty_tokens} of {limit} response tokens",
            "grpo.overlong_penalty_tokens",
            limit // 5,
        )


@rule("B241", "warning", "grpo")
def overlong_penalty_of_masked(subject: Subject) -> Iterator[Trouble]:
    """Cut samples are both fined and left out of the loss.

    The fine then only makes their siblings look better. DAPO (Yu et al. 2025) uses one or the other.
    """
    grpo = subject.layout.grpo
    if grpo.mask_truncated and grpo.overlong_penalty_tokens:
        message = f"overlong_penalty_tokens {grpo.overlong_penalty_tokens} with mask_truncated"
        yield settled_by(message, "grpo.overlong_penalty_tokens", 0)


@rule("B242", "note", "grpo")
def half_of_dr_grpo(subject: Subject) -> Iterator[Trouble]:
    """Samples are summed as Dr. GRPO does, but advantages are divided by the group's deviation.

    Dr. GRPO (Liu et al. 2025) removes both the bias towards short wrong answers and that towards very easy and very
    hard prompts; the second one needs `advantage: centered`.
    """
    grpo = subject.layout.grpo
    if grpo.aggregation == "dr_grpo" and grpo.advantage == "standard":
        message = "aggregation dr_grpo with advantage standard"
        yield settled_by(message, "grpo.advantage", "centered")


@rule("B249", "warning", "grpo")
def groups_left_out_of_the_batch(subject: Subject) -> Iterator[Trouble]:
    """Groups whose samples all earn the same are left out, where they teach something.

    REINFORCE++ (Hu et al. 2025) compares a sample with the whole batch: that all samples of a prompt are right, or
    wrong, is news there. Left out, they shift the mean that the others are compared with.
    """
    grpo = subject.layout.grpo
    if grpo.advantage == "reinforce_plus_plus" and grpo.filter_zero_std:
        message = "filter_zero_std with advantage reinforce_plus_plus"
        yield settled_by(message, "grpo.filter_zero_std", "false")


@rule("B250", "warning", "grpo")
def one_part_of_a_reward(subject: Subject) -> Iterator[Trouble]:
    """GDPO compares the parts of a reward one by one, and this one has a single part, or one that GDPO does not see.

    Parts come from `data.format`, `data.added_rewards`, a function of your own that returns numbers by name, and from
    `grpo.overlong_penalty_tokens` beside these. A KL penalty in the reward is no part: put it into the loss.
    """
    grpo, data = subject.layout.grpo, subject.layout.data
    if grpo.advantage != "gdpo":
        return
    if data.environment or (data.format == "none" and not is_own(data.reward) and not data.added_rewards):
        message = f"advantage gdpo with {'an environment' if data.environment else f'reward {data.reward}'} alone"
        yield settled_by(message, "grpo.advantage", "standard")
    elif grpo.penalises_kl and grpo.kl == "reward":
        yield settled_by("advantage gdpo does not see the KL penalty in the reward", "grpo.kl", "loss")


@rule("B251", "warning", "grpo")
def kl_cov_on_policy(subject: Subject) -> Iterator[Trouble]:
    """KL-Cov penalises how far the policy has moved within a step, which makes one optimizer step: its penalty is 0.

    With `train.optimizer_steps` or `train.epochs` above 1 the policy moves before the last of them.
    """
    grpo, train = subject.layout.grpo, subject.layout.train
    if grpo.ratio == "kl_cov" and train.optimizer_steps * train.epochs == 1:
        yield Trouble("ratio kl_cov with one optimizer step a batch", "grpo.ratio", ("train.optimizer_steps=2",))
