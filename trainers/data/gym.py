"""The tasks ``reasoning-gym/NAME``: problems made by rule, endlessly many, each with its own grading."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from trainers.data.prompts import Prompt

if TYPE_CHECKING:
    from trainers.data.chat import Renderer

PREFIX = "reasoning-gym/"
TRIES = 100
"""Problems that are made in the place of one whose prompt is too long, before the length is said to be hopeless."""
BLOCK = 10_000
"""Problems of one generator; some choose the kind of each of them when they are made, so it can't be endless."""
SEEDS = 2**31 - 1

log = logging.getLogger("trainers")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class GymTask:
    """Problems of one generator of reasoning-gym.

    A generator that gets a seed makes its problem number i from seed + i, so runs with neighbouring seeds would share
    nearly all problems. Here a generator serves ``BLOCK`` problems, and its seed is a hash of the run's and its number.

    Args:
        name: ``reasoning-gym/`` and the generator's name.
        options: Settings of the generator, as ``key=value``.
        seed: The run's.
        renderer: From a question to text and tokens.
        longest: Problems with more tokens are left out, and another one is made in their place.

    Raises:
        ValueError: The package is missing, or there is no such generator or setting.
    """

    size = None

    def __init__(self, name: str, options: Sequence[str], seed: int, renderer: Renderer, longest: int) -> None:
        self._name, self._seed, self._renderer, self._longest = name, seed, renderer, longest
        self._settings = dict(_setting(option) for option in options)
        self._made: dict[tuple[int, int], Any] = {}
        self._dataset(0, 0)  # so that a wrong name or setting is told before training
        self.left_out = 0

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        for trial in range(TRIES):
            dataset = self._dataset(index // BLOCK, trial)
            entry = dataset[index % BLOCK]
            text = self._renderer.text(entry["question"])
            tokens = self._renderer.tokens(text)
            if len(tokens) <= self._longest:
                said, grade = self._renderer.messages(entry["question"]), partial(_grade, dataset, entry)
                return Prompt(tokens, str(entry["answer"]), text, grade=grade, messages=said, is_chat=bool(said))
            self.left_out += 1
        raise ValueError(f"{TRIES} problems of {self._name} in a row are longer than lengths.prompt = {self._longest}")

    def _dataset(self, block: int, trial: int) -> Any:
        """The generator of a block's problems, or of what takes the place of the too long ones at a trial."""
        if (block, trial) not in self._made:
            digest = hashlib.sha256(f"{self._name}/{self._seed}/{block}/{trial}".encode()).digest()
            seed = int.from_bytes(digest[:8], "big") % SEEDS
            if len(self._made) > TRIES:
                self._made.clear()
            self._made[block, trial] = _create(self._name.removeprefix(PREFIX), self._settings, seed)
        return self._made[block, trial]


def _grade(dataset: Any, entry: dict[str, Any], said: str) -> float:
    """The generator's own grading of what stands in the last ``<answer>``, or of all that was said."""
    found = _ANSWER.findall(said)
    try:
        return float(dataset.score_answer((found[-1] if found else said).strip(), entry))
    except Exception:  # graders parse what a model wrote, and some stumble over it
        log.debug("grading failed", exc_info=True)
        return 0.0


def _create(name: str, settings: Mapping[str, Any], seed: int) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise ValueError(
            f"the task {PREFIX}{name} takes a package that is not installed: pip install reasoning-gym==0.1.25"
        ) from error
    try:
        return reasoning_gym.create_dataset(name, **{**settings, "seed": seed, "size": BLOCK})
    except (ValueError, TypeError, AssertionError) as error:
        raise ValueError(f"reasoning-gym cannot make {name!r} with {settings or 'its defaults'}: {error}") from error


def _setting(option: str) -> tuple[str, Any]:
    """A setting: numbers, true and false, and lists as JSON has them, the rest is text."""
    key, equals, value = option.partition("=")
    if not equals:
        raise ValueError(f"data.options: {option!r} is not key=value")
    try:
        return key.strip(), msgspec.json.decode(value)
    except msgspec.DecodeError:
        return key.strip(), value
