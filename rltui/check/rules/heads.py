"""Rules that know the model's shape: heads, key-value heads, length and vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.memory_fix import sequences_at_once, with_word
from rltui.check.rules.widths import divides_heads, widest
from rltui.errors import UsageError
from rltui.hardware.architecture import Architecture
from rltui.hardware.models import known_model, nearest_models, read_config
from rltui.layout.roles import SERVED
from rltui.layout.settings import rewards_of
from rltui.paths import with_home

SAME_TOKENIZER = 0.01
"""Embeddings of one tokenizer are padded to different sizes: 151936 and 152064 entries are the same words."""


def _split_roles(subject: Subject) -> Iterator[tuple[str, int, str, Architecture]]:
    """Key, GPUs, name and shape of every role that splits the heads of a model of the table."""
    roles = subject.layout.roles
    names = {"learner": roles.learner.model, "rollout": roles.learner.model}
    names |= {name: role.model for name, role in subject.roles(*SERVED)}
    keys = [
        (f"roles.{role}.tensor_parallel", getattr(roles, role).tensor_parallel, name) for role, name in names.items()
    ]
    if not subject.layout.system.startswith("megatron"):  # whose context parallelism passes keys round, heads and all
        keys.append(("roles.learner.sequence_parallel", roles.learner.sequence_parallel, roles.learner.model))
    for key, width, name in keys:
        model = known_model(name) if width > 1 else None
        if model is not None:
            yield key, width, name, model


@rule("E310", "error")
def heads_do_not_divide(subject: Subject) -> Iterator[Trouble]:
    """Tensor or sequence parallelism does not divide the model's attention heads.

    Each GPU computes a whole number of heads: 3, 5 and 6 divide neither 32 nor 64 heads, and 40 heads cannot be split
    over 16. Engine or learner refuses to start, after it has queued and loaded.
    """
    for key, width, name, model in _split_roles(subject):
        if model.heads % width:
            yield settled_by(
                f"{key.split('.')[-1]} {width} does not divide {model.heads} attention heads", key, widest(width, name)
            )


@rule("E311", "error")
def kv_heads_do_not_divide(subject: Subject) -> Iterator[Trouble]:
    """Tensor or sequence parallelism and the key-value heads do not divide one another.

    Key-value heads are either spread (a multiple of the GPUs) or replicated (a divisor of them); 7 GPUs divide 28 query
    heads, but not 4 key-value heads.
    """
    for key, width, name, model in _split_roles(subject):
        if model.heads % width == 0 and not divides_heads(width, model):
            yield settled_by(
                f"{key.split('.')[-1]} {width} and {model.kv_heads} key-value heads do not divide one another",
                key,
                widest(width, name),
            )


@rule("E312", "warning")
def kv_heads_replicated(subject: Subject) -> Iterator[Trouble]:
    """There are more GPUs in an engine than key-value heads.

    Heads are then replicated: the KV cache of a token takes as much on each GPU as with fewer of them. Two engines of
    half the width hold up to twice the sequences. Silent where they would hold fewer, because weights fill their cards.
    """
    layout = subject.layout
    for key, width, _, model in _split_roles(subject):
        if width > model.kv_heads and divides_heads(width, model) and not key.startswith("roles.learner"):
            role = key.split(".")[1]
            engines = getattr(layout.roles, role).engines
            fix = [f"{key}={model.kv_heads}"]
            fix += [f"roles.{role}.engines={engines * width // model.kv_heads}"] if engines else []
            now, then = sequences_at_once(layout, role), sequences_at_once(reduce(with_word, fix, layout), role)
            if now is None or then is None or then > now:
                yield Trouble(
                    f"tensor_parallel {width} replicates {model.kv_heads} key-value heads: a token takes as much cache "
                    f"on each GPU as with {model.kv_heads}",
                    key,
                    tuple(fix),
                )


@rule("E313", "error")
def longer_than_model(subject: Subject) -> Iterator[Trouble]:
    """Prompt and response together are longer than the model can position.

    The engine refuses a `max_model_len` above the model's own, or generates noise past it.
    """
    layout = subject.layout
    wanted = layout.lengths.prompt + layout.lengths.response
    model = known_model(layout.roles.learner.model)
    if model is not None and 0 < model.max_position < wanted:
        response = model.max_position - layout.lengths.prompt
        yield Trouble(
            f"prompt {layout.lengths.prompt} + response {layout.lengths.response} = {wanted} tokens, "
            f"{layout.roles.learner.model} has positions for {model.max_position}",
            "lengths.response",
            (f"lengths.response={response}",) if response > 0 else (),
        )


@rule("E314", "error")
def longer_than_teacher(subject: Subject) -> Iterator[Trouble]:
    """The teacher cannot take the student's longest sample.

    It scores prompt and response and must predict one token after them: its length is at least their sum plus one.
    """
    layout, teacher = subject.layout, subject.layout.roles.teacher
    model = known_model(teacher.model) if teacher is not None else None
    wanted = layout.lengths.prompt + layout.lengths.response + 1
    if model is not None and 0 < model.max_position < wanted:
        response = model.max_position - layout.lengths.prompt - 1
        yield Trouble(
            f"the teacher needs {wanted} positions and has {model.max_position}",
            "lengths.response",
            (f"lengths.response={response}",) if response > 0 else (),
        )


@rule("E315", "error")
def longer_than_grader(subject: Subject) -> Iterator[Trouble]:
    """The context of the judge, or of the reward model, is longer than its model can position."""
    for name, role in subject.roles("judge", "reward_model"):
        model, key = known_model(role.model), f"roles.{name}.context"
        if model is not None and 0 < model.max_position < role.context:
            message = f"{key} {role.context}: {role.model} has positions for {model.max_position}"
            yield settled_by(message, key, model.max_position)


@rule("E316", "warning")
def grader_reads_too_little(subject: Subject) -> Iterator[Trouble]:
    """The context of the judge, or of the reward model, has no room for the longest sample (and a judge's verdict).

    What is too long is not asked, and such an answer earns `data.judge.failed`, or `data.scoring.failed`. Tokens are
    those of the policy here; the other model's own may be more or fewer.
    """
    layout, judging = subject.layout, subject.layout.data.judge
    verdict = 0 if judging.verdict == "likelihood" else judging.max_tokens
    sample = layout.lengths.prompt + layout.lengths.response
    words = f"prompt {layout.lengths.prompt} + response {layout.lengths.response}"
    judged = f"{words} + verdict {verdict} = {sample + verdict}, the judge takes"
    scored = f"{words} = {sample}, the reward model takes"
    asked = rewards_of(layout.data)
    for name, wanted, said in (("judge", sample + verdict, judged), ("reward_model", sample, scored)):
        role, key = getattr(layout.roles, name), f"roles.{name}.context"
        if role is not None and name in asked and role.context < wanted:
            yield settled_by(f"{said} {role.context} tokens", key, wanted)


@rule("E317", "error")
def no_reward_model(subject: Subject) -> Iterator[Trouble]:
    """The folder of the reward model holds no classifier with one output, or one with too few positions.

    A language model has no head that scores, and transformers would draw one at random. What is not a folder here is
    looked at when the role loads it.
    """
    role = subject.layout.roles.reward_model
    config = _config_in(role.model) if role is not None else {}
    if role is None or not config:
        return
    labels, text, kinds = config.get("id2label"), config.get("text_config"), config.get("architectures")
    outputs = config.get("num_labels") or (len(labels) if isinstance(labels, dict) else 2)
    positions = (text if isinstance(text, dict) else config).get("max_position_embeddings")
    kind = ", ".join(each for each in kinds if isinstance(each, str)) if isinstance(kinds, list) else ""
    if kind and "SequenceClassification" not in kind:
        yield Trouble(f"{role.model} is no sequence classifier but {kind}", "roles.reward_model.model")
    elif outputs != 1:
        yield Trouble(f"{role.model} has {outputs} outputs, and one is a score", "roles.reward_model.model")
    if isinstance(positions, int) and 0 < positions < role.context:
        key = "roles.reward_model.context"
        yield settled_by(f"{key} {role.context}: {role.model} has positions for {positions}", key, positions)


def _config_in(folder: str) -> dict[str, Any]:
    """What the model in a folder says of itself; nothing where there is none here."""
    try:
        return read_config(with_home(folder) / "config.json")
    except UsageError:
        return {}


@rule("D505", "error")
def different_vocabularies(subject: Subject) -> Iterator[Trouble]:
    """Teacher and student have different vocabularies.

    The teacher scores the student's token numbers: with another tokenizer every score is that of another word.
    """
    roles = subject.layout.roles
    if roles.teacher is None:
        return
    mine, theirs = known_model(roles.learner.model), known_model(roles.teacher.model)
    if mine is None or theirs is None:
        return
    if abs(mine.vocab - theirs.vocab) > SAME_TOKENIZER * max(mine.vocab, theirs.vocab):
        yield Trouble(
            f"{roles.learner.model} has {mine.vocab} tokens, {roles.teacher.model} has {theirs.vocab}",
            "roles.teacher.model",
        )


@rule("D506", "note")
def unknown_shape(subject: Subject) -> Iterator[Trouble]:
    """The model is not in the table of shapes, so heads, lengths and vocabularies are not checked.

    The name may also be wrong: a repository that does not exist is found only after the job has queued.
    """
    for role, found in subject.roles("learner", *SERVED):
        if found.model.startswith(("builtin/", "/", ".", "~")) or known_model(found.model):
            continue
        near = nearest_models(found.model)
        hint = f"; near: {', '.join(near)}" if near else ""
        yield Trouble(
            f"{found.model} is not in the table of models, its heads are not checked{hint}", f"roles.{role}.model"
        )


@rule("D528", "error")
def replay_without_experts(subject: Subject) -> Iterator[Trouble]:
    """Routing replay is asked for, and the policy has no experts.

    Only mixtures of experts send tokens to some of their parameters; of a dense model there is nothing to note.
    """
    layout = subject.layout
    model = known_model(layout.roles.learner.model) if layout.roles.rollout.router_replay else None
    if model is not None and model.experts is None:
        yield settled_by(f"{layout.roles.learner.model} has no experts", "roles.rollout.router_replay", "false")


@rule("D507", "error")
def images_without_eyes(subject: Subject) -> Iterator[Trouble]:
    """Prompts hold images, and the model takes none."""
    layout = subject.layout
    model = known_model(layout.roles.learner.model) if layout.lengths.images else None
    if model is not None and not model.vision_params:
        yield settled_by(
            f"{layout.lengths.images} image tokens for {layout.roles.learner.model}, which takes text only",
            "lengths.images",
            0,
        )
