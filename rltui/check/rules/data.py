"""Rules about data and models."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from rltui.check.bundled import TASKS
from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.layout.grading import SERVED_REWARDS
from rltui.layout.roles import SERVED
from rltui.layout.settings import (
    FIRST_SOURCE,
    MIXTURE_BLOCK,
    Data,
    prompts_per_block,
    rewards_of,
    sources,
)
from rltui.layout.variants import is_own

_MIXTURE = "data.mixture"
_ADDED = "data.added_rewards"
MODELS = ("builtin/tiny-qwen3", "builtin/tiny-qwen3-vl")
LOWEST_TEMPERATURE = 0.01
_WHOLE_NAMES = {
    "gsm8k": "openai/gsm8k",
    "mbpp": "google-research-datasets/mbpp",
    "rlvr-math": "allenai/RLVR-MATH",
    "code_contests": "deepmind/code_contests",
    "dapo-math-17k": "BytedTsinghua-SIA/DAPO-Math-17k",
    "geometry3k": "hiyouga/geometry3k",
    "geo3k": "hiyouga/geometry3k",
}
"""Datasets that are often named without their organisation."""
_PLACEHOLDER = re.compile(
    r"(?<![a-z])(?:TODO|FIXME|CHANGE_?ME|path/to)(?![a-z])|<[^>]*>|\$\{?\w+|\byour[-_]", re.IGNORECASE
)
_NODE_LOCAL = re.compile(r"^(?:/tmp|/dev/shm|/scratch/local|/local|/var/tmp)(?:/|$)")


@rule("D501", "error")
def unknown_task(subject: Subject) -> Iterator[Trouble]:
    """A task called builtin/… is not one of those that rltui brings."""
    data = subject.layout.data
    for key, name in _names(data):
        if name.startswith("builtin/") and name not in TASKS:
            fix = () if key == _MIXTURE else (f"{key}={TASKS[0]}",)
            yield Trouble(f"there is no task {name!r}; known: {', '.join(TASKS)}", key, fix)


@rule("D502", "error")
def lengths_too_short(subject: Subject) -> Iterator[Trouble]:
    """A length limit cuts the task's own prompts or answers.

    Sorting n digits takes a prompt of n + 1 tokens (the digits and '>') and an answer of n + 1 (the digits and the
    end). A shorter limit makes every reward zero.
    """
    layout = subject.layout
    if layout.data.train != TASKS[0]:
        return
    needed = layout.data.digits + 1
    short = [name for name in ("prompt", "response") if getattr(layout.lengths, name) < needed]
    for name in short:
        yield Trouble(
            f"sorting {layout.data.digits} digits takes {needed} {name} tokens, the limit is "
            f"{getattr(layout.lengths, name)}",
            f"lengths.{name}",
            tuple(f"lengths.{other}={needed}" for other in short),
        )


@rule("D503", "error")
def unknown_builtin_model(subject: Subject) -> Iterator[Trouble]:
    """A model called builtin/… is not one of those that rltui makes itself."""
    model = subject.layout.roles.learner.model
    if model.startswith("builtin/") and model not in MODELS:
        match = difflib.get_close_matches(model, MODELS, n=1, cutoff=0.0)[0]
        yield settled_by(f"there is no model {model!r}", "roles.learner.model", match)


@rule("D504", "note")
def control_run(subject: Subject) -> Iterator[Trouble]:
    """The reward is a coin: this run is a control that must not learn."""
    if subject.layout.data.reward == "coin":
        yield Trouble("the reward is a coin flip: a control run, its true reward should fall", "data.reward")


@rule("D508", "error")
def placeholder(subject: Subject) -> Iterator[Trouble]:
    """A name still holds a placeholder, or a variable that nothing expands.

    Layouts are read as they stand: neither a shell nor a resolver looks into them.
    """
    names = [("roles.learner.model", subject.layout.roles.learner.model), *_names(subject.layout.data)]
    names += [(f"roles.{name}.model", role.model) for name, role in subject.roles(*SERVED, "critic", "reference")]
    for key, name in names:
        if _PLACEHOLDER.search(name):
            yield Trouble(f"{name!r} is a placeholder", key)


@rule("D509", "warning")
def node_local_path(subject: Subject) -> Iterator[Trouble]:
    """Several nodes are to read a path that each node has for itself."""
    layout = subject.layout
    nodes = layout.hardware.all_nodes
    if nodes == 1:
        return
    for key, path in (("roles.learner.model", layout.roles.learner.model), *_names(layout.data)):
        if _NODE_LOCAL.match(path):
            yield Trouble(f"{path} is local to each of {nodes} nodes; use a shared folder", key)


@rule("D510", "warning")
def code_in_trainer(subject: Subject) -> Iterator[Trouble]:
    """Generated code would run inside the trainer's own process.

    A sample that loops or exhausts memory then stalls a rank, and with it every collective. Worker processes can be
    killed alone.
    """
    layout = subject.layout
    reward = layout.roles.reward
    runs_code = [name for name, _, one in sources(layout.data) if one.reward == "code"]
    if "code" not in rewards_of(layout.data) or (reward is not None and reward.workers):
        return
    key = "data.reward" if FIRST_SOURCE in runs_code else _MIXTURE if runs_code else _ADDED
    workers = max(1, -(-layout.train.samples_per_step * 10 // 600))  # all of them may run into a timeout of 10 s
    cores = workers * (reward.cpus_per_worker if reward is not None else 1)
    fix = f"roles.reward.workers={workers}" if reward is not None else f"roles.reward={{workers: {workers}}}"
    hardware = layout.hardware
    cpus = hardware.gpus_per_node + 1 + -(-cores // hardware.nodes)
    room = () if hardware.ray_cpus_per_node >= cpus else (f"hardware.cpus_per_node={cpus}",)
    yield Trouble("the reward runs generated code, and there are no reward workers", key, (fix, *room))


@rule("D511", "warning")
def slow_rewards(subject: Subject) -> Iterator[Trouble]:
    """In the worst case rewards take longer than the collectives of waiting ranks.

    Samples × timeout ÷ workers is how long a step of failing samples takes; torch gives up on a collective after ten
    minutes. Environments and agents have limits of their own.
    """
    layout, reward = subject.layout, subject.layout.roles.reward
    if reward is None or not layout.num_reward_workers or layout.data.environment:
        return
    each = -(-layout.train.samples_per_step // reward.workers)
    # the tests of a program have as long each as data allows, and together as long as the role does
    tests_programs = "code" in rewards_of(layout.data)
    limit_s = reward.timeout_s if tests_programs else min(reward.timeout_s, layout.data.reward_timeout_s)
    worst_s = each * limit_s
    if worst_s > 600:
        yield Trouble(
            f"{each} samples a worker × {limit_s:g} s = {worst_s:.0f} s in the worst case",
            "roles.reward.workers",
            (f"roles.reward.timeout_s={max(0.01, 600 * 100 // each / 100):g}",),
        )


@rule("D512", "warning")
def trained_on_the_test(subject: Subject) -> Iterator[Trouble]:
    """The evaluation set is the training set.

    Tasks that are made by rule are no trouble: an evaluation has problems of its own. Of a dataset of the hub, two
    splits are two sets.
    """
    evaluated = subject.layout.data
    for _, _, data in sources(evaluated):
        made = data.eval.startswith(("builtin/", "reasoning-gym/"))
        same = data.eval and data.eval == data.train and not made
        is_set = (data.split, data.subset) == (evaluated.eval_split, evaluated.subset)
        if same and (_is_file(data.eval) or is_set):
            split = "" if _is_file(data.eval) else f", split {data.split},"
            yield Trouble(f"{data.eval}{split} is trained on and evaluated on", "data.eval")


@rule("D513", "error")
def images_longer_than_prompt(subject: Subject) -> Iterator[Trouble]:
    """A prompt's images have more tokens than the prompt may have."""
    lengths = subject.layout.lengths
    if lengths.images >= lengths.prompt:
        yield settled_by(
            f"{lengths.images} image tokens in prompts of {lengths.prompt}", "lengths.prompt", lengths.images + 512
        )


