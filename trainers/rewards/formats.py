"""Part of a reward for the form of an answer, whatever it says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainers.rewards.answers import Answer, Reward, boxed
from trainers.rewards.parts import SumOfParts

FORM = "data.format"
"""The part's name, which no user's own part has: that would be overwritten."""

_ANSWER_TAGS = re.compile(r"<answer>(?:(?!</?answer>).)*</answer>\s*\Z", re.DOTALL)
_THINK_THEN_ANSWER = re.compile(
    r"\s*<think>(?:(?!</?think>).)+</think>\s*<answer>(?:(?!</?answer>).)*</answer>\s*", re.DOTALL
)
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n.+?```", re.DOTALL | re.IGNORECASE)


def has_format(kind: str, text: str) -> bool:
    r"""Whether ``text`` has the form ``kind``.

    ``boxed``: a ``\boxed{…}`` that ends; ``answer_tags``: one ``<answer>…</answer>``, at the end; ``think_answer``:
    ``<think>…</think>`` and then that, nothing else; ``code_block``: one fenced block of code.
    """
    if kind == "boxed":
        return boxed(text) is not None
    if kind == "answer_tags":
        return text.count("<answer>") == 1 and _ANSWER_TAGS.search(text) is not None
    if kind == "think_answer":
        return _THINK_THEN_ANSWER.fullmatch(text) is not None
    return len(_FENCED.findall(text)) == 1


class WithFormat:
    """Another reward, of which a share goes to the form of the answer."""

    def __init__(self, reward: Reward, kind: str, weight: float) -> None:
        self._reward, self._kind, self._weight = reward, kind, weight

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """``(1 - weight) * reward + weight * form``."""
        weight, found = self._weight, list[float]()
        for reward, answer in zip(self._reward.score(answers), answers, strict=True):
            own = reward.parts if isinstance(reward, SumOfParts) else {"answer": (reward, 1.0)}
            parts = {name: (value, (1 - weight) * share) for name, (value, share) in own.items()}
            found.append(SumOfParts({**parts, FORM: (float(has_format(self._kind, answer.text)), weight)}))
        return found

    def close(self) -> None:
        """End what the reward beside the format's started."""
        self._reward.close()
