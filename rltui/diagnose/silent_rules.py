"""Failures of reinforcement learning that end no run: warnings, by the run's own history, never a reason to kill.

A falling entropy and longer answers are what learning looks like, so each counts only where the reward did not rise
with it. A KL that runs away counts in any case: so does a reward that is fooled.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from rltui.diagnose.recent import Recent, Symptom, numbers

PERSISTENT_STEPS = 3
"""A single NaN is how mixed precision finds its scale; three in a row are not."""

EQUAL_REWARD_STEPS = 10
FAILED = 0.1
"""Share of answers without a reward from where on it is worth a word."""
BY_FAILURES = ("judge_constant", "no_learning_signal", "reward_flat")
"""What a reward that fails looks like besides."""
EQUAL_GROUPS = 0.95
TRUNCATED = 0.25
FLAT_STEPS = 30
PARITY_GROWTH = 5.0
APART = {"parity_max_abs": 0.1, "parity_mean_abs": 0.05, "fresh_mismatch_kl": 0.01, "mismatch_kl": 0.01}
"""Measures of how far trainer and engine are apart, and from where on that is worth a word."""

KL_GROWTH, LEAST_KL = 5.0, 0.3
ENTROPY_LEFT, LEAST_ENTROPY = 0.15, 0.1
LENGTH_GROWTH = 2.0
RACE = 6.0
"""Rise of the reward, in its own usual swings."""


class SilentRule(NamedTuple):
    """One rule: its word, its cause, and the sentence that it has for a run, empty where it has none."""

    word: str
    cause: str
    find: Callable[[Recent], str]


def silent_symptoms(recent: Recent) -> tuple[Symptom, ...]:
    """What goes wrong silently, the worst first."""
    if not recent.is_enough:
        return ()
    newest = structs.replace(recent, first=())
    looks = (newest, recent) if recent.first and recent.first[-1].at < recent.window[0].at else (newest,)
    found = ((rule, next(filter(None, map(rule.find, looks)), "")) for rule in SILENT_RULES)
    told = [Symptom(cause=rule.cause, word=rule.word, sentence=said) for rule, said in found if said]
    causes = {one.cause for one in told}
    beside = BY_FAILURES if "rewards_fail" in causes else BY_FAILURES[1:] if "judge_constant" in causes else ()
    return tuple(one for one in told if one.cause not in beside)


def lost_numbers(recent: Recent) -> str:
    """A loss or gradient norm that is no number for some steps; where writers leave NaN out, one that was there."""
    for name in ("loss", "grad_norm"):
        finite = [step.number(name) is not None for step in recent.steps]
        lost = next((back for back, good in enumerate(reversed(finite)) if good), len(finite))
        was_there = lost < len(finite) and sum(finite) >= 0.5 * (len(finite) - lost)
        if lost >= PERSISTENT_STEPS and (was_there or all(name in step.values for step in recent.steps[-lost:])):
            return f"{name} has been no number for {lost} steps"
    return ""


def drifts_apart(recent: Recent) -> str:
    """Trainer and engine disagree on the same tokens more and more."""
    for name, least in APART.items():
        seen = recent.early_and_late(name)
        if seen is not None and seen[1] > least and seen[1] > PARITY_GROWTH * seen[0] > 0:
            what = "their KL divergence is" if name.endswith("kl") else "log-probabilities differ by"
            return f"{what} {seen[1]:.2g}, {seen[0]:.2g} before"
    return ""


def stale_weights(recent: Recent) -> str:
    """The weights that engines have stopped moving, though there was something to learn."""
    versions = numbers(recent.steps, "weight_version")
    taught = [(step.number("zero_std_fraction") or 0.0) < 1.0 for step in recent.steps[-5:]]
    if len(versions) > 5 and versions[-6] == versions[-1] > versions[0] and all(taught):
        return f"the engines have had weight version {versions[-1]:.0f} for 5 steps"
    took, alike = recent.early_and_late("time/weight_sync"), recent.early_and_late("zero_std_fraction")
    if alike is not None and alike[1] >= 1.0:  # most steps have nothing to learn, and so nothing to send
        return ""
    if took is not None and took[0] > 0.01 and took[1] < 0.02 * took[0]:
        return f"handing over weights takes {took[1]:.2g} s where it took {took[0]:.2g} s: nothing may be sent"
    return ""


def kl_runs_away(recent: Recent) -> str:
    """The policy leaves the reference."""
    seen = recent.early_and_late("kl")
    if seen is None or seen[1] < LEAST_KL or seen[1] < KL_GROWTH * max(0.0, seen[0]):
        return ""
    return f"the KL divergence from the reference is {seen[1]:.2g} a token, {seen[0]:.2g} before"


def entropy_collapses(recent: Recent) -> str:
    """The policy says the same whatever it is asked, and earns no more for it."""
    seen = recent.early_and_late("entropy")
    if seen is None or seen[1] > LEAST_ENTROPY or seen[1] > ENTROPY_LEFT * seen[0] or _earns_more(recent):
        return ""
    return f"entropy fell to {seen[1]:.2g} from {seen[0]:.2g}, and the reward did not rise"


def rewards_fail(recent: Recent) -> str:
    """Many answers get no reward, as what computes it fails."""
    for name, whose in (("reward_failed_fraction", "the reward"), ("judge_failed_fraction", "the judge's verdict")):
        last = numbers(recent.steps[-EQUAL_REWARD_STEPS:], name)
        if len(last) == EQUAL_REWARD_STEPS and (share := statistics.median(last)) >= FAILED:
            return f"{whose} failed for {100 * share:.0f} % of the answers of the last {len(last)} steps"
    return ""


def judge_constant(recent: Recent) -> str:
    """All answers of all prompts get one and the same reward."""
    last = recent.steps[-EQUAL_REWARD_STEPS:]
    rewards = numbers(last, "reward")
    equal = [step.values.get("reward_std", 1.0) <= 1e-6 for step in last]
    if len(rewards) < EQUAL_REWARD_STEPS or max(rewards) - min(rewards) > 1e-6 or not all(equal) or _is_solved(recent):
        return ""
    return f"every answer of the last {len(rewards)} steps got the reward {rewards[-1]:.3g}"


def no_signal(recent: Recent) -> str:
    """Nearly all groups have one reward each: there is nothing to learn from."""
    last = [step.number("zero_std_fraction") or 0.0 for step in recent.steps[-EQUAL_REWARD_STEPS:]]
    if len(last) < EQUAL_REWARD_STEPS or statistics.median(last) < EQUAL_GROUPS or _is_solved(recent):
        return ""
    if min(last) >= 0.999:
        return f"all samples of every prompt got the same reward for {len(last)} steps"
    return f"{100 * statistics.median(last):.0f} % of the prompts had the same reward for all their samples"


def length_explodes(recent: Recent) -> str:
    """Answers grow, and earn no more for it."""
    seen = recent.early_and_late("response_length")
    if seen is None or seen[0] < 1 or seen[1] < LENGTH_GROWTH * seen[0] or _earns_more(recent):
        return ""
    return f"answers have {seen[1]:.0f} tokens, {seen[0]:.0f} before, and the reward did not rise"


def truncated(recent: Recent) -> str:
    """Many answers are cut at the limit, and that does not get better."""
    now, seen = recent.late("truncated_fraction"), recent.early_and_late("truncated_fraction")
    if now is None or now < TRUNCATED or seen is None or seen[1] < max(TRUNCATED, 0.8 * seen[0]):
        return ""
    return f"{100 * now:.0f} % of the answers are cut at the longest length"


def reward_races(recent: Recent) -> str:
    """The reward leaps up while answers change their nature: most often the reward is being fooled."""
    rewards = numbers(recent.steps, "reward")
    seen, length = recent.early_and_late("reward"), recent.early_and_late("response_length")
    if seen is None or length is None or length[0] <= 0 or len(rewards) < 2 * EQUAL_REWARD_STEPS:
        return ""
    swing = statistics.pstdev(recent.baseline("reward"))
    if seen[1] - seen[0] < max(RACE * swing, 0.1 * abs(seen[0]), 1e-3) or 0.5 < length[1] / length[0] < LENGTH_GROWTH:
        return ""
    return f"the reward leapt to {seen[1]:.3g} from {seen[0]:.3g} while answers went from {length[0]:.0f} to " + (
        f"{length[1]:.0f} tokens"
    )


def reward_flat(recent: Recent) -> str:
    """The reward does not move at all, which chance alone would not let be."""
    rewards = numbers(recent.steps[-FLAT_STEPS:], "reward")
    if len(rewards) < FLAT_STEPS or statistics.pstdev(rewards) > max(1e-6, 0.005 * abs(statistics.median(rewards))):
        return ""
    return "" if _is_solved(recent) else f"the reward has been {statistics.median(rewards):.3g} for {FLAT_STEPS} steps"


SILENT_RULES: tuple[SilentRule, ...] = (
    SilentRule("NaN", "nan_or_loss_scale", lost_numbers),
    SilentRule("mismatch", "parity_growth", drifts_apart),
    SilentRule("stale weights", "stale_weights", stale_weights),
    SilentRule("KL runs away", "kl_runs_away", kl_runs_away),
    SilentRule("entropy falls", "entropy_collapse", entropy_collapses),
    SilentRule("rewards fail", "rewards_fail", rewards_fail),
    SilentRule("judge constant", "judge_constant", judge_constant),
    SilentRule("no signal", "no_learning_signal", no_signal),
    SilentRule("reward races", "reward_races", reward_races),
    SilentRule("length grows", "length_explosion", length_explodes),
    SilentRule("truncated", "answers_truncated", truncated),
    SilentRule("reward flat", "reward_flat", reward_flat),
)
"""Warnings, the worst first."""


def _earns_more(recent: Recent) -> bool:
    """Whether the reward rose by more than its own swing: then what else changed may be what was learned."""
    seen = recent.early_and_late("reward")
    if seen is None:
        return False
    swing = statistics.pstdev(recent.baseline("reward"))
    return seen[1] > seen[0] + max(swing, 0.02 * abs(seen[0])) or _is_full(seen[1])


def _is_solved(recent: Recent) -> bool:
    """Whether there is nothing left to learn: the reward rose before it stood still, or is full."""
    rewards = numbers(recent.steps, "reward")
    if not rewards:
        return False
    late = statistics.median(rewards[-EQUAL_REWARD_STEPS:])
    return _is_full(late) or (len(rewards) > EQUAL_REWARD_STEPS and late > max(0.0, *rewards[:3]))


def _is_full(reward: float) -> bool:
    """Whether nearly all answers earn what a right one earns in most tasks."""
    return abs(reward - 1.0) < 0.02
