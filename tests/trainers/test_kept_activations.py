"""What layers of transformers' models keep for the backward pass, against the estimate: autograd says what it saves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from rltui.hardware.architecture import Architecture
from rltui.hardware.hf_config import architecture_from_config
from rltui.memory.activations import eager_score_bytes, kept_layer_bytes, merged_stack_bytes
from rltui.memory.settings import Adapter, Sharding, Workload

pytestmark = pytest.mark.trainers

TOKENS, HIDDEN = 128, 256
BASE = {
    "hidden_size": HIDDEN, "intermediate_size": 640, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "vocab_size": 64, "max_position_embeddings": 4096, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {
    "num_experts": 8, "num_experts_per_tok": 4, "moe_intermediate_size": 160, "norm_topk_prob": True,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("llama", "mistral", "qwen2", "qwen3", "granite", "smollm3", "exaone4", "starcoder2")},
    "qwen3_moe": EXPERTS,
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
}
"""Types by what they set besides: gated and plain networks, RMSNorm and LayerNorm, norms of queries, experts."""
ADAPTED = ("llama", "qwen3", "starcoder2", "gemma3_text", "qwen3_moe", "mixtral")
"""Gemma's norms keep float32 where they are trained, which is not counted."""
Targets = Literal["attention", "peft"]


@pytest.fixture(autouse=True)
def plain_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeRO-3 in the same process leaves its own function behind, which saves more of frozen weights."""
    monkeypatch.setattr(torch.nn.functional, "linear", torch._C._nn.linear)


def config(family: str, layers: int) -> Any:
    return AutoConfig.for_model(family, **BASE, **FAMILIES.get(family, {}), num_hidden_layers=layers)


@contextmanager
def saved(model: Any) -> Iterator[dict[int, torch.UntypedStorage]]:
    """The storages that autograd saves while this is open, but for the model's own parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage  # which keeps it alive, so that no other has its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield found


def kept_bytes(
    family: str, layers: int, targets: Targets | None, *, attention: str, mask: bool, recompute: bool
) -> int:
    """Bytes that a forward pass of one row of ``TOKENS`` keeps."""
    model = AutoModelForCausalLM.from_config(
        config(family, layers), dtype=torch.bfloat16, attn_implementation=attention
    )
    body = model.model
    if targets is not None:
        names = "all-linear" if targets == "peft" else ["q_proj", "k_proj", "v_proj", "o_proj"]
        get_peft_model(model, LoraConfig(r=1, target_modules=names, lora_dropout=0.0), autocast_adapter_dtype=False)
    if recompute:  # the kind that autograd saves a layer's input for, and no closure holds
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    inputs = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    padding = torch.ones(1, TOKENS, dtype=torch.long)
    padding[0, 0] = 0  # else transformers does without a mask
    with saved(model.train()) as storages:
        output = body(inputs_embeds=inputs, attention_mask=padding if mask else None, use_cache=False)
    assert output.last_hidden_state.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


def a_layer(
    family: str,
    targets: Targets | None = None,
    *,
    attention: str = "sdpa",
    mask: bool = False,
    recompute: bool = False,
) -> float:
    """The same of one layer: what each further one adds."""
    few, more = (
        kept_bytes(family, layers, targets, attention=attention, mask=mask, recompute=recompute) for layers in (1, 3)
    )
    return (more - few) / 2


def shape(family: str) -> Architecture:
    return architecture_from_config(config(family, 1).to_dict(), family)


def said(family: str, targets: Targets | None = None, **how: Any) -> float:
    """The estimate of the same."""
    workload = Workload(tokens=TOKENS, kernels="eager", **{"checkpointing": "none", **how})
    adapter = Adapter(targets=targets) if targets else None
    model = shape(family)
    masks = 2 * TOKENS**2 * workload.mask
    stack, _ = merged_stack_bytes(model, adapter)
    scores, _ = eager_score_bytes(model, Sharding(), workload)
    return TOKENS * kept_layer_bytes(model, workload, adapter) + masks + stack + scores


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_layer_keeps_is_what_is_counted(family: str) -> None:
    assert said(family) == pytest.approx(a_layer(family), rel=0.035)  # indices and sums of a token are not counted


@pytest.mark.parametrize("targets", ["attention", "peft"])
@pytest.mark.parametrize("family", ADAPTED)
def test_adapters_keep_less_of_a_layer_but_all_experts_that_they_are_added_to(family: str, targets: Targets) -> None:
    assert said(family, targets) == pytest.approx(a_layer(family, targets), rel=0.035)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_a_padding_mask_has_keys_and_values_repeated(family: str) -> None:
    assert said(family, mask=True) == pytest.approx(a_layer(family, mask=True), rel=0.035)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_attention_that_is_written_out_keeps_its_scores(family: str) -> None:
    counted = a_layer(family, attention="eager")
    assert said(family, attention="eager") == pytest.approx(counted, rel=0.035)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_moe"])
def test_a_layer_that_is_recomputed_keeps_its_input(family: str) -> None:
    assert said(family, checkpointing="full") == pytest.approx(a_layer(family, recompute=True), rel=0.01)
