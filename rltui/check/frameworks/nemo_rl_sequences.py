"""What NeMo-RL asserts of sequences that are divided, padded or packed."""

from __future__ import annotations

from rltui.check.frameworks.assertion import at_least, multiple, never
from rltui.check.frameworks.terms import Constant, Setting, above, family, neither, off, on, under

_POLICY = "nemo_rl/models/policy/lm_policy.py, Policy.__init__"
_SEQUENCES = "policy.dtensor_cfg.sequence_parallel"
_ON_MEGATRON, _PACKED = on("policy.megatron_cfg.enabled"), on("policy.sequence_packing.enabled")
_ON_DTENSOR = (on("policy.dtensor_cfg.enabled"), neither(_ON_MEGATRON))
_DIVIDED = on(_SEQUENCES)
_PADDED = Setting("policy.make_sequence_length_divisible_by")
_CONTEXT = Setting("policy.dtensor_cfg.context_parallel_size", default=1)
_TENSOR = Setting("policy.dtensor_cfg.tensor_parallel_size")
_MEGATRON_TENSOR = Setting("policy.megatron_cfg.tensor_model_parallel_size")
_MEGATRON_CONTEXT = Setting("policy.megatron_cfg.context_parallel_size", default=1)
_MEGATRON_PACKED = (_ON_MEGATRON, _PACKED, above(_MEGATRON_CONTEXT, 1))
_PADS = "nemo_rl/models/megatron/data.py, _get_pack_sequence_parameters_for_megatron"

TABLE = (
    never(
        "F761",
        "DTensor divides sequences by context or by tensor parallelism, not by both.",
        f"{_POLICY}, and nemo_rl/models/policy/workers/dtensor_policy_worker.py",
        (
            *_ON_DTENSOR,
            above(_CONTEXT, 1),
            _DIVIDED,
            above(_TENSOR, 1),
        ),
        Setting(_SEQUENCES),
        "false",
    ),
    multiple(
        "F762",
        "Sequences are padded to a length that context parallelism does not divide in twice its parts.",
        f"{_POLICY}, validate_sequence_length_divisibility",
        (_PADDED, _CONTEXT * Constant(2)),
        when=(*_ON_DTENSOR, above(_CONTEXT, 1)),
        severity="warning",
    ),
    multiple(
        "F763",
        "Sequences are padded to a length that sequence parallelism does not divide.",
        f"{_POLICY}, validate_sequence_length_divisibility",
        (_PADDED, _TENSOR),
        when=(*_ON_DTENSOR, _DIVIDED),
        severity="warning",
    ),
    multiple(
        "F764",
        "Packed sequences are padded to a length that sequence parallelism does not divide.",
        "nemo_rl/models/megatron/data.py",
        (_PADDED, _MEGATRON_TENSOR),
        when=(_ON_MEGATRON, on("policy.megatron_cfg.sequence_parallel"), _PACKED),
        severity="warning",
    ),
    multiple(
        "F771",
        "Packed sequences are padded to a length that Megatron's context parallelism does not divide.",
        _PADS,
        (_PADDED, _MEGATRON_CONTEXT * Constant(2)),
        when=(*_MEGATRON_PACKED, off("policy.megatron_cfg.sequence_parallel")),
        change=_PADDED,
        severity="warning",
    ),
    multiple(
        "F772",
        "Packed sequences are padded to a length that context and sequence parallelism do not divide.",
        _PADS,
        (_PADDED, _MEGATRON_CONTEXT * Constant(2) * _MEGATRON_TENSOR),
        when=(*_MEGATRON_PACKED, on("policy.megatron_cfg.sequence_parallel")),
        change=_PADDED,
        severity="warning",
    ),
    at_least(
        "F765",
        "Each sequence is padded to a whole row, so that packing packs nothing.",
        "nemo_rl/distributed/batched_data_dict.py, shard_by_batch_size",
        (Setting("policy.sequence_packing.train_mb_tokens"), _PADDED * Constant(2)),
        change=_PADDED,
        when=(_PACKED, above(_PADDED, 1)),
        severity="warning",
    ),
    never(
        "F767",
        "A reward model is trained on DTensor without context parallelism.",
        "nemo_rl/algorithms/rm.py, setup",
        (under("rm."), *_ON_DTENSOR, above(_CONTEXT, 1)),
        _CONTEXT,
        1,
    ),
    never(
        "F770",
        "NeMo-RL divides no sequences of Nemotron-H on DTensor.",
        "nemo_rl/models/dtensor/parallelize.py, _parallelize_nm5_h",
        (*_ON_DTENSOR, _DIVIDED, family("nemotron-h")),
        Setting(_SEQUENCES),
        "false",
    ),
)
