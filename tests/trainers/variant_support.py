"""Bundled variants of GRPO with their settings, for tests that call the functions themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainers.variants import VARIANTS

if TYPE_CHECKING:
    from trainers.losses import Aggregation
    from trainers.ratios import Gains, Tokens

AGGREGATION: dict[str, Aggregation] = VARIANTS["aggregation"]
TOKEN_MEAN = AGGREGATION["token"]


@dataclass(frozen=True)
class Clip:
    """A surrogate with two bounds."""

    low: float
    high: float
    ratio: str = "token"
    dual: float = 0.0

    def __call__(self, tokens: Tokens) -> Gains:
        settings: dict[str, Any] = {"clip_low": self.low, "clip_high": self.high}
        if self.ratio in ("token", "sequence"):
            settings["dual_clip"] = self.dual
        gains: Gains = partial(VARIANTS["ratio"][self.ratio], **settings)(tokens)
        return gains
