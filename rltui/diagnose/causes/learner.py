"""The trainer: batch arithmetic, numbers that are none, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.frames import LOADS_WEIGHTS, frames_of
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded


def read_loss_scale(hit: Hit) -> Reading | None:
    """A dynamic scaler starts at 2^16 or 2^32 and halves until it fits; below 1 there is nothing left to halve."""
    text = hit.groups.get("scale") or hit.groups.get("scale2") or ""
    try:
        scale = float(text.rstrip("."))
    except ValueError:
        return None
    return Reading(0.85) if scale <= 1.0 else None


def read_bare_assertion(hit: Hit) -> Reading | None:
    """An assertion without words: the line of code that the traceback quotes compares or divides a batch size."""
    code = "\n".join(line.text for line in hit.context.before(4) if line.text.lstrip().startswith("assert "))
    return Reading(0.8) if re.search(r"batch.*(?:%|//|[<>=]=|[<>])|[<>=!]= ?\w*batch_?size", code) else None


_LOADS = re.compile(r"\b_?load_(?:\w+_)?(?:checkpoint|state_dict)\b|\bcheck_ckpt_list\b|dist_checkpointing/")
_FRAMES_ABOVE = 8


def read_while_loading(hit: Hit) -> Reading | None:
    """An exception without words of its own, raised by what loads a checkpoint."""
    above = hit.context.above(_FRAMES_ABOVE)
    return Reading(0.65) if 'file "' in above.lower() and _LOADS.search(above) else None


_RAISED = r"^[\w.]*Error: (?:.{0,160}[:'] ?)?"
_LOOKS_UP = re.compile(r"embedding|gather|index_select|scatter_?|one_hot|nll_loss\w*|cross_entropy\w*")
_COMPARES_SHAPES = re.compile(r"assert .{0,200}(?:\.shape\b|\.size\(|\.numel\(\)|\.dim\(\)|\.dtype\b|\.device\b)")


def read_shape_assertion(hit: Hit) -> Reading | None:
    """An assertion without words: the line of code that the traceback quotes compares shapes."""
    above = hit.context.above(4)
    return Reading(0.65) if _COMPARES_SHAPES.search(above) and not LOADS_WEIGHTS.search(above) else None


def read_lookup(hit: Hit) -> Reading | None:
    """A kernel's assertion without its words: it came of looking up rows by number, so a number is too large."""
    frames = frames_of(hit.context)
    return Reading(0.7) if frames and _LOOKS_UP.fullmatch(frames[-1].function) else None


def read_size_mismatch(hit: Hit) -> Reading | None:
    """Any program can get sizes wrong; in the midst of loading, those of the checkpoint are meant."""
    around = hit.context.around(12, 0)
    return Reading(0.8) if re.search(r"\b_?load_(?:\w+_)?(?:checkpoint|state_dict)\b", around) else None


