"""What transformers' own gated delta rule keeps of a token, counted tensor by tensor on its layer, without memory."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from rltui.memory.activations import DELTA_RULE_KEPT, DELTA_RULE_PEAK

pytestmark = pytest.mark.trainers

TOKENS, VALUE_DIM = 512, 128
PASSING = ("Activation", "Temp", "Gradient")


@pytest.mark.parametrize(("hidden", "value_heads"), [(2048, 32), (1024, 16)], ids=["Qwen3-Next", "half as wide"])
def test_a_layer_keeps_and_peaks_at_what_is_counted(hidden: int, value_heads: int) -> None:
    config = Qwen3NextConfig(num_hidden_layers=4, hidden_size=hidden, linear_num_value_heads=value_heads)
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer = Qwen3NextGatedDeltaNet(config, 0)
        for name, parameter in list(layer.named_parameters()):
            owner, _, last = name.rpartition(".")
            setattr(layer.get_submodule(owner), last, torch.nn.Parameter(parameter.detach().to(torch.bfloat16)))
        states = torch.randn(1, TOKENS, hidden, dtype=torch.bfloat16, requires_grad=True)
        tracker = MemTracker()
        tracker.track_external(layer, states)
        with tracker:
            output = layer(states)
            kept = _passing(tracker, "current")
            output.sum().backward()
        peak = _passing(tracker, "peak")
    values = TOKENS * value_heads * VALUE_DIM
    assert kept / values == pytest.approx(DELTA_RULE_KEPT, rel=0.06)
    assert peak / values == pytest.approx(DELTA_RULE_PEAK, rel=0.06)


def _passing(tracker: MemTracker, kind: str) -> int:
    (snapshot,) = tracker.get_tracker_snapshot(kind).values()
    return sum(size for part, size in snapshot.items() if getattr(part, "value", part) in PASSING)
