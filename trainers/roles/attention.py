"""Attention over packed rows: which kernel, and the proof that no sample sees another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainers.data.tensors import RowTensors
from trainers.roles.sample_attention import attend_by_sample, set_attention

ISOLATION_BOUND = 1e-3
"""Most that a sample's outputs may move, against their size, by what is packed before it; healthy ones do not move."""


def attention_for(precision: str, pack_tokens: int) -> str | None:
    """FlashAttention's kernel for packed rows, where it is installed and has the precision; None: transformers' choice.

    With packed rows, ``prepare_for_packing`` makes the best of that.
    """
    from transformers.utils import is_flash_attn_2_available

    usable = torch.cuda.is_available() and precision != "fp32" and is_flash_attn_2_available()
    return "flash_attention_2" if pack_tokens and usable else None


def prepare_for_packing(model: Any, score: Callable[[RowTensors], torch.Tensor], device: torch.device) -> None:
    """Let ``model`` attend sample by sample where it can, and check that no sample sees another.

    A model that does not tell its attention where samples begin keeps transformers' mask of T x T for a packed row of
    T tokens: right, but T should stay below some 16k.

    Args:
        model: The model; that of a DeepSpeed engine, too.
        score: Its answer for rows, [B, R].
        device: That of the model.

    Raises:
        ValueError: The model looks across samples.
    """
    before = attend_by_sample(model)
    if before is not None:
        try:
            check_isolation(score, device)
        except ValueError:
            # with transformers' mask the model may still be right, only slower: it is tried next
            set_attention(model, before)
        else:
            return
    check_isolation(score, device)


def check_isolation(score: Callable[[RowTensors], torch.Tensor], device: torch.device) -> None:
    """Check that what a model says of a sample does not depend on what is packed before it.

    Not all layers heed positions that start again: recurrent ones do not, nor models with a mask of their own.

    Args:
        score: A model's answer for rows, [B, R].
        device: That of the model.

    Raises:
        ValueError: It does.
    """
    # of one length: the sample behind then stands at the same places, and only what is before it differs
    before = [[3, 4, 5, 6], [7, 5, 4, 3]]
    with torch.no_grad():
        first, other = (score(_packed([ids, [6, 5, 4, 3]], device))[1].float() for ids in before)
    apart, scale = float((first - other).abs().amax()), float(first.abs().amax())
    if apart > ISOLATION_BOUND * scale:
        raise ValueError(
            f"packed rows: the model looks across samples (its outputs move by {apart:.1e} of {scale:.1e}), so that it "
            "cannot train on packed rows; set lengths.pack=0"
        )


def _packed(sequences: list[list[int]], device: torch.device) -> RowTensors:
    """Sequences of the same length, the last two tokens of which are a response, as packed rows."""
    ids = torch.tensor(sequences, device=device)
    present = torch.ones_like(ids, dtype=torch.bool)
    return RowTensors(ids, present, present[:, -2:], {}, is_packed=True)
