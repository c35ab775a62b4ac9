"""What holds up a run that makes steps; the rules that find it are in ``slow_rules.py``."""

from __future__ import annotations

from rltui.diagnose.cause import Cause, Fields, Remedies, exclude_node, safe_word
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Wording

_MILES = ("https://github.com/radixark/miles (its dashboard's rules: alarms before tuning)",)
_OURS = ("the rules of rltui, relative to the run's own steps",)


def said(word: str, confidence: float = 0.8) -> tuple[Wording, ...]:
    """How a symptom is worded: its sentence, which may begin with a GPU and node or a node, and lines for it."""
    sentence = r"(?P<sentence>(?:(?:GPU \d+ of|node) (?P<node>[\w.-]+):? )?.+)"
    pattern = rf"^symptom {word}(?:: {sentence}|, \S.*)$"
    return (Wording(anchor=f"symptom {word.lower()}", pattern=pattern, confidence=confidence),)


def aside(
    cause: str, word: str, title: str, tell: str, remedies: Remedies, *wrong: str, by_miles: bool = False
) -> Cause:
    """A cause beside the training, whose sentence has the numbers."""
    return Cause(
        id=cause,
        tier="aside",
        word=word,
        title=title,
        detail="{sentence}",
        tell=tell,
        wordings=said(word),
        remedies=remedies,
        wrong=wrong,
        sources=_MILES if by_miles else _OURS,
    )


def advice(name: str, *sentences: str, commands: tuple[str, ...] = ()) -> tuple[Remedy, ...]:
    """Remedies in words; what of them the layout can do is added where its checks find it valid."""
    return tuple(
        Remedy(id=f"{name}-{number}" if number else name, summary=each, commands=commands if not number else ())
        for number, each in enumerate(sentences)
    )


def _silent_node(fields: Fields) -> tuple[Remedy, ...]:
    wait = "Let Slurm decide: once it has given the node up, the job starts again from its newest checkpoint."
    leave = exclude_node(fields, "Do not wait for that: start again now, without the node.")
    return (*advice("look-at-node", wait, commands=("sinfo -R", "scontrol show node {node}")), leave)


def _straggler(fields: Fields) -> tuple[Remedy, ...]:
    look = "Compare its node with the others: clocks, temperature, other processes, network."
    known = "<" not in safe_word("node", fields)
    leave = (exclude_node(fields, "Leave the node out at the next start."),) if known else ()
    return (*advice("look-at-node", look), *leave)


_DIVIDE = "rltui plan --run <run>"
"""Other divisions of its GPUs, by the lengths that its responses have."""