@rule("D514", "error")
def reward_of_another_task(subject: Subject) -> Iterator[Trouble]:
    """Task and reward do not belong together.

    `exact` and `coin` compare with the answer that the task computes, or that stands in a file of your own; `math` and
    `code` parse what a dataset says; `http`, `judge`, `reward_model` and your own function may judge anything, so may
    an environment.
    """
    data = subject.layout.data
    asked = [("data.reward", data.reward, data.train), ("data.eval", data.reward, data.eval)]
    asked += [(_MIXTURE, one.reward, one.train) for one in data.mixture]
    asked += [(_ADDED, reward, one.train) for reward in data.added_rewards for _, _, one in sources(data)]
    for key, reward, name in asked:
        if reward in (*SERVED_REWARDS, "none") or is_own(reward) or data.environment:
            continue
        compares = reward in ("exact", "coin")
        made = name.startswith(("builtin/", "reasoning-gym/"))
        if (made and not compares) or (compares and name and not made and not _is_file(name)):
            fix = (f"data.reward={'exact' if made else 'math'}",) if key == "data.reward" else ()
            yield Trouble(f"reward {reward} for {name}", key, fix)


@rule("D515", "warning")
def reference_of_another_kind(subject: Subject) -> Iterator[Trouble]:
    """The reference is another model than the learner starts from.

    The KL penalty then pulls the policy away from its own start, towards the other model.
    """
    roles = subject.layout.roles
    if roles.reference is not None and roles.reference.model not in ("", roles.learner.model):
        yield settled_by(
            f"the reference is {roles.reference.model}, the learner starts from {roles.learner.model}",
            "roles.reference.model",
            roles.learner.model,
        )


