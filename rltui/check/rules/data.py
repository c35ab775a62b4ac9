"""Rules about data and models."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = ("builtin/sort-digits",)
MODELS = ("builtin/tiny-qwen3",)


@rule("D501", "error")
def unknown_task(subject: Subject) -> Iterator[Trouble]:
    """The training task is not one that the trainers know."""
    if subject.layout.data.train not in TASKS:
        yield Trouble(
            f"there is no task {subject.layout.data.train!r}; known: {', '.join(TASKS)}",
            "data.train",
            (f"data.train={TASKS[0]}",),
        )


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
        yield Trouble(f"there is no model {model!r}", "roles.learner.model", (f"roles.learner.model={match}",))


@rule("D504", "note")
def control_run(subject: Subject) -> Iterator[Trouble]:
    """The reward is a coin: this run is a control that must not learn."""
    if subject.layout.data.reward == "coin":
        yield Trouble("the reward is a coin flip: a control run, its true reward should fall", "data.reward")
