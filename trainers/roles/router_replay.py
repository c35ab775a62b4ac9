"""Routing replay (R3): the learner sends each token to the experts that it had when it was sampled.

A router keeps the K experts of largest score. Rounding alone, and weights that moved all the more, turn close choices,
and a token that goes to other experts has quite another log-probability. So engines note which experts each token had,
and the learner takes these in place of its own choice. How much each of them counts is still computed from its own
scores, as the model's family does, so the router has its gradient (Ma et al. 2025, arXiv:2510.11370).

Routes are [T, L, K]: of T tokens, in each of L layers, the numbers of K experts; zeros in layers without experts, as in
vLLM.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = "roles.rollout.router_replay"
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Routers:
    """The routers of a model, which are told which experts to take, or asked which they took.

    Args:
        model: A causal language model of transformers, also within DeepSpeed or peft.

    Raises:
        ValueError: It has none.
    """

    def __init__(self, model: Any) -> None:
        self._layers = int(model.config.get_text_config().num_hidden_layers)
        self._routers = _routers_of(model)
        if not self._routers:
            raise ValueError(f"{KEY}: {type(model).__name__} has no routers; only mixtures of experts have")
        self._top_k = max(router.top_k for router in self._routers.values())
        most = max(router.num_experts for router in self._routers.values())
        # in int64 the routes of one token through 48 layers of 8 experts would take 3 KiB
        self._type = torch.uint8 if most <= 256 else torch.int16
        self._given: torch.Tensor | None = None
        self._taken: dict[int, torch.Tensor] = {}
        for layer, router in self._routers.items():
            router.forward = self._watched(layer, router, router.forward)

    def replay(self, routes: torch.Tensor | None) -> None:
        """Let the passes from here on, and what is recomputed of them, take these ``routes``; None: choose."""
        self._given = routes

    def taken(self) -> NDArray[np.integer[Any]]:
        """The routes of all tokens of the last pass, in the order of the model's input."""
        first = next(iter(self._taken.values()))
        routes = first.new_zeros((len(first), self._layers, self._top_k), dtype=self._type)
        for layer, chosen in self._taken.items():
            routes[:, layer, : chosen.shape[1]] = chosen
        found: NDArray[np.integer[Any]] = routes.cpu().numpy()  # once for all layers: a card would wait each time
        return found

    def _watched(self, layer: int, router: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            given = None if self._given is None else self._given[:, layer, : router.top_k]
            with _Choice(router.num_experts, router.top_k, given) as choice:
                found = forward(*arguments, **keywords)
            if choice.made is None:
                raise ValueError(f"{KEY}: {type(router).__name__} does not choose its experts by their scores alone")
            self._taken[layer] = choice.made.detach()
            return found

        return run


class _Choice(TorchFunctionMode):
    """Within it, the top ``top_k`` of scores [T, ``experts``] are the ``given`` [T, K], where there are any.

    It is the call of topk that is replaced, because families differ in what they make of scores before it and after.
    """

    def __init__(self, experts: int, top_k: int, given: torch.Tensor | None) -> None:
        super().__init__()
        self._experts, self._top_k, self._given = experts, top_k, given
        self.made: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        # DeepSeek's routers call topk over groups of experts, too, before that over experts
        if func not in (torch.topk, torch.Tensor.topk) or found.indices.shape[1:] != (self._top_k,):
            return found
        scores = args[0] if args else kwargs["input"]
        if scores.shape[-1] != self._experts:
            return found
        if self._given is not None:
            if len(self._given) != len(scores):
                raise ValueError(f"{KEY}: routes of {len(self._given)} tokens, and the model reads {len(scores)}")
            found = torch.return_types.topk((scores.gather(1, self._given), self._given))
        self.made = found.indices
        return found


def _routers_of(model: Any) -> dict[int, Any]:
    """The routers of ``model`` by layer: the innermost modules that know how many experts there are and are taken."""
    counted = {
        name: module
        for name, module in model.named_modules()
        if all(isinstance(getattr(module, count, None), int) for count in ("top_k", "num_experts"))
    }
    inner = {name: one for name, one in counted.items() if not any(other.startswith(f"{name}.") for other in counted)}
    layers = {name: _LAYER.search(name) for name in inner}
    return {int(found[1]): inner[name] for name, found in layers.items() if found}


class Recording:
    """The routes of a batch whose prompts are read first, and then one token of each of their samples at a time.

    Args:
        routers: Those of the model.
        samples_per_prompt: Samples that go on from each prompt.
    """

    def __init__(self, routers: Routers, samples_per_prompt: int) -> None:
        self._routers, self._samples = routers, samples_per_prompt
        self._passes: list[NDArray[np.integer[Any]]] = []

    def note(self, sequences: int) -> None:
        """Keep the routes of the last pass, which was over so many sequences."""
        routes = self._routers.taken()
        self._passes.append(routes.reshape(sequences, -1, *routes.shape[1:]))

    def of(self, sample: int, prompt_tokens: int, tokens: int) -> NDArray[np.integer[Any]]:
        """Those of a sample with its prompt; its last token was never read."""
        prompt = self._passes[0][sample // self._samples, -prompt_tokens:]
        return np.concatenate([prompt, self._answers[sample, : tokens - 1]]) if tokens > 1 else prompt

    @functools.cached_property
    def _answers(self) -> NDArray[np.integer[Any]]:
        """Those of all tokens of the samples that were read, [samples, steps - 1, L, K]."""
        return np.concatenate(self._passes[1:], axis=1)
