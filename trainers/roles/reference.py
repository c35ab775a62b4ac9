"""The reference: a frozen copy of the policy as it was at the start, as a Ray actor class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainers.roles.meter import measured

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rltui.layout.schema import Layout
    from trainers.data.batch import Rows
    from trainers.data.images import ImageReader

TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Reference:
    """One replica of the reference; each has the whole model and its share of the rows.

    Args:
        layout: The layout.
        model_path: Folder of the model.
    """

    def __init__(self, layout: Layout, model_path: str) -> None:
        self._layout, self._model_path = layout, model_path
        self._model: Any = None
        self._reader: ImageReader | None = None

    @measured("load")
    def load(self) -> float:
        """Load the model; returns the seconds taken."""
        began = time.monotonic()
        from trainers.data.images import image_reader
        from trainers.roles.forward import load_frozen

        role = self._layout.roles.reference
        assert role is not None
        self._reader = image_reader(self._layout, self._model_path)
        self._model = load_frozen(self._model_path, role.precision, self._layout.lengths.pack)
        return time.monotonic() - began

    @measured("log-probs")
    def log_probs(self, rows: Rows) -> NDArray[np.float32]:
        """Log-probabilities [B, R] of the response tokens of ``rows``."""
        from trainers.roles.forward import measure_log_probs, scorer

        score, size = scorer(self._model, self._layout.train.temperature), self._layout.roles.learner.micro_batch
        return measure_log_probs(score, rows, size, self._model.device, self._reader)

    def release_card(self) -> None:
        """Leave to an engine on the same card what this process does not use."""
        from trainers.roles.card import release_card

        release_card()
