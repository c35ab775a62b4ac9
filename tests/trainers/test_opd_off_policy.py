"""A step of distillation on the dataset's own answers, without Ray: what it says of itself on cards that are known."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.checkpoint import TrainingState
from trainers.data.prompts import Prompt
from trainers.lookahead import StalenessCounter
from trainers.opd import Opd
from trainers.phases import Phases, StepMeter
from trainers.status import StatusBoard
from trainers.utilization import mfu_meter

pytestmark = pytest.mark.trainers

ON_H100 = ["hardware.gpu=H100-SXM-80GB", "roles.learner.model=Qwen/Qwen3-8B", "opd.on_policy_fraction=0.0"]


def loop() -> Any:
    """OPD's loop with prompts of two tokens, and without any roles."""
    made: Any = object.__new__(Opd)
    made.layout = load_layout(ROOT / "layouts/local/opd-tiny.yaml", ON_H100).layout
    made.codec = MagicMock(stop_token_id=2, encode=lambda text: [int(digit) for digit in text])
    made.lookahead = MagicMock(skip=lambda: [Prompt((5, 6), "345") for _ in range(4)])
    made.session = MagicMock(board=StatusBoard(made.layout))
    made.session.layout = made.layout
    made.fleet = MagicMock(engine_sleep=MagicMock(is_used=False, asleep=False))
    made.state, phases = TrainingState(), Phases(made.session.board)
    made.phases = phases
    rollouts = MagicMock(take_occupancy=lambda: 0.0, take_slowest=dict, take_cache=dict)
    rollouts.dispatch.busy_s.return_value = [0.0]
    counted = rollouts, MagicMock(take_rate=dict), phases, StalenessCounter(0)
    made.meter = StepMeter(made.session, made.fleet, *counted, "")
    made.with_teacher_scores, made.optimize, made.sync = list, lambda *_: {"loss": 1.0}, lambda *_: None
    return made


def test_on_known_cards_the_step_comes_to_its_end_and_counts_no_tokens_of_engines() -> None:
    made = loop()
    assert mfu_meter(made.layout, "") is not None
    metrics = made.step()
    assert (made.state.step, made.state.cursor, made.state.weight_version) == (1, 4, 1)
    assert metrics["on_policy"] == 0.0
    assert metrics["response_length"] == 4.0
    assert "time/total" in metrics
    assert "actor_mfu" not in metrics
    told = made.session.board.snapshot()["token_stats"]
    assert told["total_prefill_tokens"] == told["total_decode_tokens"] == told["sample_count"] == 0