def nan_or_loss_scale(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """What somebody says in words, or what the metrics show over the steps."""
    return surest([*matches, *all_matches.of("nan_metric")])


def batch_remedies(fields: Fields) -> tuple[Remedy, ...]:
    """From the numbers: a world size that did not arrive, or the nearest batch that can be divided."""
    numbers = [int(fields.get(name, "0")) for name in ("batch", "micro", "steps", "world")]
    batch, micro, steps, world = numbers
    unit = micro * steps
    if not all(numbers) or max(numbers) > 10**9:
        words = "Make the global batch micro batch × accumulation × ranks, with at least one sample each."
    elif batch % unit == 0:
        words = (
            f"{batch} / ({micro} × {steps}) is {batch // unit}, but DeepSpeed counts {world} ranks: the launcher's "
            f"world "
            "size did not reach it."
        )
    else:
        legal = max(unit * world, round(batch / (unit * world)) * unit * world)
        words = f"Take {legal} as the global batch, the nearest multiple of {micro} × {steps} × {world}."
    return (Remedy(id="legal-batch", summary=words, safe="auto"),)


_NO_NUMBER = r"(?:nans?|infs?|infinity|not finite)"
_NUMBERS = r"(?:loss|grad(?:ient)?s?|norm|logits?|prob(?:s|abilit\w+)?)"
_IS = r"\b(?:is|are|became|has become|diverged to|contains?|has|have|min|max|mean|detected):?"
_NAN_WORDS = "nan nans inf infs infinity finite nonfinite"

CAUSES = (
    Cause(
        id="ds_batch_assert",
        tier="root",
        title="The batch sizes do not multiply up",
        detail="{batch} is not {micro} × {steps} × {world}",
        tell="DeepSpeed wants global batch = micro batch × accumulation × ranks, all above zero; other trainers assert "
        "that one size divides another.",
        wordings=(
            Wording(anchor="assertionerror", pattern=r"^AssertionError:?$", check=read_bare_assertion),
            *worded(
                ("size", r"(?i)batch[-_ ]size \S{1,12} (?:is )?not (?:a )?multiple of"),
                "train_batch_size is not equal to",
                "check batch related parameters",
                (
                    "train_batch_size is not equal to",
                    r"(?<!\d)(?P<batch>\d{1,9}) ?!= ?(?P<micro>\d+) ?\* ?(?P<steps>\d+) ?\* ?(?P<world>\d+)",
                ),
                (
                    "has to be greater than 0",
                    r"(?i)(?:micro batch size per gpu|train batch size|gradient accumulation steps): \d+ has to be "
                    r"greater than 0",
                ),
                (
                    "only support equal chunk",
                    r"only support equal chunk\. Got size of DataProto (?P<batch>\d+) and chunk (?P<parts>\d+)",
                ),
                (
                    "train_micro_batch_size_per_gpu",
                    r"(?i)either train_batch_size or train_micro_batch_size_per_gpu needs",
                ),
                (
                    "divisible",
                    r"(?i)AssertionError.{0,40}(?:real_)?train_batch_size.{0,120}divisible|(?:global|train|mini|micro|"
                    r"effective|generation|rollout)[ _]batch[ _]size.{0,160}(?:must be|should be|is not|not) "
                    r"(?:evenly )?divisible by",
                ),
                (
                    "batch_size",
                    r"(?i)(?:mini|micro|train|global)_batch_size(?:_\w{1,20})? \S{1,12} (?:should|must) be "
                    r"(?:larger|greater) than",
                ),
                (
                    "error: ",
                    r"(?i)(?:Assertion|Value)Error: .{0,80}batch[_ ]?size.{0,40}(?:must|should|needs? to|has to) be "
                    r"(?:[<>]=?|larger|greater|smaller|at (?:least|most)|no more|equal)",
                    "batch batchsize",
                ),
                (
                    "error: ",
                    r"(?i)(?:Assertion|Value)Error: .{0,100}(?:batch|prompts|generations|rollout).{0,120}"
                    r"(?:must (?:evenly )?divide\b|(?:must|should) be (?:evenly )?(?:divisible by|a multiple of))",
                    "divide divisible multiple",
                ),
                ("divisible", r"(?i)(?:Assertion|Value)Error: .{0,100}\bdivisible by .{0,40}\bbatch[ _-]?size"),
                # fewer rows than ranks or micro-batches to share them
                ("k_partitions", r"number of items:\[\d+\] ?< ?k_partitions:\[\d+\]"),
                ("is empty", r"AssertionError: partition \d+ is empty"),
                ("is not equal to batch size", r"AssertionError: key \S+ length \d+ is not equal to batch size \d+"),
                ("len(batch_lst)", r"len\(batch_lst\) \(\d+\) != chunks \(\d+\)"),
                confidence=0.9,
                unless=r"^\s*(?:assert|f['\"]|if) ",
            ),
        ),
        remedies=batch_remedies,
        wrong=("Changing two of the numbers at random: compute the third.",),
        sources=("https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters", "OpenRLHF/OpenRLHF#346"),
    ),
    Cause(
        id="nan_or_loss_scale",
        tier="root",
        title="The training lost its numbers: NaN, or fp16 scaling at its minimum",
        detail="{metric} is {value} for {length} steps",
        tell="NaN in three steps in a row or in the loss, or a loss scale that cannot fall further. A single NaN "
        "of grad_norm in mixed precision, and a scale that is still searching, are normal.",
        wordings=(
            *worded(
                ("loss scale already at minimum", ""),
                ("loss scale", r"(?i)minimum loss scale reached|loss scale (?:is|has) (?:reached|below) (?:the )?min"),
                ("", rf"(?i)\b{_NO_NUMBER}\b(?: \w+){{0,2}} (?:in|for) (?:\w+ )?\w*{_NUMBERS}", _NAN_WORDS),
                (
                    "",
                    rf"(?i)\b\w*{_NUMBERS}\w*\b.{{0,12}}?{_IS} (?:an? )?{_NO_NUMBER}\b|\bnon-?finite {_NUMBERS}",
                    _NAN_WORDS,
                ),
                "detected inf/nan during",
                ("returned nan values", r"returned nan values in its \d+th output"),
                ("nan", r"probability tensor contains either \W?inf\W?, \W?nan\b"),
                (
                    "assertion `",
                    r"(?:sampleMultinomialOnce|MultinomialKernel\.cu).{0,120}Assertion `[^`]{1,60}` failed",
                    "samplemultinomialonce multinomialkernel",
                ),
                "expects all elements of std",
                ("found invalid values", r"to satisfy the constraint .{0,120}found invalid values"),
                (
                    "symptom nan:",
                    r"^symptom NaN: (?P<metric>\w+) has been (?P<value>no number) for (?P<length>\d+) steps",
                ),
                confidence=0.85,
                unless=r"(?i)if |\?|skip_nan|check_for_nan",
            ),
            *worded("invalid multinomial distribution", confidence=0.85),
            Wording(
                anchor="loss scale",
                pattern=r"(?i)loss scale: (?P<scale>[\d.e+-]+), reducing to|reducing loss scale (?:to|from) "
                r"(?P<scale2>[\d.e+-]+)",
                check=read_loss_scale,
            ),
        ),
        weigh=nan_or_loss_scale,
        explains=frozenset({"xid_app_fault"}),
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
                summary="Look at the batch of that step: empty responses, a micro batch above the mini batch, "
                "wrong masks.",
                safe="never",
            ),
        ),
        wrong=("Clipping harder: NaN stays NaN.", "Waiting: a skipped step learns nothing."),
        sources=("verl-project/verl#2505", "hiyouga/LlamaFactory#251"),
    ),
    Cause(
        id="ckpt_broken",
        tier="root",
        title="A checkpoint is damaged, or does not fit the model or the number of ranks",
        tell="'central directory' or a bad header mean a file that was cut while it was written; 'size mismatch' "
        "and missing keys mean another layout.",
        wordings=(
            Wording(anchor="must match the size of tensor b", check=read_size_mismatch),
            Wording(
                anchor="error",
                words=("assertionerror", "keyerror", "indexerror"),
                pattern=r"^(?:(?:Assertion|Index)Error:?$|KeyError: ['\"\d])",
                check=read_while_loading,
            ),
            *worded(
                ("pytorchstreamreader failed", ""),
                ("failed finding central directory", ""),
                ("unexpected eof", r"(?i)unexpected EOF, expected \d+ more bytes"),
                (
                    "safetensor",
                    r"(?i)SafetensorError: Error while deserializing|safetensors?.{0,80}(?:HeaderTooLarge|"
                    r"HeaderTooSmall|"
                    r"InvalidHeader\w*|MetadataIncompleteBuffer|incomplete metadata)",
                    "safetensor safetensors safetensorerror",
                ),
                ("deserializing header", ""),
                ("size mismatch for", r"size mismatch for \S+: copying a param"),
                ("loading state_dict", r"Error\(s\) in loading state_dict"),
                ("invalid access pattern", r"Invalid access pattern: \d+ Sharded\w+ are missing"),
                ("unsupported global: ", r"(?i)Unsupported (?:global|class|operand|operator)[\w ]*: (?:GLOBAL )?\S"),
                (
                    "unpickling",
                    r"UnpicklingError: (?:invalid load key|pickle data was truncated|unpickling stack underflow)",
                    "unpicklingerror",
                ),
                ("ran out of input", r"EOFError: Ran out of input"),
                ("storage has wrong", r"storage has wrong (?:byte )?size"),
                ("invalid magic number", ""),
                ("parameter group that", r"contains a parameter group that doesn't match the size of"),
                ("state_dict_metadata[fqn]", ""),
                ("metadataindex(", r"^KeyError: MetadataIndex\("),
                ("checkpointingexception", ""),
                ("unable to load weights from pytorch checkpoint file", ""),
                ("find a valid checkpoint at", ""),
                ("from checkpoint", r"(?i)\bunable to load \w+(?: \w+)? from checkpoint\b.{0,200}\bexiting\b"),
                (
                    "no such file or directory",
                    r"FileNotFoundError: .{0,40}No such file or directory: ['\"].{0,300}(?:checkpoint|ckpt|"
                    r"global_?step|"
                    r"/step)[-_]?"
                    r"\d*/.{0,200}\.(?:pt|pth|bin|safetensors|distcp|json)",
                ),
                ("in checkpoint", r"(?i)missing key in checkpoint state_dict|\bkey .{1,200} not found in checkpoint"),
                ("checkpoint file is corrupt", ""),
                ("did not match the model", r"(?i)checkpoint (?:module )?state did not match the model"),
                ("size mismatch between saved", ""),
                ("archive is corrupted", ""),
                (
                    "checkpoint",
                    r"(?i)checkpoint.{0,120}(?:is (?:corrupt|incomplete|broken|damaged|truncated)|corrupted)|"
                    r"corrupt(?:ed)? "
                    r"checkpoint",
                ),
                (
                    "checkpoint",
                    r"(?i)checkpoint.{0,80}used a DP world size of \d+ but the current|world size .{0,80}does not "
                    r"match.{0,60}checkpoint",
                ),
                (
                    "checkpoint",
                    r"(?i)\bcheckpoint (?:file|folder|directory|with|is|was)\b.{0,40}\b(?:in|not )compatible\b",
                ),
                ("unable to find latest file", ""),
                ("file might be corrupted", ""),
                ("saved mp_world_size", r"checkpoint count \d+ is different from saved mp_world_size"),
                ("missing optimizer state for parameter", r"for parameter .{1,200} in checkpoint"),
                ("numels out of", r"ValueError: consumed \d+ numels out of \d+"),
                ("missing keys", r"ValueError: Missing keys .{1,20000} in loaded state!"),
                ("mismatch sizes", r"AssertionError: req .{1,300} mismatch sizes"),
                confidence=0.9,
                unless=r"^\s*except |DataLoader worker|(?i:corrupt\w*\?|no corrupt)",
            ),
            *worded(
                ("fits no others", r"was written by \d+ (?:learner|critic)s with ZeRO-\d and fits no others"),
                ("is marked complete", r"is marked complete, but .{1,80} is unreadable"),
                confidence=0.95,
            ),
        ),
        remedies=(
            Remedy(
                id="previous-checkpoint",
                summary="Fall back to the checkpoint before: put the damaged one, written as a process died, out of "
                "the way, and start again. rltui fix does both where it is of one of its own trainers and the one "
                "before is whole.",
                commands=("mv <checkpoint> <checkpoint>-damaged", "rltui resubmit <run>"),
                safe="auto",
            ),
        ),
        wrong=("strict=False: what does not fit is then left at random values, silently.",),
        explains=frozenset({"tensors_unfit"}),
        sources=("https://docs.pytorch.org/docs/stable/notes/serialization.html",),
    ),
    Cause(
        id="tensors_unfit",
        tier="root",
        title="Tensors do not fit together: shape, number type or device",
        tell="torch names both sides. Most often a batch, a mask or a vocabulary is not the size that the code counts "
        "on. Or parameters are still sharded (ZeRO-3, FSDP) where they are used, or LoRA has another precision.",
        wordings=(
            Wording(anchor="assertionerror", pattern=r"^AssertionError:?$", check=read_shape_assertion),
            Wording(anchor="device-side assert triggered", pattern=_RAISED, check=read_lookup),
            *worded(
                # what a kernel says of an index beyond a table: a token that the embedding has not, a wrong label
                (
                    "assertion `",
                    r"Assertion `[^`]{0,80}(?:[Ii]ndex|idx|n_classes|[Dd]im)[^`]{0,80}` failed",
                    "assertion",
                ),
                ("size of tensor", _RAISED + r"The (?:expanded )?size of (?:the )?tensor (?:a )?\(\d+\) must match"),
                ("cannot be multiplied", _RAISED + r"mat1 and mat2 shapes cannot be multiplied"),
                ("must be", _RAISED + r"'weight' must be 2-D"),
                ("to be on the same device", rf"(?:{_RAISED}|^)Expected all tensors to be on the same device"),
                ("same dtype", _RAISED + r"(?:[Ee]xpected |.{0,60}must have ).{0,60}\bsame dtype"),
                ("expected scalar type", _RAISED + r"expected scalar type \w+ but found \w+"),
                ("flatten tensors with", _RAISED + r"Must flatten tensors with (?:uniform|the same) `?(?:dtype|req)"),
                ("is invalid for input of size", _RAISED + r"shape '\[.{1,80}\]' is invalid for input"),
                ("sizes of tensors must match", _RAISED + r"Sizes of tensors must match"),
                ("split_with_sizes", _RAISED + r"split_with_sizes expects split_sizes to sum exactly"),
                ("shape mismatch: ", _RAISED + r"shape mismatch: (?:value tensor|indexing tensors|the mask)"),
                ("of the mask", _RAISED + r"The shape of the mask \[.{1,60}\] at index \d+ does not match"),
                ("index out of range in self", _RAISED + r"index out of range in self"),
                ("tensor and dtensor", _RAISED + r".{0,60}got mixed torch\.Tensor and DTensor"),
                ("should be the same", _RAISED + r"Input type \(.{1,60}\) and (?:bias|weight) type \(.{1,60}\)"),
                ("to match target batch_size", _RAISED + r"Expected input batch_size \(\d+\) to match"),
                ("setstorage", _RAISED + r"setStorage: sizes .{1,80} are out of bounds"),
                confidence=0.7,
            ),
        ),
        remedies=(
            Remedy(
                id="print-shapes",
                summary="Take the innermost frame of your own code and print shape, dtype and device of both sides "
                "there, with one prompt and one GPU; then look which setting made the sizes differ.",
                safe="never",
            ),
            Remedy(
                id="whole-parameters",
                summary="A size of 0, or 'weight' must be 2-D: gather the parameters first, or prepare every model "
                "(reference, reward, teacher) by the same ZeRO-3 or FSDP settings.",
                safe="never",
            ),
        ),
        explains=frozenset({"xid_app_fault"}),
        wrong=("More memory or another node: the same sizes meet there too.",),
        collect=("the frames of the first exception, from the rank that raised first",),
        sources=("huggingface/trl#600", "axolotl-ai-cloud/axolotl#1698"),
    ),
)
