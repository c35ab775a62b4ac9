"""The teacher of on-policy distillation: scores the student's tokens, as a Ray actor class."""

from __future__ import annotations

import time
from typing import Any, Protocol

from numpy.typing import NDArray

from rltui.layout import schema
from rltui.layout.schema import Layout
from trainers.data.batch import Rows
from trainers.data.columns import TeacherScores
from trainers.data.tensors import row_tensors
from trainers.roles.card import OnCard, importing
from trainers.roles.meter import measured


class Scorer(Protocol):
    """What an implementation must do; its constructor loads the model."""

    def score(self, rows: Rows, top_k: int) -> TeacherScores:
        """Score the response tokens of ``rows``, with the ``top_k`` likeliest ones in their place."""


class Teacher(OnCard):
    """One replica of the teacher.

    Args:
        layout: The layout.
        index: Number of this replica.
        model_path: Folder of the model.
    """

    def __init__(self, layout: Layout, index: int, model_path: str) -> None:
        self._layout, self._index, self._model_path = layout, index, model_path
        self._scorer: Scorer | None = None

    @measured("load")
    def load(self) -> float:
        """Load the model; returns the seconds taken.

        Raises:
            ValueError: The engine cannot run this teacher.
        """
        began = time.monotonic()
        role = self._layout.roles.teacher
        assert role is not None
        if role.engine == "vllm":
            with importing():
                from trainers.roles.vllm_teacher import VllmScorer

            self._scorer = VllmScorer(self._layout, role, self._model_path)
        else:
            self._scorer = HfScorer(self._layout, role, self._model_path)
        return time.monotonic() - began

    @measured("generate")
    def score(self, rows: Rows) -> TeacherScores:
        """Score the response tokens of ``rows``; the likeliest ones besides where the layout's estimator needs them."""
        assert self._scorer is not None
        settings = self._layout.opd
        return self._scorer.score(rows, settings.top_k if settings.estimator == "top_k" else 0)


class HfScorer:
    """A teacher by transformers, on one device.

    Args:
        layout: The layout.
        role: The teacher's settings.
        model_path: Folder of the model.

    Raises:
        ValueError: The layout asks for tensor parallelism.
    """

    def __init__(self, layout: Layout, role: schema.Teacher, model_path: str) -> None:
        from trainers.data.images import image_reader
        from trainers.roles.forward import load_frozen

        if role.tensor_parallel != 1:
            raise ValueError("roles.teacher.engine=hf runs on one GPU: set roles.teacher.tensor_parallel=1, or vllm")
        self._temperature, self._micro_batch = layout.train.temperature, layout.roles.learner.micro_batch
        self._model: Any = load_frozen(model_path, role.precision, layout.lengths.pack)
        self._reader = image_reader(layout, model_path)

    def score(self, rows: Rows, top_k: int) -> TeacherScores:
        """Score the response tokens of ``rows``."""
        import numpy as np
        import torch

        from trainers.data.batch import stack

        with torch.no_grad():
            parts = [self._score(part, top_k) for part in rows.micro_batches(self._micro_batch)]
        empty = rows.response_mask.shape
        shapes: list[tuple[tuple[int, ...], Any]] = [
            (empty, np.float32),
            ((*empty, top_k), np.int32),
            ((*empty, top_k), np.float32),
        ]
        columns = list(zip(*parts, strict=True)) if parts else [() for _ in shapes]
        found = [
            stack(column, empty[1]) if column else np.zeros(shape, kind)
            for column, (shape, kind) in zip(columns, shapes, strict=True)
        ]
        return TeacherScores(*found)

    def _score(self, rows: Rows, top_k: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        import torch

        from trainers.roles.forward import response_top_tokens

        tensors = row_tensors(rows, self._model.device, self._reader)
        own, ids, values = response_top_tokens(self._model, tensors, self._temperature, top_k)
        return own.float().cpu().numpy(), ids.to(torch.int32).cpu().numpy(), values.float().cpu().numpy()
