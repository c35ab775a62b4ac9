"""Bottlenecks planted in real runs of the tiny model, for ``record_slow.py``: each patches one place of the trainers.

A run finds this module through a ``sitecustomize`` that imports it, so that the trainers have no word of it in them.
``RLTUI_PLANTED`` names the bottleneck, ``RLTUI_PLANTED_S`` how many seconds each call of it takes longer.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


SECONDS = float(os.environ.get("RLTUI_PLANTED_S", "0"))


def slow_judge(prompt: str, response: str, answer: str, row: Any) -> float:
    """A reward that takes its time."""
    time.sleep(SECONDS)
    return float(response == answer)


def constant_judge(prompt: str, response: str, answer: str, row: Any) -> float:
    """A reward that does not look at the answer."""
    return 0.0


def _later(when: Callable[[Any], bool] = lambda _: True) -> Callable[[Any], Any]:
    def wrap(method: Any) -> Any:
        @functools.wraps(method)
        def slower(self: Any, *args: Any, **kwargs: Any) -> Any:
            if when(self):
                time.sleep(SECONDS)
            return method(self, *args, **kwargs)

        return slower

    return wrap


def _each_token(method: Any) -> Any:
    @functools.wraps(method)
    def slower(*args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        time.sleep(SECONDS * found[0].shape[1])  # tokens of the longest answer
        return found

    return slower


PLANTS: dict[str, tuple[str, str, str, Callable[[Any], Any]]] = {
    "engine-1": ("trainers.roles.hf_engine", "HfEngine", "_generate", _later(lambda engine: engine._index == 1)),
    "generation": ("trainers.roles.hf_engine", "HfEngine", "_generate", _later()),
    "learner": ("trainers.roles.learner", "Learner", "train", _later()),
    "hand-over": ("trainers.roles.hf_engine", "HfEngine", "receive_weights", _later()),
    "disk": ("trainers.roles.deepspeed_rank", "DeepSpeedRank", "save", _later()),
    "teacher": ("trainers.roles.teacher", "Teacher", "score", _later()),
    "critic": ("trainers.roles.critic", "Critic", "_backward", _later()),
    "prompts": ("trainers.data.sort_digits", "SortDigits", "prompts", _later()),
    "decoding": ("trainers.roles.hf_engine", "HfEngine", "_sample", _each_token),
}
"""Bottleneck → module, class, method, and what is done to the method."""


class _Patcher(importlib.abc.MetaPathFinder):
    """Patches the module of a bottleneck when it is imported, and never imports anything by itself."""

    def __init__(self, plant: tuple[str, str, str, Callable[[Any], Any]]) -> None:
        self._module, self._owner, self._method, self._wrap = plant

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            owner = getattr(module, self._owner)
            setattr(owner, self._method, self._wrap(getattr(owner, self._method)))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def plant() -> None:
    """Plant what the environment asks for."""
    found = PLANTS.get(os.environ.get("RLTUI_PLANTED", ""))
    if found is not None:
        sys.meta_path.insert(0, _Patcher(found))
