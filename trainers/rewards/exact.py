"""The reward for a right answer."""

from __future__ import annotations


def exact_reward(text: str, answer: str, stopped: bool) -> float:
    """1.0 where ``text`` is ``answer`` and the sample ended by itself (``stopped``), else 0.0."""
    return float(stopped and text == answer)
