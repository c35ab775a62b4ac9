"""The variants of GRPO by name, and the settings that each reads: the one place that knows the names.

``trainers/variants.py`` has the function of each; a test holds the two tables equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Meta

OWN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""A function of a user's own, as ``package.module:function``."""

_CLIP = ("clip_low", "clip_high")

VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "advantage": {
        "standard": (),
        "centered": (),
        "rloo": (),
        "opo": (),
        "gdpo": (),
        "reinforce_plus_plus": (),
        "reinforce_plus_plus_baseline": (),
    },
    "ratio": {
        "token": (*_CLIP, "dual_clip"),
        "sequence": (*_CLIP, "dual_clip"),
        "cispo": _CLIP,
        "gmpo": _CLIP,
        "sapo": ("sapo_temperature_positive", "sapo_temperature_negative"),
        "clip_cov": (*_CLIP, "clip_cov_fraction", "clip_cov_low", "clip_cov_high"),
        "kl_cov": ("kl_cov_fraction", "kl_cov_coefficient"),
    },
    "aggregation": {"token": (), "sequence": (), "sequence_sum": (), "dr_grpo": ()},
    "kl_estimator": {"k1": (), "k2": (), "k3": ()},
    "filter": {"differ": (), "mean_within": ("filter_low", "filter_high")},
}
"""By kind, which is a key of the section ``grpo``, and by name: the keys of that section that the variant reads."""


def one_of(names: Iterable[str], description: str) -> Meta:
    """What a text must be: one of ``names``, or a function of the user's own."""
    known = list(names)
    choices: dict[str, Any] = {"examples": known}
    pattern = rf"^({'|'.join(known)}|{OWN})\Z"
    return Meta(pattern=pattern, max_length=200, description=description, extra_json_schema=choices)


def is_own(name: str) -> bool:
    """Whether a reward, a variant or an environment is a function of the user's own: ``package.module:function``."""
    return ":" in name
