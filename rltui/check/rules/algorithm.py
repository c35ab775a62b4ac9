"""Rules about algorithms and the roles and settings that belong to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rltui.check.bundled import needs_reference
from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.layout.grading import Judging
from rltui.layout.schema import Layout
from rltui.layout.settings import rewards_of
from rltui.layout.variants import is_own


def new_role(layout: Layout, role: str) -> str:
    """The override that adds a reference or critic, which works as the learner does where it could do otherwise."""
    learner = layout.roles.learner
    settings: dict[str, str] = {"precision": learner.precision} if learner.precision != "bf16" else {}
    if role == "critic":
        settings |= {"micro_batch": str(learner.micro_batch)} if learner.micro_batch else {}
        settings |= {"gradient_checkpointing": "true"} if learner.gradient_checkpointing else {}
    return f"roles.{role}={{{', '.join(f'{key}: {value}' for key, value in settings.items())}}}"


@rule("B220", "error")
def kl_without_reference(subject: Subject) -> Iterator[Trouble]:
    """A KL penalty needs a reference model to compare with."""
    layout = subject.layout
    if needs_reference(layout) and layout.roles.reference is None:
        key = f"{layout.algorithm}.kl_coefficient"
        yield Trouble("there is a KL penalty, but no reference role", key, (new_role(layout, "reference"),))


@rule("B221", "warning")
def idle_reference(subject: Subject) -> Iterator[Trouble]:
    """A reference model is loaded, and nothing compares with it.

    It costs 2 bytes a parameter and a forward pass a step, even with a coefficient of zero.
    """
    layout = subject.layout
    if layout.roles.reference is not None and not needs_reference(layout):
        yield settled_by("the reference model is loaded for a KL penalty of 0", "roles.reference", "null")


@rule("B222", "error", "ppo")
def ppo_without_critic(subject: Subject) -> Iterator[Trouble]:
    """PPO needs a critic: its advantages are differences to the values that the critic predicts."""
    layout = subject.layout
    if layout.roles.critic is None:
        yield Trouble("algorithm ppo has no critic role", "roles", (new_role(layout, "critic"),))


@rule("B223", "error", "opd")
def opd_without_teacher(subject: Subject) -> Iterator[Trouble]:
    """On-policy distillation needs a teacher.

    A teacher that rltui is to start is a role; one that somebody else serves on the same nodes is described by
    `hardware.gpus_outside_ray` alone.
    """
    layout = subject.layout
    if layout.roles.teacher is None and not layout.hardware.gpus_outside_ray:
        yield Trouble("algorithm opd has no teacher role", "roles.teacher")


@rule("B224", "warning")
def role_without_use(subject: Subject) -> Iterator[Trouble]:
    """The layout has a role that its algorithm, or its reward, does not use."""
    layout = subject.layout
    asked = rewards_asked(layout)
    if layout.roles.judge is not None and not any(one == "judge" or is_own(one) for one in asked):
        yield settled_by("no reward asks the judge", "roles.judge", "null")
    if layout.roles.reward_model is not None and "reward_model" not in asked:
        yield settled_by("no reward is the reward model's", "roles.reward_model", "null")
    for role, algorithm in (("critic", "ppo"), ("teacher", "opd")):
        if getattr(layout.roles, role) is not None and layout.algorithm != algorithm:
            message = f"algorithm {layout.algorithm} does not use a {role}"
            yield settled_by(message, f"roles.{role}", "null")


def rewards_asked(layout: Layout) -> list[str]:
    """What rewards the answers; nothing where an environment does."""
    return [] if layout.data.environment else rewards_of(layout.data)


@rule("B255", "error")
def reward_without_role(subject: Subject) -> Iterator[Trouble]:
    """The reward asks a judge or a reward model, and the layout has no such role."""
    layout = subject.layout
    for role in ("judge", "reward_model"):
        if role in rewards_asked(layout) and getattr(layout.roles, role) is None:
            yield Trouble(f"reward {role} has no role to ask: add roles.{role} with a model", "roles")


@rule("B256", "error")
def unreadable_verdict(subject: Subject) -> Iterator[Trouble]:
    """What the judge is asked or how its verdict is read cannot work.

    A pattern needs a group that is the number, `choice` needs `choices`, and the judge must be shown the answer.
    """
    judge = subject.layout.data.judge
    if "judge" not in rewards_asked(subject.layout):
        return
    if judge.verdict == "number":
        yield from _number_troubles(judge)
    if judge.verdict == "choice" and not judge.choices:
        yield Trouble("verdict choice has no choices", "data.judge.choices")
    if "{answer}" not in judge.prompt + (judge.continuation if judge.verdict == "likelihood" else ""):
        yield Trouble("the judge is not shown the answer: its prompt has no {answer}", "data.judge.prompt")


def _number_troubles(judge: Judging) -> Iterator[Trouble]:
    try:
        groups = re.compile(judge.pattern).groups
    except re.error as error:
        yield Trouble(f"the pattern is no regular expression: {error}", "data.judge.pattern")
    else:
        if not groups:
            yield Trouble("the pattern has no group that is the number", "data.judge.pattern")
    if judge.lowest == judge.highest:
        yield Trouble(f"lowest and highest are both {judge.lowest:g}", "data.judge.highest")


@rule("B225", "warning")
def section_without_use(subject: Subject) -> Iterator[Trouble]:
    """The layout has the section of another algorithm; nothing reads it."""
    for section in ("grpo", "ppo", "opd"):
        if section != subject.layout.algorithm and section in subject.loaded.document.values:
            yield Trouble(f"the section is not read by algorithm {subject.layout.algorithm}", section)


@rule("B226", "warning", "ppo")
def ppo_kl_at_odds(subject: Subject) -> Iterator[Trouble]:
    """Where the KL penalty goes and how much it weighs contradict each other."""
    ppo = subject.layout.ppo
    if (ppo.kl == "none") != (ppo.kl_coefficient == 0):
        message = f"ppo.kl is {ppo.kl} with kl_coefficient {ppo.kl_coefficient:g}: no penalty is applied"
        yield Trouble(message, "ppo.kl_coefficient", ("ppo.kl=none", "ppo.kl_coefficient=0.0"))


@rule("B227", "error", "ppo")
def warm_up_of_critic_too_long(subject: Subject) -> Iterator[Trouble]:
    """The critic warms up for the whole run, so the policy is never trained."""
    steps, warmup = subject.layout.train.steps, subject.layout.ppo.critic_warmup_steps
    if 0 < steps <= warmup:
        yield settled_by(f"critic_warmup_steps {warmup} of {steps} steps", "ppo.critic_warmup_steps", steps // 20)


@rule("B228", "error")
def no_signal(subject: Subject) -> Iterator[Trouble]:
    """There is no reward, and the algorithm learns from nothing else."""
    layout = subject.layout
    if layout.data.reward == "none" and layout.algorithm != "opd" and not layout.data.environment:
        yield Trouble(f"algorithm {layout.algorithm} has no reward to learn from", "data.reward")


@rule("B230", "warning")
def useless_hpz(subject: Subject) -> Iterator[Trouble]:
    """A secondary ZeRO++ partition costs memory and buys nothing.

    It keeps a copy of the weights in each group of `hpz_partition` GPUs, so that gathers stay inside a node. It needs
    ZeRO-3, and learners on more than one node with at least that many GPUs each.
    """
    layout, learner = subject.layout, subject.layout.roles.learner
    bundles = layout.pools[learner.pool].gpus if learner.pool in layout.pools else learner.gpus
    if learner.hpz_partition <= 1 or not bundles:
        return
    if learner.zero_stage != 3:
        why = f"ZeRO-{learner.zero_stage} has nothing to gather"
    elif len(bundles) == 1:
        why = "all learners are on one node anyhow"
    elif learner.hpz_partition > min(bundles):
        why = f"a node has {min(bundles)} learners, so that its groups span nodes"
    else:
        return
    message = f"hpz_partition {learner.hpz_partition}: {why}"
    yield settled_by(message, "roles.learner.hpz_partition", 0)


@rule("B231", "warning", "opd")
def opd_temperature(subject: Subject) -> Iterator[Trouble]:
    """The student samples at a temperature that the teacher's scores do not have.

    Servers return log-probabilities of prompt tokens unscaled. At another temperature than 1 student and teacher are
    compared on different distributions. A teacher that rltui starts scores at the student's.
    """
    layout = subject.layout
    if layout.roles.teacher is None and layout.train.temperature != 1.0:
        message = f"temperature {layout.train.temperature:g}: the teacher's log-probs are those of temperature 1"
        yield settled_by(message, "train.temperature", 1.0)


@rule("B253", "error")
def one_token_to_draw(subject: Subject) -> Iterator[Trouble]:
    """Only the likeliest token may be drawn, so all samples of a prompt are the same one.

    Nothing can be learned from a group without differences. Of what `top_k` and `min_p` leave, `top_p` leaves less.
    """
    train = subject.layout.train
    if train.samples_per_prompt > 1 and train.top_k == 1:
        yield settled_by("top_k 1 leaves one token to draw", "train.top_k", 0)
    if train.samples_per_prompt > 1 and train.min_p == 1.0:
        yield settled_by("min_p 1 leaves one token to draw", "train.min_p", 0.0)


@rule("B254", "warning", "grpo")
def truncated_without_weights(subject: Subject) -> Iterator[Trouble]:
    """Unlikely tokens are never drawn, and nothing corrects it, or the product over a whole sample does.

    Each token that is drawn is likelier in the samples than in the policy, by the share that was left out. A token's
    importance weight is just that share. With `importance: off` it is missing; the product over a sample's tokens
    (`sequence_product`, `sequence_mask`) falls with its length, so that long samples count for nothing.
    """
    layout = subject.layout
    if layout.train.truncates and layout.grpo.importance in ("off", "sequence_product", "sequence_mask"):
        message = f"truncated sampling with importance {layout.grpo.importance}"
        yield settled_by(message, "grpo.importance", "cap")


@rule("B243", "warning", "grpo")
def stale_without_weights(subject: Subject) -> Iterator[Trouble]:
    """Rollouts run ahead, and nothing corrects that older weights sampled them.

    With `grpo.importance: off` a sample counts as if the policy of the step had drawn it, however far that has moved.
    """
    layout = subject.layout
    if layout.train.async_steps and layout.grpo.importance == "off":
        message = f"samples may be {layout.train.async_steps} steps old, and importance is off"
        yield settled_by(message, "grpo.importance", "cap")


@rule("B257", "warning", "grpo")
def fp8_without_weights(subject: Subject) -> Iterator[Trouble]:
    """Engines compute in fp8, and nothing corrects that they sample from another distribution for it.

    Rounding to 8 bits moves log-probabilities by some percent. Published runs learn in fp8 as in bf16 with truncated
    importance weights, and worse without (FP8-RL, arXiv 2601.18150).
    """
    layout = subject.layout
    if layout.roles.rollout.fp8_keys and layout.grpo.importance == "off":
        yield settled_by("engines sample in fp8, and importance is off", "grpo.importance", "cap")


@rule("B244", "warning")
def inflight_without_running_ahead(subject: Subject) -> Iterator[Trouble]:
    """Engines are to take weights while they sample, but rollouts do not run ahead.

    Where engines and learners take turns, no engine samples when new weights come.
    """
    train = subject.layout.train
    if train.inflight_updates and not train.async_steps:
        message = "inflight_updates has no effect with async_steps 0"
        yield settled_by(message, "train.inflight_updates", "false")


@rule("B232", "warning", "grpo")
def clip_upside_down(subject: Subject) -> Iterator[Trouble]:
    """The clip range is narrower upwards than downwards.

    Clip-higher (DAPO, 2025) widens it upwards, to keep rare tokens alive; the other way round shrinks the entropy.
    """
    grpo = subject.layout.grpo
    if grpo.clip_high < grpo.clip_low:
        yield settled_by(
            f"clip_high {grpo.clip_high:g} is below clip_low {grpo.clip_low:g}", "grpo.clip_high", f"{grpo.clip_low:g}"
        )


@rule("B248", "error", "opd")
def off_policy_without_divergence(subject: Subject) -> Iterator[Trouble]:
    """Distillation takes answers of the dataset, where the layout's estimator or queue has no place for them.

    The sampled-token estimator is an expectation over the student's own samples, and wrong on others'. With rollouts
    that run ahead, the prompts of a step are with the engines before it is drawn whose answers it takes.
    """
    layout = subject.layout
    if layout.opd.on_policy_fraction == 1.0:
        return
    fraction = f"on_policy_fraction {layout.opd.on_policy_fraction:g}"
    if layout.opd.estimator != "top_k":
        yield settled_by(f"{fraction} with the sampled-token estimator", "opd.estimator", "top_k")
    if layout.train.async_steps:
        yield settled_by(f"{fraction} with async_steps {layout.train.async_steps}", "train.async_steps", 0)


LARGEST_ENTROPY_COEFFICIENT = 0.1
"""Published runs have 0.0001 to 0.01; at c, the best policy is the softmax of rewards over c."""


@rule("B252", "warning")
def entropy_outweighs_reward(subject: Subject) -> Iterator[Trouble]:
    """The entropy bonus is so large that the policy would rather be unsure than right.

    What maximises E[R] + c H is the softmax of rewards over c: over a vocabulary of 150,000, with c = 0.1, one right
    token that earns 1 is chosen one time in eight. Published runs have 0.0001 to 0.01.
    """
    coefficient = subject.layout.entropy_coefficient
    if coefficient > LARGEST_ENTROPY_COEFFICIENT:
        key = f"{subject.layout.algorithm}.entropy_coefficient"
        yield settled_by(f"an entropy bonus of {coefficient:g}", key, 0.01)
