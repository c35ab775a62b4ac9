"""How a training loop ends, without Ray: the checkpoint does not wait for work that nobody will ask for."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from trainers import attempt
from trainers.checkpoint import TrainingState
from trainers.grpo import Grpo

pytestmark = pytest.mark.trainers


@pytest.mark.parametrize("words", ["a stop is requested", "all steps are done"])
def test_the_checkpoint_is_written_before_rewards_under_way_are_waited_for(words: str) -> None:
    done: list[str] = []
    made: Any = object.__new__(Grpo)
    made.layout = load_layout(LAYOUT, ["train.steps=7"]).layout
    made.state = TrainingState(step=7 if words == "all steps are done" else 3)
    made.session = MagicMock()
    made.session.stop.requested = True
    made.rollouts, made.reward, made.prefetches = MagicMock(), MagicMock(), [MagicMock()]
    made.saver, made.reporter, made.evaluations = MagicMock(), MagicMock(), MagicMock()
    made.saver.save.side_effect = lambda state: done.append(f"saved {state.step}")
    made.reward.close.side_effect = lambda: done.append("closed the reward")
    assert attempt.run_steps(made) is (words == "all steps are done")
    assert done == [f"saved {made.state.step}", "closed the reward"]
    assert made.prefetches[0].close.called
    assert made.rollouts.close.called
