"""What kinds of errors there are, where no wording knows one: a table of exceptions, words, parts of a run and frames.

Programs word the same mistake in hundreds of ways, but raise the same few exceptions about the same few things: sizes
of tensors, settings, columns, paths, versions, servers. The first row that fits gives the cause that is meant.
"""

from __future__ import annotations

from rltui.diagnose.kind import PROGRAM, RAN_OUT, REFUSES, Kind
from rltui.diagnose.kinds_around import KINDS_AROUND
from rltui.diagnose.kinds_by_place import KERNELS, PLACES, REFUSES_SETTINGS, SGLANG_SETTINGS
from rltui.diagnose.kinds_of_settings import SETTINGS

_ROWS = r"x|rows?|examples?|samples?|features?|items?|inputs?|batch\w*|data\w*|records?|entry|messages?"

_SIZES = r"shapes?|dtypes?|data types?|dim(?:ension)?s?|broadcast|scalar type|tensors?\b.{0,40}\bsize|sizes? of"

_ELSEWHERE = (
    r"\bon (?:the expected )?device:? meta\b|\bparameters and buffers on device\b|\bcpu tensors?\b|"
    r"\bdevice type tensor\b|\bdata is not allocated\b|\bto be on the same device\b"
)
"""Tensors that are on another device than the code counts on, or whose parts are still with other ranks."""

_TWO_SIZES = r"\bSize\(\[.{0,80}\bSize\(\["

_UNLIKE = r"match|same|mismatch|expect(?:ed)?|got|must|should|invalid|different|differ|divisible|incompatible|wrong"

_PARALLEL = r"world_?size|parallel|heads|layers|gpus|\b[tpe]p\b"

_OF_OPTIMIZER = r"\boptim\w*[ _.]?states?\b|OptimStateKey\b|\bparam(?:eter)?[ _](?:groups?|states?)\b"

_OF_WEIGHTS = r"state_?dict|\.(?:weight|bias)\b|\bpointer\b|\bparameter names?\b|\btensors?\b(?! (?:model )?parallel)"

_BELOW = r"/(?:torch/(?!distributed/(?:run|launch|elastic|rendezvous)|optim/|cuda/__init__)|triton/(?!runtime)|numpy)"

_COMPARES_SIZES = (
    r"\.(?:shape|size\(|numel\(|ndim|dim\(|dtype|device)\S*\s*[!=]=|[!=]=\s*[\w.\[\]]+\.(?:shape|size\(|dtype|device)\b"
)

_DIMENSIONS = (
    r"\b(?:must|should|has to|needs? to|have to|expects?|is|are|not|only)\b(?: \w+){0,3} (?:non-?)?contiguous\b|"
    r"\b(?:must|should|expected|expects?|only)\b.{0,40}\b[1-6]-?d(?:imensional)?\b|\b[1-6]-?d\b.{0,40}\bgot\b|"
    r"\b(?:shape|width|stride)s? mismatch"
)

_COMPARES_NUMBERS = (
    r"\bdivisible\b|\bmultiple of\b|\beven\b|\bpower of (?:2|two)\b|\baligned\b|\bmismatch|\bmatch\b|"
    r"\b(?:must|should) (?:be|have|equal)\b|\bexpected\b|[=!<>]=|%|contiguous"
)
"""What a kernel is called with that it cannot take: numbers that are sizes of tensors."""

_FLAG = (
    rf"\A(?!.*\b(?:pip|uv|conda|apt|git|srun|sbatch)\b)(?!.*{RAN_OUT})"
    r".*(?:^|[\s`'\"(])--[a-z][a-z\d]*(?:[-_.][a-z\d]+)*(?![\w-])"
)
"""A refusal that names a flag of the command line, where it is neither an installer's nor more of what ran out."""

_NUMBER_TYPES = r"fp(?:8|16|32)|bf16|bfloat16|float(?:16|32|64)|u?int(?:8|16|32|64)"

_AT_WORK = r" in (?!__init__|__post_init__|_*(?:setup|init|get|build|make|create|load|valid|check)\w*\Z)\S+\Z"
"""The innermost function is none that sets things up."""

_COUNTS_UNLIKE = (
    r"\b(?:lengths?|counts?|numel)\b.{0,20}\b(?:mismatch\w*|do(?:es)? not (?:match|align|agree))|"
    r"\bdevice mismatch|\bexpect(?:s|ed)? .{0,60}\bgot (?:torch\.Size|\(?\[?\d+, ?\d)|"
    r"\b(\w+)=\d+\b.{0,60}\bgot \1=\d"
)
"""Numbers of elements that differ, and a shape beside the one that was expected."""

_PICTURES = r"\b(?:images?|videos?|vision|audios?|multimodal|placeholders?|grids?)\b"

_NO_TEMPLATE = r"not (?:set|found|defined|provided|available)|missing|null|none|required|must be (?:set|provided)"


