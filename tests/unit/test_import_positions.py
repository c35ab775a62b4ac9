"""A checkpoint's own limit of positions, beside the shape that it shares with its family."""

from __future__ import annotations

import pytest

from rltui.hardware.models import known_model


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("Qwen/Qwen2.5-Math-7B", 4096),
        ("Qwen/Qwen2.5-Math-1.5B-Instruct", 4096),
        ("Qwen/Qwen2.5-7B", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", 32768),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131072),
        ("Qwen/Qwen3-4B", 40960),
        ("Qwen/Qwen3-4B-Thinking-2507", 262144),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 262144),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262144),
        ("Qwen/Qwen3-8B-Base", 32768),
        ("Qwen/Qwen3-30B-A3B-Base", 32768),
    ],
)
def test_positions_are_the_checkpoints_own(name: str, positions: int) -> None:
    model = known_model(name)
    assert model is not None
    assert model.max_position == positions
