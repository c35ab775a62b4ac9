"""Some of the answers that are trained on, as JSON lines for people to read while the run lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rltui.onnode import rundir
from trainers.full_disk import unless_full

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.data.codec import Codec
    from trainers.data.prompts import Prompt
    from trainers.roles.completions import Completion

INTERVAL_S = 10.0
"""Between two steps of which answers are written: fast runs would fill disks."""
KEPT_PROMPTS = 8
"""Prompts of a step of which the first answer is written."""
KEPT_SIBLINGS = 8
"""Answers that are written of the first of these, so that answers to one prompt can be held against each other."""
MOST_CHARACTERS = 20_000
"""Of a prompt's end, and of an answer."""


class SampleLog:
    """Appends to ``samples.jsonl`` of an attempt.

    Each line has ``step``, ``prompt``, ``answer``, ``right_answer``, ``reward``, ``tokens``, ``finish_reason`` and
    ``weight_version`` (of the weights that began it).

    Args:
        attempt: The attempt's directory.
        codec: Makes text of tokens.
        send: Called with the lines that were just written.
    """

    def __init__(self, attempt: Path, codec: Codec, send: Callable[[list[dict[str, Any]]], None]) -> None:
        self._file, self._codec, self._send = attempt / rundir.SAMPLES, codec, send
        self._next = 0.0

    def write(
        self,
        step: int,
        prompts: Sequence[Prompt],
        groups: Sequence[Sequence[Completion]],
        rewards: Sequence[Sequence[float]],
    ) -> None:
        """Write some of the answers of ``step``, unless others were written just now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + INTERVAL_S
        lines = []
        for number, (prompt, group, scores) in enumerate(zip(prompts[:KEPT_PROMPTS], groups, rewards, strict=False)):
            kept = list(zip(group, scores, strict=True))[: 1 if number else KEPT_SIBLINGS]
            lines += [self._line(step, prompt, *one) for one in kept]
        with unless_full():
            for line in lines:
                rundir.append_line(str(self._file), line)
        self._send(lines)

    def _line(self, step: int, prompt: Prompt, found: Completion, reward: float) -> dict[str, Any]:
        line = answer_line(self._codec, step, prompt, found, reward, MOST_CHARACTERS)
        return {**line, "weight_version": found.weight_version}


def answer_line(
    codec: Codec, step: int, prompt: Prompt, found: Completion, reward: float, most_characters: int
) -> dict[str, Any]:
    """An answer for people to read: of its prompt the last ``most_characters``, of the other texts the first."""
    read = codec.transcript if found.response_mask else codec.decode
    return {
        "step": step,
        "prompt": (codec.transcript(found.prompt_ids) or prompt.text)[-most_characters:],
        "answer": read(found.token_ids)[:most_characters],
        "right_answer": prompt.answer[:most_characters],
        "reward": reward,
        "tokens": len(found.token_ids),
        "finish_reason": found.finish_reason,
    }
