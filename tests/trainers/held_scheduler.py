"""vLLM's scheduler, which a test can tell to stand still after some steps; vLLM imports it in its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

STEPS = "steps-before-it-stands"
"""File in the model's folder: how many, from when it is woken; it stands until it is woken again."""


class HeldScheduler(Scheduler):
    """An engine in a process of its own samples on while ours waits: only its scheduler can say at which step it is."""

    _left = 0

    def set_pause_state(self, pause_state: PauseState) -> None:
        super().set_pause_state(pause_state)
        asked = Path(self.vllm_config.model_config.model, STEPS)
        if pause_state == PauseState.UNPAUSED and asked.exists():
            self._left = int(asked.read_text())
            asked.unlink()

    def schedule(self, *arguments: Any, **options: Any) -> Any:
        scheduled = super().schedule(*arguments, **options)
        if scheduled.total_num_scheduled_tokens:
            self._left -= 1
            if self._left == 0:
                self.set_pause_state(PauseState.PAUSED_ALL)
        return scheduled