@rule("D516", "note")
def dataset_of_nobody(subject: Subject) -> Iterator[Trouble]:
    """A dataset's name is neither a file nor ORGANISATION/NAME, as nearly all of the Hugging Face hub are.

    A name that does not exist is found only after the job has queued. Other systems name data in their own ways.
    """
    for key, name in _names(subject.layout.data):
        if key not in subject.layout.unsure and name and "/" not in name and not _is_file(name) and "$" not in name:
            whole = _WHOLE_NAMES.get(name.lower(), "")
            fix = (f"{key}={whole}",) if whole and key != _MIXTURE else ()
            yield Trouble(f"{name} has no organisation in front, and is no file", key, fix)


@rule("D517", "note")
def workers_for_nothing(subject: Subject) -> Iterator[Trouble]:
    """There are reward workers, but nothing for them to compute.

    With reward `http` the server computes, and is asked for many samples at once; `none` is no reward.
    """
    layout, reward = subject.layout, subject.layout.roles.reward
    if reward is not None and reward.workers and not layout.num_reward_workers:
        message = f"{reward.workers} reward workers for reward {layout.data.reward}: none is started"
        yield settled_by(message, "roles.reward.workers", 0)


@rule("D518", "error")
def same_answer_again(subject: Subject) -> Iterator[Trouble]:
    """An evaluation asks for several answers to each prompt, and samples greedily.

    At temperature 0 the likeliest token is taken each time, so all answers to a prompt are the same one, and pass@k
    says nothing that pass@1 does not.
    """
    data = subject.layout.data
    if data.eval and data.eval_samples > 1 and not data.eval_temperature:
        yield Trouble(
            f"{data.eval_samples} answers at eval_temperature 0",
            "data.eval_samples",
            (f"data.eval_temperature={subject.layout.train.temperature:g}",),
        )


@rule("D519", "error")
def temperature_too_low(subject: Subject) -> Iterator[Trouble]:
    """A sampling temperature is lower than engines take.

    vLLM raises temperatures between 0 and 0.01 to 0.01 without a word, so no engine takes them; 0, for evaluations, is
    greedy.
    """
    layout = subject.layout
    found = {"train.temperature": layout.train.temperature, "data.eval_temperature": layout.data.eval_temperature}
    for key, temperature in found.items():
        if 0 < temperature < LOWEST_TEMPERATURE:
            yield settled_by(f"temperature {temperature:g} is below {LOWEST_TEMPERATURE}", key, 0.01)


@rule("D526", "note")
def greedy_has_nothing_to_cut(subject: Subject) -> Iterator[Trouble]:
    """An evaluation takes the likeliest token each time, and says which unlikely ones must not be drawn."""
    data = subject.layout.data
    cuts = {"eval_top_p": 1.0, "eval_top_k": 0, "eval_min_p": 0.0}
    for key, nothing in cuts.items():
        if data.eval and not data.eval_temperature and getattr(data, key) != nothing:
            message = f"{key} {getattr(data, key):g} does nothing at eval_temperature 0"
            yield settled_by(message, f"data.{key}", nothing)


@rule("D527", "warning")
def curriculum_of_nothing(subject: Subject) -> Iterator[Trouble]:
    """A curriculum is to pass over prompts by how they were solved, but none comes twice, or none is judged.

    Tasks that are made by rule never repeat a prompt, so nothing is known of the next one; without a reward nothing is
    solved.
    """
    data = subject.layout.data
    repeats = any(not one.train.startswith(("builtin/", "reasoning-gym/")) for _, _, one in sources(data))
    judged = data.environment or rewards_of(data) != ["none"]
    if data.curriculum_skip and not (repeats and judged):
        message = "no prompt comes twice" if judged else "no answer is judged"
        key = "data.curriculum_skip"
        yield settled_by(f"{key} {data.curriculum_skip:g}, but {message}", key, 0.0)


@rule("D525", "error")
def mixture_that_cannot_be(subject: Subject) -> Iterator[Trouble]:
    """A training set of a mixture has another one's name, hardly any weight, or a reward that nobody asks.

    Metrics tell sets apart by name, `train` being that of `data.train`. Of each 1000 prompts a set gets its share in
    whole prompts, so one with less than about 1 in 2000 would never be drawn. In an environment its steps are the
    reward.
    """
    data = subject.layout.data
    names = [name for name, _, _ in sources(data)]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        yield Trouble(f"two training sets are called {name}", _MIXTURE)
    for name, count in zip(names, prompts_per_block(data), strict=True):
        if not count:
            yield Trouble(f"the weight of {name} is less than one prompt in {MIXTURE_BLOCK}", _MIXTURE)
    for one in data.mixture:
        if data.environment and one.reward not in ("exact", "none"):
            yield Trouble(f"reward {one.reward} beside the environment {data.environment}", _MIXTURE)


def _names(data: Data) -> list[tuple[str, str]]:
    """Key and name of every set of prompts."""
    others = [(_MIXTURE, one.train) for one in data.mixture]
    return [("data.train", data.train), *others, ("data.eval", data.eval)]


def _is_file(name: str) -> bool:
    return name.endswith((".jsonl", ".json", ".parquet"))
