"""What NeMo-RL asserts of its clipped policy-gradient loss."""

from __future__ import annotations

from rltui.check.frameworks.assertion import at_least, choice, never
from rltui.check.frameworks.terms import Setting, absent, at_most, given, off, on, one_of

_LOSS = "nemo_rl/algorithms/loss/loss_functions.py, ClippedPGLossFn"
_CISPO, _SEQUENCE = on("loss_fn.use_cispo"), on("loss_fn.sequence_level_importance_ratios")
_TOKENS = Setting("loss_fn.token_level_loss")
_DUAL = Setting("loss_fn.ratio_clip_c")
_KIND = Setting("loss_fn.truncated_importance_sampling_type")
_CAP = Setting("loss_fn.truncated_importance_sampling_ratio")
_FLOOR = Setting("loss_fn.truncated_importance_sampling_ratio_min")
_CORRECTED = "loss_fn.use_importance_sampling_correction"

TABLE = (
    never(
        "F736",
        "Ratios of whole samples need a loss by sample.",
        _LOSS,
        (_SEQUENCE, on(*_TOKENS.names, default=True)),
        _TOKENS,
        "false",
    ),
    never(
        "F737",
        "CISPO needs the ratio that is switched off.",
        _LOSS,
        (_CISPO, on("loss_fn.disable_ppo_ratio")),
        Setting("loss_fn.disable_ppo_ratio"),
        "false",
    ),
    never(
        "F738",
        "CISPO clips a ratio that is to be exactly 1.",
        _LOSS,
        (_CISPO, on("loss_fn.force_on_policy_ratio")),
        Setting("loss_fn.force_on_policy_ratio"),
        "false",
    ),
    never(
        "F739",
        "CISPO weights tokens, not samples.",
        _LOSS,
        (_CISPO, _SEQUENCE),
        Setting("loss_fn.sequence_level_importance_ratios"),
        "false",
    ),
    never("F740", "CISPO has no dual clip.", _LOSS, (_CISPO, given(*_DUAL.names)), _DUAL, "null"),
    never("F741", "CISPO needs a loss by token.", _LOSS, (_CISPO, off(*_TOKENS.names, default=True)), _TOKENS, "true"),
    never(
        "F742",
        "Weights are to be truncated that are not computed.",
        _LOSS,
        (given(*_KIND.names), given(*_CAP.names), off(_CORRECTED, default=None)),
        Setting(_CORRECTED),
        "true",
    ),
    choice("F743", "NeMo-RL truncates weights in no such way.", _LOSS, _KIND, ("tis", "icepop", "seq-mask-tis")),
    never(
        "F744",
        "Weights are to be truncated, and no bound is given; elder versions then left them whole.",
        _LOSS,
        (given(*_KIND.names), absent(*_CAP.names)),
        _CAP,
        2.0,
        severity="warning",
    ),
    never(
        "F745", "The bound of the weights is not above zero.", _LOSS, (given(*_KIND.names), at_most(_CAP, 0)), _CAP, 2.0
    ),
    at_least(
        "F746", "The weights' lower bound is above the upper.", _LOSS, (_CAP, _FLOOR), when=(given(*_KIND.names),)
    ),
    never(
        "F747",
        "Weights outside two bounds are to be masked, and the lower is not given.",
        _LOSS,
        (one_of(_KIND.names[0], "icepop", "seq-mask-tis"), absent(*_FLOOR.names)),
        _FLOOR,
        0.5,
    ),
    never(
        "F748",
        "Samples are to be masked by their tokens' weights, which are to be those of the sample.",
        _LOSS,
        (one_of(_KIND.names[0], "seq-mask-tis"), _SEQUENCE),
        Setting("loss_fn.sequence_level_importance_ratios"),
        "false",
    ),
    never("F749", "The dual clip is not above 1.", _LOSS, (at_most(_DUAL, 1),), _DUAL, 3.0),
)
"""Rows of NeMo-RL's table."""
