"""The reference: a frozen copy of the policy as it was at the start, as a Ray actor class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainers.roles.deepspeed_rank import Meeting, join_ranks, patience
from trainers.roles.meter import measured
from trainers.roles.zero import deepspeed_config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rltui.layout.schema import Layout
    from trainers.data.batch import Rows
    from trainers.data.images import ImageReader


class Reference(Meeting):
    """One rank of the reference, with its share of the rows, and the whole model or its share of the weights.

    Args:
        layout: The layout.
        rank: Number of this one.
        model_path: Folder of the model.
    """

    def __init__(self, layout: Layout, rank: int, model_path: str) -> None:
        self._layout, self._rank, self._model_path = layout, rank, model_path
        self._model: Any = None
        self._reader: ImageReader | None = None

    @measured("load")
    def load(self, host: str = "", port: int = 0) -> float:
        """Load the model, with the other ranks at ``host:port`` where they divide it; returns the seconds taken."""
        began, layout = time.monotonic(), self._layout
        divided = None
        if layout.divides_reference:
            join_ranks(host, port, self._rank, layout.slots_of("reference"), patience(layout))
            divided = self._division()
        from trainers.data.images import image_reader
        from trainers.roles.forward import load_frozen

        role = layout.roles.reference
        assert role is not None
        self._reader = image_reader(layout, self._model_path)
        self._model = load_frozen(self._model_path, role.precision, layout.lengths.pack, divided)
        return time.monotonic() - began

    def _division(self) -> dict[str, Any]:
        """DeepSpeed's configuration: that of a critic, which has no optimizer here."""
        import torch
        from transformers import AutoConfig

        from rltui.layout.roles import Critic

        role = self._layout.roles.reference
        assert role is not None
        width = AutoConfig.from_pretrained(self._model_path).get_text_config().hidden_size
        like = Critic(zero_stage=3, precision=role.precision)
        return deepspeed_config(like, self._layout.train, width, has_gpu=torch.cuda.is_available())

    @measured("log-probs")
    def log_probs(self, rows: Rows) -> NDArray[np.float32]:
        """Log-probabilities [B, R] of the response tokens of ``rows``: as many for all ranks that divide the model."""
        from trainers.roles.forward import measure_log_probs, scorer

        score, size = scorer(self._model, self._layout.train.temperature), self._layout.roles.learner.micro_batch
        return measure_log_probs(score, rows, size, self._model.device, self._reader)

    def release_card(self) -> None:
        """Leave to an engine on the same card what this process does not use."""
        from trainers.roles.card import release_card

        release_card()