KINDS: tuple[Kind, ...] = (
    SGLANG_SETTINGS,
    *KINDS_AROUND,
    # what the code says of numbers, settings, rows and tensors
    Kind(
        "nan_or_loss_scale",
        REFUSES,
        r"\bnan\b.{0,60}\b\w*(?:loss|grad)|\b\w*(?:loss|grad)\w*\b.{0,40}\b(?:is|are) nan\b|"
        r"\bnon-?finite\b|\bnot finite\b|\bloss[_ ]scale\b.{0,40}\bminimum|elements? of std >= 0|"
        r"\bunexpected result nan\b|\bmultinomial distribution\b|\bminimum loss[_ ]scale\b|"
        r"\bprobabilit\w+\b.{0,60}\b(?:nan|inf|negative)\b|"
        r"\bnans? (?:values? )?(?:detected|found|encountered)\b|"
        r"\b(?:outputs?|logits|activations|advantages?|values?)\b.{0,20}\b(?:is|are|has|have|contains?|bec[ao]me) "
        r"(?:an? )?nans?\b",
    ),
    Kind("nan_or_loss_scale", "FloatingPointError"),
    Kind(
        "settings_rejected",
        "KeyError",
        r"\b(?:overrides?|\w*config\w*|options?|settings?|arguments?)\b.{0,80}\bnot (?:found|in|known|a valid)\b|"
        r"\b(?:not a valid|non-?existent|unknown|unexpected) config\w*\b",
    ),
    Kind("settings_rejected", "KeyError", code=r"\b[A-Z][A-Z_]{3,}\["),
    Kind(
        "settings_rejected",
        REFUSES,
        r"\bplease (?:set|pass|use|specify) the (?:option|argument|flag|parameter) [`'\"]?-*\w+=\w",
    ),
    Kind("settings_rejected", REFUSES, r"\bconfig\w* values?\b.{0,80}\bmismatch"),
    Kind(
        "ds_batch_assert",
        REFUSES,
        r"batch.{0,160}(?:divi(?:d|s)|multiple|equal|less|greater|at least|%)|"
        r"\b(?:equal to|multiple of|divisible by)\b.{0,40}\bbatch",
    ),
    Kind(
        "engine_tp_heads",
        REFUSES,
        rf"(?:{_PARALLEL}).{{0,120}}(?:divisible|divide|multiple)|(?:divisible by|multiple of).{{0,80}}(?:{_PARALLEL})",
    ),
    Kind("engine_tp_heads", REFUSES, r"\b\w*(?:world|parallel)_size\b.{0,20} != .{0,40}(?:world|parallel)_size\b"),
    *REFUSES_SETTINGS,
    Kind("settings_rejected", REFUSES, _FLAG),
    Kind(
        "chat_template_missing",
        message=rf"\b(?:no|without|not have|has no|missing|lacks) (?:a |an |any )?(?:default )?chat[ _]?template|"
        rf"\bchat[ _]?template\b.{{0,40}}\b(?:{_NO_TEMPLATE})\b",
    ),
    Kind("data_unfit", message=r"chat[ _]?template|\broles must alternate|multimodal tokens to \d+ placeholders"),
    Kind(
        "data_unfit", r"Template\w*Error|UndefinedError|Dataset(?!\w*NotFound)\w*(?:Error|Exception)|Arrow\w+|CastError"
    ),
    Kind(
        "data_unfit", "TypeError", r"^\w*reward\w*\(\) (?:missing \d+ required|takes \d+ positional)"
    ),  # a column that the rows have not
    Kind("settings_rejected", "KeyError", code=r"\b\w*(?:cfg|config|opts?|hparams|hps|args|settings)\[['\"]"),
    Kind("data_unfit", "KeyError", code=rf"\b(?:{_ROWS})\[['\"]"),
    Kind("data_unfit", "KeyError", frames=r"/multiprocess/pool\.py"),  # datasets' own copy, which maps rows
    Kind(
        "data_unfit",
        r"(?!NotImplemented)\w+",
        r"\bcolumns?\b.{0,80}(?:not|missing)|\bread records\b|excessive nesting|too many dimensions 'str'",
    ),
    Kind("data_unfit", "AssertionError", code=rf"\bassert ['\"]\w+['\"] in (?:{_ROWS})\b"),
    Kind("data_unfit", REFUSES, rf"{_PICTURES}.{{0,60}}\b(?:do(?:es)? not match|mismatch|mixed)\b"),
    Kind(
        "data_unfit",
        REFUSES,
        r"\b(?:data ?sets?|train_dataset|examples?|(?:num_)?samples)\b.{0,80}"
        r"(?:empty|no |not|must|should|missing|loaded)|"
        r"(?:\bno|cannot find|could not find|not find any) (?:valid )?(?:data ?sets?|examples|samples)",
    ),
    Kind("data_unfit", "ValueError", r"\brows?\b.{0,80}\b(?:do|does) not (?:have|match|agree)\b"),
    Kind("data_unfit", message=r"\bchecksums?\b.{0,160}\b(?:match|mismatch|wrong|differs?)|\bwrong checksum\b"),
    Kind("data_unfit", message=r"\b(?:update|fix|check|convert|recreate|regenerate) (?:the|your) data ?set\b"),
    Kind("data_unfit", "IndexError", parts=("data",)),
    # gradients have the size of their weights; only states that were loaded may have another
    Kind("ckpt_broken", REFUSES, r"\b(?:sizes?|shapes?)\b.{0,120}\b(?:match|same)\b", frames=r"/torch/optim/[^\n]*\Z"),
    Kind(
        "ckpt_broken",
        REFUSES,
        rf"(?:{_OF_OPTIMIZER}).{{0,600}}\b(?:empty|missing|match|not (?:in|found))|"
        rf"\b(?:different|merge)\b.{{0,200}}(?:{_OF_OPTIMIZER})",
    ),
    Kind(PROGRAM, "TypeError", r"^\w+\(\): argument '.{1,80}must be .{1,80}, not "),  # of another type altogether
    Kind("engine_unfit_model", "AssertionError", _COMPARES_SIZES, parts=("engine",)),
    Kind("tensors_unfit", "AssertionError", _COMPARES_SIZES, parts=("program", "learner")),
    Kind("tensors_unfit", "AssertionError", code=_COMPARES_SIZES, parts=("program", "learner"), frames=_AT_WORK),
    Kind("tensors_unfit", REFUSES, _COUNTS_UNLIKE, parts=("program", "learner"), frames=_AT_WORK),
    Kind(
        "tensors_unfit",
        REFUSES,
        rf"\b(?:must|should|only|expect\w*)\b.{{0,40}}\b(?:{_NUMBER_TYPES})\b",
        parts=("program", "learner"),
        frames=_AT_WORK,
    ),
    Kind("tensors_unfit", REFUSES, _DIMENSIONS),
    Kind("tensors_unfit", REFUSES, _COMPARES_NUMBERS, frames=KERNELS),
    Kind("tensors_unfit", rf"{REFUSES}|IndexError", rf"\b(?:{_SIZES})\b.{{0,160}}(?:{_UNLIKE}|can ?not)"),
    Kind("tensors_unfit", REFUSES, r"\bexpected input \w+ .{0,60}\bto match\b"),
    Kind(
        "tensors_unfit",
        REFUSES,
        rf"(?:{_UNLIKE}|only supports?|(?:can|could) ?not)\b.{{0,120}}\b(?:{_SIZES}|fp16|bf16|head (?:size|dim))\b",
    ),
    # two sizes, no word on them: the engine built other layers than the weights have, unless a shard came empty
    Kind("engine_unfit_model", REFUSES, rf"^(?!.*\bSize\(\[0\]\)).*{_TWO_SIZES}", parts=("engine",)),
    Kind("tensors_unfit", REFUSES, _TWO_SIZES),
    Kind("tensors_unfit", REFUSES, r"\btensors?\b.{0,20}\b(?:must|should) have the same (?:data ?)?type\b"),
    Kind("tensors_unfit", r"IndexError|RuntimeError", r"out of (?:range|bounds).{0,60}(?:dim|size|self)"),
    Kind(
        "ckpt_broken",
        REFUSES,
        r"\bmissing\b.{0,20}\bunexpected keys?\b|"
        r"\bstate[_ ]?dict(?:ionary)?\b.{0,400}\b(?:only has|missing|not (?:in|present))\b|"
        r"\bmissing\b.{0,80}\bstate_?dict\b",
    ),
    Kind("tensors_unfit", REFUSES, _ELSEWHERE),
    # what is only not supported leaves the checkpoint as good as it was
    Kind(PROGRAM, REFUSES, r"\bonly supported\b|\bnot (?:yet )?(?:supported|implemented)\b", parts=("checkpoint",)),
    Kind(
        "ckpt_broken",
        rf"{REFUSES}|OSError",
        r"\b(?:load|read|restore|restoring|resum|deseriali[sz])\w*\b.{0,60}"
        r"\b(?:checkpoint|state_?dict|optimizer states?)\b.{0,100}\b(?:fail\w*|missing|corrupt\w*|invalid|mismatch\w*)"
        r"|\bunable to load weights\b|\bfail\w* to (?:load|read|restore|resume)\b.{0,40}\b(?:checkpoint|state_?dict)\b",
    ),
    Kind("ckpt_broken", REFUSES, frames=r"/(?:dist_checkpointing|distributed/checkpoint)/[^\n]*\Z"),
    # what names weights, or is refused below the program, is no setting of it
    Kind(PROGRAM, REFUSES, _OF_WEIGHTS, parts=("program", "learner", "settings", "engine", "ray")),
    Kind(PROGRAM, REFUSES, parts=("program", "learner", "settings", "ray"), frames=rf"{_BELOW}[^\n]*\Z"),
    *SETTINGS,
    *PLACES,
    # where nothing is said of what, the part that raised it says most
    Kind(
        "data_unfit",
        r"(?:Key|Value|Type|Index|ZeroDivision|Assertion|UnicodeDecode|JSONDecode|Attribute)Error",
        parts=("data",),
    ),
    Kind("ckpt_broken", r"(?:Key|Value|Runtime|Assertion|EOF|OS|Index)Error", parts=("checkpoint",)),
)
