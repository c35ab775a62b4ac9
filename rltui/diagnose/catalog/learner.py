"""The trainer: batch arithmetic, numbers that are none, checkpoints."""

from __future__ import annotations

from rltui.diagnose import learner_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Change, Remedy

SIGNS = (
    *signs(
        "ds_batch_assert",
        (
            "train_batch_size is not equal to",
            r"(?:\((?P<batch>\d+) != (?P<micro>\d+) \* (?P<steps>\d+) \* (?P<world>\d+)|train_batch_size is not equal to)",
        ),
        (
            "check batch related parameters",
            r"(?P<batch>\d+) ?!= ?(?P<micro>\d+) ?\* ?(?P<steps>\d+) ?\* ?(?P<world>\d+)|Check batch related parameters",
        ),
        (
            "has to be greater than 0",
            r"(?i)(?:micro batch size per gpu|train batch size|gradient accumulation steps): \d+ has to be greater than 0",
        ),
        ("train_micro_batch_size_per_gpu", r"(?i)either train_batch_size or train_micro_batch_size_per_gpu needs"),
        (
            "divisible",
            r"(?i)AssertionError.{0,40}(?:real_)?train_batch_size.{0,120}divisible|(?:global|train|mini)[ _]batch[ _]size.{0,160}(?:must be|is not|not) divisible by",
        ),
        confidence=0.9,
        unless=r"^\s*(?:assert|f['\"]|if) ",
    ),
    *signs(
        "nan_or_loss_scale",
        ("loss scale already at minimum", ""),
        ("loss scale", r"(?i)minimum loss scale reached|loss scale (?:is|has) (?:reached|below) (?:the )?min"),
        ("loss is nan", r"(?i)loss is nan"),
        ("nan", r"(?i)found (?:NaN|inf) in (?:local )?(?:grad|forward|loss)|found NaN in local"),
        ("nan", r"(?i)grad(?:ient)?[_ ]?norm is (?:not finite|nan|inf)"),
        ("nan", r"(?i)loss (?:is|became|has become|diverged to) (?:nan|inf|not finite)"),
        ("finite", r"(?i)(?:loss|grad(?:ient)?[_ ]?norm) is not finite|non-?finite (?:loss|grad)", "finite nonfinite"),
        ("returned nan values", r"returned nan values in its \d+th output"),
        ("nan", r"probability tensor contains either `?inf`?, `?nan`?"),
        confidence=0.85,
        unless=r"(?i)if |\?|skip_nan|check_for_nan",
    ),
    Sign(
        cause="nan_or_loss_scale",
        anchor="loss scale",
        pattern=r"(?i)loss scale: (?P<scale>[\d.e+-]+), reducing to|reducing loss scale (?:to|from) (?P<scale2>[\d.e+-]+)",
        check=learner_judges.read_loss_scale,
    ),
    *signs(
        "ckpt_broken",
        ("pytorchstreamreader failed", ""),
        ("failed finding central directory", ""),
        ("unexpected eof", r"(?i)unexpected EOF, expected \d+ more bytes"),
        (
            "safetensor",
            r"(?i)SafetensorError: Error while deserializing|safetensors?.{0,80}(?:HeaderTooLarge|HeaderTooSmall|InvalidHeader\w*|MetadataIncompleteBuffer|incomplete metadata)",
            "safetensor safetensors safetensorerror",
        ),
        ("deserializing header", ""),
        ("size mismatch for", r"size mismatch for \S+: copying a param"),
        ("loading state_dict", r"Error\(s\) in loading state_dict"),
        (
            "unpickling",
            r"UnpicklingError: (?:invalid load key|pickle data was truncated|unpickling stack underflow)",
            "unpicklingerror",
        ),
        ("ran out of input", r"EOFError: Ran out of input"),
        (
            "checkpoint",
            r"(?i)checkpoint.{0,120}(?:is (?:corrupt|incomplete|broken|damaged|truncated)|corrupted)|corrupt(?:ed)? checkpoint",
        ),
        (
            "checkpoint",
            r"(?i)checkpoint.{0,80}used a DP world size of \d+ but the current|world size .{0,80}does not match.{0,60}checkpoint",
        ),
        ("unable to find latest file", ""),
        ("file might be corrupted", ""),
        confidence=0.9,
        unless=r"^\s*except |DataLoader worker",
    ),
)

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
                summary="Stop, and go on from the last checkpoint with finite numbers in bf16 and at half the learning rate.",
                changes=(
                    Change("roles.learner.precision", "set", "bf16"),
                    Change("train.learning_rate", "times", 0.5),
                ),
                safe="confirm",
            ),
            Remedy(
                id="check-batch",
                summary="Look at the batch of that step: empty responses, a micro batch above the mini batch, wrong masks.",
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
                summary="Fall back to the checkpoint before, once it is verified; damaged ones were written as a process died.",
                safe="auto",
            ),
        ),
        wrong=("strict=False: what does not fit is then left at random values, silently.",),
        sources=("https://docs.pytorch.org/docs/stable/notes/serialization.html",),
    ),
)
