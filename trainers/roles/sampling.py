"""How engines are told to sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.codec import Codec

LOWEST_TEMPERATURE = 0.01
"""vLLM silently raises lower temperatures to this one, so none of the engines takes them."""


@dataclass(frozen=True)
class SamplingSettings:
    """How to sample.

    Attributes:
        temperature: Divides the logits; at least 0.01, or 0 for the likeliest token each time (greedy).
        max_tokens: Longest completion, in tokens, the stop token included.
        samples_per_prompt: Completions of each prompt.
        stop_token_ids: A completion ends with any of these tokens, which is part of it.
        seed: The same seed, prompts and weights give the same completions.
        stop_texts: A completion also ends with the token that completes any of these texts.
        top_p: Only the likeliest tokens are drawn, as many as it takes for this share of the probability; 1: all.
        top_k: Only so many of the likeliest tokens are drawn; 0: all.
        min_p: Only tokens are drawn that are at least this times as likely as the likeliest one; 0: all.
        forced: The tokens of the completion, in place of drawn ones: it is asked for their log-probabilities, which
            are those of temperature 1; ``max_tokens`` is their number then, and nothing else ends it.
    """

    temperature: float
    max_tokens: int
    samples_per_prompt: int
    stop_token_ids: tuple[int, ...]
    seed: int
    stop_texts: tuple[str, ...] = ()
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    forced: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.temperature and self.temperature < LOWEST_TEMPERATURE:
            raise ValueError(f"temperature is {self.temperature}: engines take 0 or {LOWEST_TEMPERATURE} and more")
        if self.max_tokens < 1 or self.samples_per_prompt < 1:
            raise ValueError("max_tokens and samples_per_prompt must be at least 1")
        if not (0 < self.top_p <= 1 and self.top_k >= 0 and 0 <= self.min_p <= 1):
            raise ValueError(f"top_p {self.top_p}, top_k {self.top_k}, min_p {self.min_p}: one is out of its bounds")
        if self.is_greedy and self.samples_per_prompt > 1:
            raise ValueError(f"{self.samples_per_prompt} samples a prompt at temperature 0 would all be the same one")
        if self.forced and (not self.is_greedy or self.has_stops):
            raise ValueError("a completion that is given is scored at temperature 0, and nothing but its end ends it")

    @property
    def has_stops(self) -> bool:
        """Whether anything but the limit ends a completion."""
        return bool(self.stop_token_ids or self.stop_texts)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken each time."""
        return self.temperature == 0

    @property
    def is_truncated(self) -> bool:
        """Whether unlikely tokens are never drawn."""
        return not self.is_greedy and (self.top_p < 1 or self.top_k > 0 or self.min_p > 0)

    def whole(self) -> SamplingSettings:
        """The same, with every token to be drawn."""
        return replace(self, top_p=1.0, top_k=0, min_p=0.0)


def training_settings(layout: Layout, codec: Codec, seed: int) -> SamplingSettings:
    """How the samples of a step are drawn."""
    train = layout.train
    return SamplingSettings(
        temperature=train.temperature,
        max_tokens=layout.lengths.response,
        samples_per_prompt=train.samples_per_prompt,
        stop_token_ids=codec.stop_token_ids,
        stop_texts=codec.stop_texts,
        seed=seed,
        top_p=train.top_p,
        top_k=train.top_k,
        min_p=train.min_p,
    )


def evaluation_settings(layout: Layout, codec: Codec, seed: int) -> SamplingSettings:
    """How the answers of an evaluation are drawn."""
    data = layout.data
    return replace(
        training_settings(layout, codec, seed),
        temperature=data.eval_temperature,
        samples_per_prompt=data.eval_samples,
        top_p=data.eval_top_p,
        top_k=data.eval_top_k,
        min_p=data.eval_min_p,
    )
