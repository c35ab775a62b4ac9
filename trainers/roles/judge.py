"""A judge: an engine whose model grades answers and never changes, as a Ray actor class."""

from __future__ import annotations

from typing import Any

from rltui.layout.schema import Layout, Lengths, Rollout
from trainers.roles.card import OnCard
from trainers.roles.engine import EngineActor

BATCHED_TOKENS = 1024
"""Tokens of a step: where it scores, vLLM holds the logits of all of them, outside of what it counts at its start."""


class Judge(OnCard, EngineActor):
    """One replica of the judge; nobody sends it weights.

    Args:
        layout: The layout.
        index: Number of this replica.
        model_path: Folder of the model.
    """

    key = "roles.judge"

    def __init__(self, layout: Layout, index: int, model_path: str) -> None:
        role = layout.roles.judge
        assert role is not None
        own: dict[str, Any] = {"max_num_batched_tokens": max(BATCHED_TOKENS, role.max_concurrency)}
        as_engine = Rollout(
            engine=role.engine,
            tensor_parallel=role.tensor_parallel,
            memory_utilization=role.memory_utilization,
            precision=role.precision,
            max_concurrency=role.max_concurrency,
            engine_args=own if role.engine == "vllm" else {},
        )
        super().__init__(as_engine, model_path, Lengths(prompt=role.context - 1, response=1), index)
