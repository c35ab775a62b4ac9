"""What a run that goes on suffers from, in the words of its own rules."""

from __future__ import annotations

from case import Case

SENTENCES = {
    "rollout_bound": ("rollout-bound", "learners wait for 71 % of each step"),
    "learner_bound": ("learner-bound", "engines wait for 73 % of each step"),
    "teacher_bound": ("teacher-bound", "waiting for the teacher takes 40 % of each step (4 of 10 s)"),
    "critic_bound": ("critic-bound", "the critic's update takes 60 % of each step (6 of 10 s)"),
    "reward_bound": ("reward-bound", "waiting for rewards takes 62 % of each step (6.2 of 10 s)"),
    "weight_sync_slow": ("sync-bound", "handing over weights takes 71 % of each step (71 of 100 s)"),
    "data_bound": ("data-bound", "preparing data takes 30 % of each step (3 of 10 s)"),
    "long_tail": ("long tail", "the longest answer has 8192 tokens and the mean one 900, and the step waits for it"),
    "node_silent": ("node silent", "node n7: its sampler has been silent for 75 s, and it does not answer Slurm"),
    "engine_silent": ("engine silent", "engine 8000 of node1 (pid 77) of 4 has not answered for 95 s"),
    "kv_bound": ("KV-bound", "the KV cache of 4 of 4 engines is full: 80 requests run and 60 wait"),
    "straggler": ("straggler", "engine 1 makes a token at 40 % of the speed of its peers"),
    "gpu_throttled": ("throttled", "GPU 3 of n1 is at 91 °C and takes 300 W, cooler ones of the same role 620 W"),
    "save_overhead": ("save overhead", "checkpoints take 22 % of all time, 4 of them in the last 60 steps"),
    "evaluation_overhead": ("eval overhead", "evaluations take 30 % of all time, 3 of them in the last 60 steps"),
    "run_slowed": ("slowed", "throughput fell to 900 tokens/s from 8100"),
    "behind_plan": (
        "behind plan",
        "training takes 90 s of a step where rltui plan, which may be off by a factor of 2.1, expects 12 s",
    ),
    "parity_growth": ("mismatch", "log-probabilities differ by 0.9, 0.05 before"),
    "stale_weights": ("stale weights", "the engines have had weight version 40 for 5 steps"),
    "kl_runs_away": ("KL runs away", "the KL divergence from the reference is 2.1 a token, 0.04 before"),
    "entropy_collapse": ("entropy falls", "entropy fell to 0.004 from 0.9, and the reward did not rise"),
    "rewards_fail": ("rewards fail", "the reward failed for 40 % of the answers of the last 10 steps"),
    "judge_constant": ("judge constant", "every answer of the last 10 steps got the reward 0"),
    "no_learning_signal": ("no signal", "all samples of every prompt got the same reward for 10 steps"),
    "reward_races": (
        "reward races",
        "the reward leapt to 0.9 from 0.2 while answers went from 800 to 90 tokens",
    ),
    "reward_flat": ("reward flat", "the reward has been 0.12 for 30 steps"),
    "length_explosion": ("length grows", "answers have 4100 tokens, 900 before, and the reward did not rise"),
    "answers_truncated": ("truncated", "41 % of the answers are cut at the longest length"),
}

CASES = {
    cause: Case(
        has=(f"symptom {word}: {sentence}",),
        looks_like=(sentence, f"the symptom {word}: {sentence}", f"symptom of being {word}: {sentence}"),
    )
    for cause, (word, sentence) in SENTENCES.items()
}
