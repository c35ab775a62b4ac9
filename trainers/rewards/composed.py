"""From a layout to the reward function that it names, and from samples to what it gives them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.layout.settings import FIRST_SOURCE, rewards_of, sources
from trainers.rewards.answers import Answer
from trainers.rewards.exact import Exact, Nothing
from trainers.rewards.formats import WithFormat
from trainers.rewards.parts import SumOfParts

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from rltui.layout.settings import Data
    from trainers.data.codec import Codec
    from trainers.data.prompts import Prompt
    from trainers.rewards.answers import Reward
    from trainers.rewards.own import JudgeClient
    from trainers.roles.completions import Completion


def score_groups(
    reward: Reward, codec: Codec, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]
) -> list[list[float]]:
    """The reward of each sample of each prompt."""
    answers = [
        Answer(prompt, codec.decode(sample.token_ids), sample.finish_reason == "stop")
        for prompt, group in zip(prompts, groups, strict=True)
        for sample in group
    ]
    scores = iter(reward.score(answers))
    return [[next(scores) for _ in group] for group in groups]


def make_reward(
    layout: Layout,
    event: Callable[[str, str], None],
    workers: int = 0,
    served: Mapping[str, Reward] | None = None,
    judges: JudgeClient | None = None,
) -> Reward:
    """The reward function of the layout, ready: its workers run, its sandbox is proven.

    Args:
        layout: The layout.
        event: Called with a kind and a text of what is worth an event of the attempt.
        workers: Answers to judge at once; 0: as many as this process may use cores.
        served: Rewards that are there already, by name.
        judges: Whom a function of the user's own may ask; None where the layout has no judge.

    Raises:
        ValueError: A package or a setting that it needs is missing.
        RuntimeError: The sandbox is open, and the layout does not allow that.
    """
    own = make_rewards_of(layout, event, workers, prove=True, limit_s=math.inf, judges=judges, without=served or ())
    return composed(layout.data, {**own, **(served or {})})


def make_rewards_of(
    layout: Layout,
    event: Callable[[str, str], None],
    workers: int,
    prove: bool,
    limit_s: float,
    judges: JudgeClient | None,
    without: Collection[str] = (),
) -> dict[str, Reward]:
    """The rewards of the layout by name, each by itself, but for those in ``without``; see ``make_reward``.

    ``prove`` is whether to try out the sandbox first, ``limit_s`` the longest time for one answer whatever the layout's
    ``data`` allows.
    """
    names = [name for name in rewards_of(layout.data) if name not in without]
    return {
        name: _make(structs.replace(layout.data, reward=name), event, workers, prove, limit_s, judges) for name in names
    }


def composed(data: Data, rewards: Mapping[str, Reward]) -> Reward:
    """The reward of ``data`` out of all that it names, ready and by name."""
    added = {name: (rewards[name], weight) for name, weight in data.added_rewards.items()}
    made = {
        name: Sum({one.reward: (rewards[one.reward], 1.0), **added}) if added else rewards[one.reward]
        for name, _, one in sources(data)
    }
    reward = BySource(made, made[FIRST_SOURCE]) if data.mixture else made[FIRST_SOURCE]
    if data.format == "none":
        return reward
    return WithFormat(reward, data.format, data.format_weight)


class Sum:
    """Several rewards of every answer, each times its weight.

    Args:
        rewards: By name, a reward and its weight.
    """

    def __init__(self, rewards: Mapping[str, tuple[Reward, float]]) -> None:
        self._rewards = rewards

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The weighted sum for each of ``answers``, which remembers its parts."""
        parts: list[dict[str, tuple[float, float]]] = [{} for _ in answers]
        for name, (reward, weight) in self._rewards.items():
            for own, found in zip(parts, reward.score(answers), strict=True):
                if isinstance(found, SumOfParts):
                    # under its reward's name: two functions may both have a part of one name
                    several = {f"{name}.{part}": both for part, both in found.parts.items()}
                else:
                    several = {name: (found, 1.0)}
                own |= {part: (value, share * weight) for part, (value, share) in several.items()}
        return [SumOfParts(own) for own in parts]

    def close(self) -> None:
        """End what the rewards started."""
        for reward, _ in self._rewards.values():
            reward.close()


class BySource:
    """Judges each answer by the reward of the training set that its prompt comes from.

    Args:
        rewards: By name of the training set.
        other: Of prompts that come from none of them, which are those of evaluations.
    """

    def __init__(self, rewards: Mapping[str, Reward], other: Reward) -> None:
        self._rewards, self._other = rewards, other

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The reward of each of ``answers``, in their order; those of one training set are judged together."""
        found = [0.0] * len(answers)
        for name in dict.fromkeys(answer.prompt.source for answer in answers):
            places = [place for place, answer in enumerate(answers) if answer.prompt.source == name]
            scores = self._rewards.get(name, self._other).score([answers[place] for place in places])
            for place, score in zip(places, scores, strict=True):
                # among rewards in parts, a plain one would be read as 0 in all
                found[place] = score if isinstance(score, SumOfParts) else SumOfParts({"answer": (score, 1.0)})
        return found

    def close(self) -> None:
        """End what the rewards started."""
        for reward in self._rewards.values():
            reward.close()


def _make(
    data: Data,
    event: Callable[[str, str], None],
    workers: int,
    prove: bool,
    limit_s: float,
    judges: JudgeClient | None,
) -> Reward:
    """The reward of ``data.reward`` alone; with no number of ``workers``, as many as suit it."""
    cores, timeout_s = workers or _cores(), min(data.reward_timeout_s, limit_s)
    if data.reward == "math":
        from trainers.rewards.math import Math

        return Math(cores, timeout_s)
    if ":" in data.reward:
        from trainers.rewards.own import ASKING, Own

        # who waits for the judge needs no core
        asking = workers or max(cores, ASKING if judges else 0)
        return Own(data.reward, asking, timeout_s, event, judges)
    if data.reward in ("judge", "reward_model"):
        raise ValueError(f"data.reward={data.reward} asks a role of a run, and there is none here")
    if data.reward == "code":
        from trainers.rewards.code import Code
        from trainers.rewards.escape_attempts import ensure_contained
        from trainers.rewards.sandbox import Limits, best_sandbox

        sandbox = best_sandbox(Limits(wall_s=timeout_s, all_s=limit_s))
        if prove:
            ensure_contained(sandbox, data.allow_open_sandbox, event)
        return Code(sandbox, cores, data.all_tests)
    if data.reward == "http":
        from trainers.rewards.remote import Remote

        return Remote(data.reward_url, data.reward_timeout_s, data.reward_token_variable, event)
    if data.reward == "none":
        return Nothing()
    if data.reward in ("exact", "coin"):  # a coin is trained on, and the right answers are measured beside it
        return Exact()
    raise ValueError(f"data.reward={data.reward} is a name that nothing here makes a reward of")


def _cores() -> int:
    """As many as this process may use cores; engines on CPUs and the learners share them."""
    return len(os.sched_getaffinity(0))
