"""Rules about environments."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rltui.check.bundled import AGENTS, ENVIRONMENTS
from rltui.check.rule import Subject, Trouble, rule, settled_by


@rule("D522", "error")
def unknown_environment(subject: Subject) -> Iterator[Trouble]:
    """An environment called builtin/… is not one of those that rltui brings."""
    name = subject.layout.data.environment
    if name.startswith("builtin/") and name not in ENVIRONMENTS:
        match = difflib.get_close_matches(name, ENVIRONMENTS, n=1, cutoff=0.0)[0]
        message = f"there is no environment {name!r}; known: {', '.join(ENVIRONMENTS)}"
        yield settled_by(message, "data.environment", match)


@rule("D523", "warning")
def turns_without_room(subject: Subject) -> Iterator[Trouble]:
    """A response has no room for as many turns as a sample may have.

    `lengths.response` is for all answers of a sample together and for what the environment says between them. The
    shortest turn has three tokens: an answer of one, its end, and one of the environment.
    """
    data, response = subject.layout.data, subject.layout.lengths.response
    needed = 3 * data.max_turns - 1
    if data.environment and response < needed:
        most = (response + 1) // 3
        fix = f"data.max_turns={most}" if most else f"lengths.response={needed}"
        message = f"{data.max_turns} turns take {needed} tokens at least, the limit is {response}"
        yield Trouble(message, "data.max_turns", (fix,))


@rule("D529", "error")
def environment_of_another_kind(subject: Subject) -> Iterator[Trouble]:
    """A bundled environment is an agent and `data.environment_kind` says steps, or the other way round."""
    data = subject.layout.data
    if data.environment in ENVIRONMENTS:
        kind = "agent" if data.environment in AGENTS else "steps"
        if data.environment_kind != kind:
            message = f"{data.environment} is of the kind {kind}"
            yield settled_by(message, "data.environment_kind", kind)


@rule("D524", "error")
def reward_beside_environment(subject: Subject) -> Iterator[Trouble]:
    """A reward is named beside an environment, which gives the rewards itself.

    What an environment's steps return is all that a sample earns; `data.reward` and `data.format` would not be asked.
    `coin` is the exception: the control that must not learn.
    """
    data = subject.layout.data
    if not data.environment:
        return
    if data.reward not in ("exact", "none", "coin"):
        yield settled_by(f"reward {data.reward} beside the environment {data.environment}", "data.reward", "none")
    if data.added_rewards:
        message = f"added rewards beside the environment {data.environment}"
        yield settled_by(message, "data.added_rewards", "{}")
    if data.format != "none":
        yield settled_by(f"format {data.format} beside the environment {data.environment}", "data.format", "none")
