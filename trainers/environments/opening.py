"""How an environment begins: what it is told of a prompt, and the prompt as it wants it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainers.data.chat import Renderer
from trainers.data.prompts import Prompt
from trainers.environments import Task
from trainers.environments.pool import Environments
from trainers.rewards.own import plain
from trainers.roles.completions import derive_seed


def task_of(prompt: Prompt, seed: int) -> Task:
    """What an environment is told of a prompt, the same for all of its samples."""
    messages = list(prompt.messages) or [{"role": "user", "content": prompt.text}]
    digest = hashlib.blake2b(json.dumps(messages, default=str).encode(), digest_size=6).digest()
    own = derive_seed(seed, int.from_bytes(digest, "big"))
    return Task([plain(said) for said in messages], prompt.answer, plain(prompt.row), own)


class OpenedTask:
    """A task whose prompts are as environments open them.

    Args:
        task: The task.
        environments: What opens them.
        renderer: Writes messages in the model's form.
        longest: Most tokens of a prompt.
        seed: The run's, or the evaluation's.
        event: Called with kind and text.
    """

    def __init__(
        self,
        task: Any,
        environments: Environments,
        renderer: Renderer,
        longest: int,
        seed: int,
        event: Callable[[str, str], None],
    ) -> None:
        self._task, self._environments, self._renderer = task, environments, renderer
        self._longest, self._seed = longest, seed
        self._event, self._has_told = event, False

    @property
    def left_out(self) -> int:
        """Prompts left out so far because the data's own words are longer than ``lengths.prompt``."""
        return int(self._task.left_out)

    @property
    def size(self) -> int | None:
        """Different prompts; None: there is no end to them."""
        found: int | None = self._task.size
        return found

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``; the data's own where an environment fails."""
        found: list[Prompt] = self._task.prompts(cursor, count)
        tasks = [task_of(prompt, self._seed) for prompt in found]
        opened = self._environments.open(tasks)
        return [
            prompt if messages is None or messages == task.messages else self._opened(prompt, messages)
            for prompt, task, messages in zip(found, tasks, opened, strict=True)
        ]

    def _opened(self, prompt: Prompt, messages: list[dict[str, Any]]) -> Prompt:
        """The prompt in the words of its environment, while it is told the data's in each reset."""
        text = self._renderer.text(messages if prompt.is_chat else "".join(said["content"] for said in messages))
        token_ids = self._renderer.tokens(text)
        if len(token_ids) <= self._longest:
            own = prompt.messages or ({"role": "user", "content": prompt.text},)
            return replace(prompt, token_ids=token_ids, text=text, messages=own)
        if not self._has_told:
            self._has_told = True
            words = f"with what its environment says first, a prompt has {len(token_ids)} tokens"
            self._event("data", f"{words}, more than lengths.prompt = {self._longest}: such prompts stay as the data's")
        return prompt
