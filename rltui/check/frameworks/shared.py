"""Rows of several frameworks: what Megatron refuses, on which they train, and GPUs that a script does not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks.assertion import Assertion, at_least, multiple
from rltui.check.frameworks.terms import LAYERS, Fact, Setting, Term, above, absent

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Condition

_VISIBLE = Fact("visible_gpus", "GPUs in CUDA_VISIBLE_DEVICES")
UNEVEN = (
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
"""Settings by which a pipeline has stages of different sizes, by Megatron's elder and newer names."""


def layers(code: str, stages: Setting, prefix: str = "", when: tuple[Condition, ...] = ()) -> Assertion:
    """The layers of the model divide over ``stages``; settings under ``prefix`` may make them uneven."""
    return multiple(
        code,
        "The model's layers do not divide over the pipeline's stages.",
        "Megatron-LM, get_num_layers_to_build",
        (LAYERS, stages),
        when=(*when, absent(*(f"{prefix}{name}" for name in UNEVEN))),
        severity="warning",
    )


def experts(code: str, gpus: Term, sizes: tuple[Setting, Setting, Setting], when: tuple[Condition, ...]) -> Assertion:
    """Expert parallelism times tensor parallelism of an expert, times stages, divides the GPUs.

    Left out, tensor parallelism of an expert is that of the other layers in some versions and 1 in others.
    """
    parallel, tensor, stages = sizes
    return multiple(
        code,
        "Megatron's parallel sizes of the experts do not divide the GPUs.",
        "Megatron-LM, initialize_model_parallel",
        (gpus, parallel * tensor * stages),
        change=parallel,
        when=(*when, above(parallel, 1)),
    )


def visible(code: str, where: str, per_node: Setting, when: tuple[Condition, ...] = ()) -> Assertion:
    """A node's GPUs are no more than ``CUDA_VISIBLE_DEVICES`` leaves the script."""
    title = "The script sees fewer GPUs of a node than it asks Ray for."
    return at_least(code, title, where, (_VISIBLE, per_node), change=per_node, when=when)