CAUSES = (
    aside(
        "rollout_bound", "rollout-bound", "Generation holds up training",
        "Learners rest for most of a step (time/learner_idle), or generation takes 70 % of it where nothing tells "
        "who rests; engines do not wait meanwhile.",
        advice(
            "more-generation", "Give generation more engines or concurrency, or let rollouts run ahead.",
            commands=(_DIVIDE,),
        ),
        "More learners: they would wait as well.",
    ),
    aside(
        "learner_bound", "learner-bound", "Training holds up generation",
        "Engines rest for most of a step (time/engine_idle), or training takes 70 % of it where nothing tells who "
        "rests.",
        advice(
            "more-training", "Give training more: learner GPUs, a larger micro-batch, or rollouts that run ahead.",
            commands=(_DIVIDE,),
        ),
        "More engines: they would wait as well.",
    ),
    aside(
        "teacher_bound", "teacher-bound", "The teacher's scores hold up the step",
        "time/teacher, which is the wait for scores that are not there yet, takes a quarter of a step or more.",
        advice("more-teacher", "Give the teacher more engines, or rollouts that run ahead."),
        "More learner GPUs: they would wait for the same scores.",
    ),
    aside(
        "critic_bound", "critic-bound", "The critic's update holds up the policy's",
        "time/update_critic takes 40 % of a step or more and half as long again as time/update_actor, or as time/train "
        "where that is the policy's alone.",
        advice("more-critic", "Give the critic more GPUs or a larger micro-batch."),
        "More engines: the update comes after them.",
    ),
    aside(
        "reward_bound", "reward-bound", "Rewards hold up the step",
        "time/reward, the wait for rewards that are not there yet, takes a quarter of a step or more. A judge, sandbox "
        "or server is slow, or there are too few workers.",
        advice(
            "faster-rewards",
            "Give rewards more workers, or a judge that answers faster.",
            "See whether single answers run into the time limit: rltui events tells of the first.",
        ),
        "More engines: answers would wait as well.",
    ),
    aside(
        "weight_sync_slow", "sync-bound", "Handing over weights takes much of a step",
        "time/weight_sync is a quarter of time/total or more over the last steps.",
        advice("look-at-network", "See which interface the weights travel over (NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME)."),
        "More engines: each of them needs the weights too.",
    ),
    aside(
        "data_bound", "data-bound", "Preparing data holds up the step",
        "time/data takes a quarter of a step or more.",
        advice(
            "prepare-data",
            "Tokenise the data set once and read it from a local disk; give loading more workers.",
            "Where an environment is reset for each prompt, make that quicker, or give it more processes "
            "(roles.reward.workers).",
        ),
        "More GPUs: they would wait as well.",
    ),
    aside(
        "long_tail", "long tail", "A few long answers hold up the step",
        "The run is rollout-bound, and the longest answer of a step is four times the mean one or more.",
        advice(
            "hide-tail",
            "Let rollouts run ahead of training, so that the tail overlaps with it, or shorten lengths.response."
        ),
        "More engines: the longest answer takes as long on each of them.",
    ),
    aside(
        "kv_bound", "KV-bound", "The engines' KV cache is full",
        "90 % of it or more is in use while half as many requests wait as run, or requests are preempted.",
        advice("more-cache", "Give engines more memory or a larger tensor_parallel, or fewer sequences at once."),
        "More concurrency: what does not fit is preempted and computed anew.",
        by_miles=True,
    ),
    aside(
        "node_silent", "node silent", "A node of the run is not heard of any more",
        "Its sampler, which writes every second, has been silent for a minute while others speak, or Slurm gets no "
        "answer from it. Either the node or its network is gone, and what waits for its processes stands still. After "
        "its SlurmdTimeout (five minutes at most sites) Slurm ends the job or starts it again elsewhere. Where "
        "it answers Slurm, only the sampler ended, or the shared disk does not take what it writes.",
        _silent_node,
        "Waiting for the step: nothing comes from that node until it is back.",
    ),
    aside(
        "engine_silent", "engine silent", "An inference engine does not answer any more",
        "Its server told its counters at /metrics and has not answered for a minute: it is stopped, hangs, or its "
        "machine does.",
        advice(
            "look-at-engine",
            "See what the process does, then end it or start the run again from its newest checkpoint.",
            commands=("py-spy dump --pid <pid>",),
        ),
        "Waiting: a request without a deadline waits for ever.",
    ),
    aside(
        "straggler", "straggler", "One engine or GPU is much slower than its peers",
        "It reaches 60 % of the speed of the others of its role or less, again and again. Of GPUs that wait for one "
        "another, the one that takes the least power at work is the slow one. Where roles are not known, its clock has "
        "to be lower, too: a GPU that only has other work keeps a high one.",
        _straggler,
        "Judging by utilisation: those that wait show 100 % too.",
    ),
    aside(
        "gpu_throttled", "throttled", "A GPU is held back by its hardware",
        "NVML names heat, the power brake or a hardware slowdown for half of the time or more. Or it has 85 °C or more "
        "and takes less power than cooler GPUs of the same role and kind. Where roles are not known, as in most "
        "scripts, these are GPUs of the same program that are 10 °C cooler or more.",
        _straggler,
        "Lowering the load of all others: they wait for this one.",
    ),
    aside(
        "save_overhead", "save overhead", "Checkpoints take much of the time",
        "time/saving adds up to 15 % of the time or more, over two checkpoints at least.",
        advice("save-less-often", "Save less often, or to a faster disk."),
        "No checkpoints at all: a failure then costs the whole run.",
    ),
    aside(
        "evaluation_overhead", "eval overhead", "Evaluations take much of the time",
        "time/evaluate adds up to 20 % of the time or more, over two evaluations at least.",
        advice("evaluate-less-often", "Evaluate less often, or fewer prompts."),
        "More learner GPUs: engines answer the evaluation.",
    ),
    aside(
        "run_slowed", "slowed", "Training became much slower than it was",
        "Tokens a second fell below half of the run's own early steps, in ten seconds of steps at least. Often it "
        "comes before a failure of the network or of a node; longer responses are the harmless reason.",
        advice("look-at-nodes", "Compare the nodes: clocks, power, temperature, network."),
        "Comparing with other runs: lengths and layouts differ.",
    ),
    aside(
        "behind_plan", "behind plan", "A phase takes far longer than cards and layout explain",
        "Generation or training takes more than 1.5 times as long as `rltui plan` expects at its worst, with the "
        "lengths that the run has. Said only where published points of the family tell how far plan may be off.",
        advice(
            "look-at-cards",
            "Try the cluster's cards and links; what is slow there is named.",
            "Look at kernels: attention without FlashAttention, eager engines, tiny micro-batches.",
            commands=("rltui selftest",),
        ),
        "More GPUs: what holds these ones up holds up more of them too.",
    ),
)  # fmt: skip
