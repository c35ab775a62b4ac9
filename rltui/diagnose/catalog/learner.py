"""The trainer: batch arithmetic, numbers that are none, checkpoints."""

from __future__ import annotations

from rltui.diagnose import learner_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Change, Remedy

CAUSES = (
    Cause(
        id="ds_batch_assert",
        tier="root",
        title="The batch sizes do not multiply up",
        detail="{batch} is not {micro} × {steps} × {world}",
        tell="DeepSpeed wants global batch = micro batch × accumulation × ranks, all above zero.",
        remedies=learner_judges.batch_remedies,
        wrong=("Changing two of the numbers at random: compute the third.",),
        sources=("https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters", "OpenRLHF/OpenRLHF#346"),
    ),
    Cause(
        id="nan_or_loss_scale",
        tier="root",
        title="The training lost its numbers: NaN, or fp16 scaling at its minimum",
        detail="{metric} is {value} for {length} steps",
        tell="NaN in three steps in a row or in the loss, or a loss scale that cannot fall further. A single NaN of "
        "grad_norm in mixed precision, and a scale that is still searching, are normal.",
        remedies=(
            Remedy(
                id="from-last-finite",
                summary="Stop, and go on from the last checkpoint with finite numbers in bf16 and at half the "
                "learning rate.",
                changes=(
                    Change("roles.learner.precision", "set", "bf16"),
                    Change("train.learning_rate", "times", 0.5),
                ),
                safe="confirm",
            ),
            Remedy(
                id="check-batch",
                summary="Look at the batch of that step: empty responses, a micro batch above the mini batch, wrong "
                "masks.",
                safe="never",
            ),
        ),
        wrong=("Clipping harder: NaN stays NaN.", "Waiting: a skipped step learns nothing."),
        judge=learner_judges.nan_or_loss_scale,
        sources=("verl-project/verl#2505", "hiyouga/LlamaFactory#251"),
    ),
    Cause(
        id="ckpt_broken",
        tier="root",
        title="A checkpoint is damaged, or does not fit the model or the number of ranks",
        tell="'central directory' or a bad header mean a file that was cut while it was written; 'size mismatch' and "
        "missing keys mean another layout.",
        remedies=(
            Remedy(
                id="previous-checkpoint",
                summary="Fall back to the checkpoint before, once it is verified; damaged ones were written as a "
                "process died.",
                safe="auto",
            ),
        ),
        wrong=("strict=False: what does not fit is then left at random values, silently.",),
        sources=("https://docs.pytorch.org/docs/stable/notes/serialization.html",),
    ),
)
