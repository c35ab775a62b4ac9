"""Failures of learning that end no run; the rules that find them are in ``silent_rules.py``."""

from __future__ import annotations

from rltui.diagnose.causes.slow import advice, aside

CAUSES = (
    aside(
        "parity_growth", "mismatch", "Trainer and engine disagree more and more on the same tokens",
        "parity_max_abs, its mean or the KL divergence is five times what it was. Weights arrive late or not at all, "
        "or the precision does not bear what was learned.",
        advice("check-weight-version", "Compare weight_version of trainer and engines; resume with a fresh engine."),
        "Ignoring it: the policy then trains on samples of another one.",
    ),
    aside(
        "stale_weights", "stale weights", "The engines may not get the learner's weights any more",
        "weight_version stands still for five steps that had something to learn, or the hand-over takes next to no "
        "time where it took some.",
        advice("check-weight-version", "Compare weight_version of trainer and engines; resume with a fresh engine."),
        "Waiting: the samples get older with every step.",
    ),
    aside(
        "kl_runs_away", "KL runs away", "The policy leaves the reference",
        "kl is five times what it was, and 0.3 a token or more.",
        advice("hold-policy", "Look at samples; a higher kl_coefficient or a lower learning rate holds it back."),
        "Judging by the reward alone: it often rises meanwhile.",
    ),
    aside(
        "entropy_collapse", "entropy falls", "The policy has lost its variety and earns no more for it",
        "entropy is below 0.1 and a seventh of what it was, and the reward did not rise with it.",
        advice("raise-entropy", "Look at samples; a higher clip_high, temperature or KL penalty keeps variety."),
        "A higher learning rate.",
    ),
    aside(
        "rewards_fail", "rewards fail", "The reward fails for many answers, which earn nothing by it",
        "reward_failed_fraction or judge_failed_fraction is 0.1 or more for ten steps. The function raises, takes too "
        "long or says no finite number, or verdicts cannot be read.",
        advice("read-failures", "Read the events of kind reward: the first five different failures are there."),
        "Waiting: the policy learns to avoid what the reward cannot judge.",
    ),
    aside(
        "judge_constant", "judge constant", "The judge gives every answer the same reward",
        "reward_std is 0 and reward does not move for ten steps: sandbox down, format never met, or a judge that "
        "answers the same for all.",
        advice("read-samples", "Read some samples and their rewards, then the reward's own log."),
        "Waiting: equal rewards have no gradient.",
    ),
    aside(
        "no_learning_signal", "no signal",
        "All samples of every prompt get the same reward: nothing can be learned from them",
        "zero_std_fraction is 0.95 or more for ten steps: rewards are all zero (sandbox down, format never met) or all "
        "one.",
        advice("read-samples", "Read some samples and their rewards, then the reward's own log."),
        "Waiting: equal rewards have no gradient.", "A higher learning rate.",
    ),
    aside(
        "reward_races", "reward races", "The reward leaps up while the answers change their nature",
        "The reward rose by six times its usual swing while answers became half or twice as long: most often the "
        "reward is being fooled.",
        advice("read-samples", "Read some samples with the highest rewards before you believe them."),
        "Stopping at once: it may be real.",
    ),
    aside(
        "reward_flat", "reward flat", "The reward does not move at all",
        "Over 30 steps it stays within half a per cent, which chance alone would not let be.",
        advice("read-samples", "Read some samples and their rewards: does the reward see the answer at all?"),
        "Waiting for many steps more.",
    ),
    aside(
        "length_explosion", "length grows", "Answers grow longer and earn no more for it",
        "response_length is twice what it was, and the reward did not rise with it.",
        advice("read-samples", "Read the longest samples; overlong_penalty_tokens or a shorter limit helps."),
        "A longer limit: answers grow into it.",
    ),
    aside(
        "answers_truncated", "truncated", "Many answers are cut at the longest length",
        "truncated_fraction is a quarter or more and does not fall.",
        advice(
            "longer-answers",
            "Raise lengths.response if good answers need it; else check the end token, or leave cut answers out "
            "(grpo.mask_truncated).",
        ),
        "Ignoring it: what was cut is judged as wrong.",
        by_miles=True,
    ),
)  # fmt: skip
