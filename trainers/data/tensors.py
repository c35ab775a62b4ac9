"""Rows on a device: what models, losses and metrics compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainers.data.columns import as_tensor
from trainers.data.images import image_inputs
from trainers.data.shared_prompts import shared_prompts

if TYPE_CHECKING:
    import torch

    from trainers.data.batch import Rows
    from trainers.data.images import ImageReader
    from trainers.data.shared_prompts import SharedPrompts
    from trainers.roles.sequence_group import SequenceGroup


@dataclass(frozen=True)
class RowTensors:
    """``Rows`` on a device, in the shapes given there; ids are int64.

    Attributes:
        is_packed: Whether a model is to see them as one packed row.
        images: What a model is called with for the images, see ``trainers.data.images.image_inputs``.
        prompts: Which rows begin alike, where that is worth heeding.
        sequence: The ranks that share the packed row's tokens; None: this one has them all.
        routes: As in ``Rows``.
    """

    token_ids: torch.Tensor
    attention_mask: torch.Tensor
    response_mask: torch.Tensor
    columns: Mapping[str, torch.Tensor]
    is_packed: bool = False
    images: Mapping[str, torch.Tensor] = field(default_factory=dict)
    prompts: SharedPrompts | None = None
    sequence: SequenceGroup | None = None
    routes: torch.Tensor | None = None


def row_tensors(rows: Rows, device: torch.device, reader: ImageReader | None = None) -> RowTensors:
    """``rows`` as tensors on ``device``, ids in int64; ``reader`` makes patches of their images.

    Always copies, because arrays that came through Ray are read-only.
    """
    import torch

    return RowTensors(
        as_tensor(rows.token_ids, device),
        torch.tensor(rows.attention_mask, device=device),
        torch.tensor(rows.response_mask, device=device),
        {name: as_tensor(values, device) for name, values in rows.columns.items()},
        is_packed=bool(rows.packs),
        images=image_inputs(rows, reader, device),
        prompts=shared_prompts(rows, device) if rows.routes is None else None,
        routes=None if rows.routes is None else as_tensor(rows.routes, device),
    )
