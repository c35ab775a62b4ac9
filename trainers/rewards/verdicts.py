"""What a language model is asked about an answer, and what its verdict is worth: pure functions of texts."""

from __future__ import annotations

import re

from rltui.layout.grading import Judging
from trainers.data.prompts import Prompt
from trainers.rewards.answers import Answer

_PLACES = re.compile(r"\{(question|answer|reference)\}")
THOUGHT_ENDS = "</think>"


def filled(template: str, answer: Answer) -> str:
    """``template`` with question, answer and reference in their places; other braces stay, as in an example in JSON."""
    texts = {"question": question_of(answer.prompt), "answer": answer.text, "reference": answer.prompt.answer}
    return _PLACES.sub(lambda place: texts[place[1]], template)


def question_of(prompt: Prompt) -> str:
    """What was asked, without the words of the policy's chat template.

    Of a conversation each message has its speaker before it, unless one user's message is all.
    """
    if not prompt.messages:
        return prompt.text
    said = [(str(each.get("role", "")), _text_of(each.get("content"))) for each in prompt.messages]
    if len(said) == 1:
        return said[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in said)


def _text_of(content: object) -> str:
    """The text of a message, whose content may stand in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def reward_of_verdict(verdict: str, settings: Judging) -> float | None:
    """What ``verdict`` is worth; None where it says nothing that can be read.

    What the judge thought before it spoke does not count. A number is placed between ``lowest``, worth 0, and
    ``highest``, worth 1; one beyond them is no verdict.
    """
    spoken = verdict.rpartition(THOUGHT_ENDS)[2]
    if settings.verdict == "choice":
        return _of_choice(spoken, settings)
    found = re.findall(settings.pattern, spoken)
    if not found:
        return None
    last = found[-1]
    try:
        number = float(last if isinstance(last, str) else last[0])
    except ValueError:
        return None
    share = (number - settings.lowest) / (settings.highest - settings.lowest)
    return share if 0 <= share <= 1 else None


def _of_choice(spoken: str, settings: Judging) -> float | None:
    """The worth of the last choice that ``spoken`` has as a whole word: CORRECT is not in INCORRECT."""
    words = "|".join(re.escape(choice) for choice in sorted(settings.choices, key=len, reverse=True))
    found = re.findall(rf"(?<!\w)(?:{words})(?!\w)", spoken)
    return settings.choices[found[-1]] if found else None
