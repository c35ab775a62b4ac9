"""What reference and reward model share: a model that never changes, whole or divided over the role's ranks."""

from __future__ import annotations

import abc
import time
from typing import Any, ClassVar

from rltui.layout.schema import Layout
from trainers.roles.deepspeed_rank import Meeting, join_ranks, patience
from trainers.roles.meter import measured
from trainers.roles.zero import deepspeed_config


class FrozenRank(Meeting, abc.ABC):
    """One rank; subclasses say which model, and what it is asked.

    Args:
        layout: The layout.
        rank: Number of this one.
        model_path: Folder of the model.

    Attributes:
        kind: The role's name in the layout.
    """

    kind: ClassVar[str]

    def __init__(self, layout: Layout, rank: int, model_path: str) -> None:
        self._layout, self._rank, self._model_path = layout, rank, model_path
        self._model: Any = None

    @abc.abstractmethod
    def _load_model(self, divided: dict[str, Any] | None) -> Any:
        """The model, with DeepSpeed's configuration where ranks divide its weights."""

    @measured("load")
    def load(self, host: str = "", port: int = 0) -> float:
        """Load the model, with the other ranks at ``host:port`` where they divide it; returns the seconds taken.

        Raises:
            ValueError: The model is not what the role needs.
        """
        began, divided = time.monotonic(), None
        if self.kind in self._layout.divided:
            join_ranks(host, port, self._rank, self._layout.slots_of(self.kind), patience(self._layout))
            divided = self._division()
        self._model = self._load_model(divided)
        return time.monotonic() - began

    def _division(self) -> dict[str, Any]:
        """DeepSpeed's configuration: that of a critic, which has no optimizer here."""
        import torch
        from transformers import AutoConfig

        from rltui.layout.roles import Critic

        width = AutoConfig.from_pretrained(self._model_path).get_text_config().hidden_size
        like = Critic(zero_stage=3, precision=getattr(self._layout.roles, self.kind).precision)
        return deepspeed_config(like, self._layout.train, width, has_gpu=torch.cuda.is_available())
