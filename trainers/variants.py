"""The variants of GRPO: from the layout's word to the function that it names, bundled or a user's own.

A bundled variant is a function with its paper beside it, in the file of its kind; the settings that it takes as
keywords are keys of the section ``grpo`` (``rltui.layout.variants``). A user's own is called in the same way, with the
settings of ``grpo.<kind>_settings``; what it returns is looked at each time, and what cannot be right ends the run.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rltui.layout.variants import VARIANTS as SETTINGS
from trainers import advantages, losses, ratios

if TYPE_CHECKING:
    from rltui.layout.algorithms import Grpo

VARIANTS: dict[str, dict[str, Callable[..., Any]]] = {
    "advantage": {  # (Groups) to [P, G]
        "standard": advantages.standard,
        "centered": advantages.centered,
        "rloo": advantages.rloo,
        "opo": advantages.opo,
        "gdpo": advantages.gdpo,
        "reinforce_plus_plus": advantages.reinforce_plus_plus,
        "reinforce_plus_plus_baseline": advantages.reinforce_plus_plus_baseline,
    },
    "ratio": {  # (Tokens) to gains and what was bounded, both [B, R]
        "token": ratios.token,
        "sequence": ratios.sequence,
        "cispo": ratios.cispo,
        "gmpo": ratios.gmpo,
        "sapo": ratios.sapo,
        "clip_cov": ratios.clip_cov,
        "kl_cov": ratios.kl_cov,
    },
    "aggregation": {  # (lengths [B], limit) to the weight of a token and what the sample counts, both [B]
        "token": losses.token_mean,
        "sequence": losses.sequence_mean,
        "sequence_sum": losses.sequence_sum,
        "dr_grpo": losses.dr_grpo,
    },
    "kl_estimator": {  # (log_probs, reference_log_probs) to [B, R]
        kind: partial(losses.kl_estimate, kind=kind) for kind in ("k1", "k2", "k3")
    },
    "filter": {  # (rewards [P, G]) to [P] booleans
        "differ": advantages.differ,
        "mean_within": advantages.mean_within,
    },
}


class VariantError(RuntimeError):
    """A user's own function cannot be called, or returns what no loss can be made of."""


def variant(grpo: Grpo, kind: str) -> Callable[..., Any]:
    """The function that ``grpo`` names for a kind of variant, with its settings.

    Raises:
        VariantError: It is the user's own, and cannot be imported or does not take its settings.
    """
    name = getattr(grpo, kind)
    if ":" in name:
        return _own(kind, name, getattr(grpo, f"{kind}_settings"))
    return partial(VARIANTS[kind][name], **{key: getattr(grpo, key) for key in SETTINGS[kind][name]})


def _own(kind: str, name: str, settings: Mapping[str, Any]) -> Own:
    module, _, attribute = name.partition(":")
    takes = {"aggregation": 2, "kl_estimator": 2}.get(kind, 1)
    try:
        function = getattr(importlib.import_module(module), attribute)
        inspect.signature(function).bind(*[None] * takes, **settings)
    except Exception as error:
        raise VariantError(f"grpo.{kind} {name} cannot be called: {type(error).__name__}: {error}") from error
    return Own(kind, name, partial(function, **settings))


@dataclass(frozen=True)
class Own:
    """A user's own function, called as bundled ones are.

    Attributes:
        kind: Of variant.
        name: The layout's word for it.
        function: It, with its settings.
    """

    kind: str
    name: str
    function: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        """What the function returns.

        Raises:
            VariantError: It raised, or returned another shape, numbers that are not finite, or no gradient.
        """
        try:
            found = self.function(*given)
        except Exception as error:
            raise self._error(f"raised {type(error).__name__}: {error}") from error
        if self.kind == "ratio":
            return self._gains(found, given[0])
        if self.kind == "aggregation":
            if not isinstance(found, tuple) or len(found) != 2:
                raise self._error("returned no pair: the weight of each sample's tokens, and what the sample counts")
            return tuple(self._checked(each, given[0].shape) for each in found)
        if self.kind == "filter":
            return self._checked(found, given[0].shape[:1]).bool()
        return self._checked(found, given[0].rewards.shape if self.kind == "advantage" else given[0].shape)

    def _gains(self, found: Any, tokens: ratios.Tokens) -> ratios.Gains:
        gained, changed = found if isinstance(found, tuple) else (found, torch.zeros_like(tokens.mask))
        self._checked(gained, tokens.mask.shape, tokens.mask)
        if tokens.log_probs.requires_grad and not gained.requires_grad:
            raise self._error("returned a tensor without gradient: it must be computed from tokens.log_probs")
        return gained, self._checked(changed, tokens.mask.shape).bool() & tokens.mask

    def _checked(self, found: Any, shape: torch.Size, mask: torch.Tensor | None = None) -> torch.Tensor:
        due = list(shape)
        if not isinstance(found, torch.Tensor):
            raise self._error(f"returned {type(found).__name__}, and a tensor of shape {due} is due")
        if found.shape != shape:
            raise self._error(f"returned a tensor of shape {list(found.shape)}, and {due} is due")
        if not torch.isfinite(found if mask is None else found[mask]).all():
            raise self._error("returned numbers that are not finite")
        return found

    def _error(self, what: str) -> VariantError:
        return VariantError(f"grpo.{self.kind} {self.name} {what}")
