"""The reference: a frozen copy of the policy as it was at the start, as a Ray actor class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.batch import Rows
from trainers.data.images import ImageReader
from trainers.roles.frozen import FrozenRank
from trainers.roles.meter import measured


class Reference(FrozenRank):
    """One rank of the reference, with its share of the rows, and the whole model or its share of the weights."""

    kind = "reference"
    _reader: ImageReader | None = None

    def _load_model(self, divided: dict[str, Any] | None) -> Any:
        from trainers.data.images import image_reader
        from trainers.roles.forward import load_frozen

        role = self._layout.roles.reference
        assert role is not None
        self._reader = image_reader(self._layout, self._model_path)
        return load_frozen(self._model_path, role.precision, self._layout.lengths.pack, divided)

    @measured("log-probs")
    def log_probs(self, rows: Rows) -> NDArray[np.float32]:
        """Log-probabilities [B, R] of the response tokens of ``rows``: as many for all ranks that divide the model."""
        from trainers.roles.forward import measure_log_probs, scorer

        score, size = scorer(self._model, self._layout.train.temperature), self._layout.roles.learner.micro_batch
        return measure_log_probs(score, rows, size, self._model.device, self._reader)
