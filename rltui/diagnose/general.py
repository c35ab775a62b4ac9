"""What kind of error the first exception is, where no wording knows it: by its class, its words and its frames.

Programs word the same mistake in hundreds of ways, but raise the same few exceptions about the same few things: sizes
of tensors, settings, columns, paths, versions. A table of those gives the cause that is meant; what is in no row is an
error of the program itself, told with the part of the run in which it was raised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from rltui.diagnose.first_exception import STATE, exception_order
from rltui.diagnose.guesses import GUESS
from rltui.diagnose.raised_in import PARTS
from rltui.diagnose.wording import ENDED, compiled

if TYPE_CHECKING:
    from rltui.diagnose.matches import Match, Matches

PROGRAM = "program_failed"
SURE = 0.62
"""Confidence of a cause from the table, or of none in it.

Of 91 failures that it had not seen, 31 came here: 5 of 10 got the right cause from the table, 13 of 21 rightly none.
"""

_NO_SUCH = re.compile(r"No such file or directory: '(?P<path>[^']+)'")
"""How Python names the path that the operating system did not find."""

_TOLD_ELSEWHERE = (
    r"^Caught \w+ in \w+ worker|Traceback \(most recent|run with NCCL_DEBUG|^NCCL (?:communicator|error)\b|"
    r"\bHCCL .{0,10}error\b|^CUDA error: CU\w+_STATUS_|\bsee .{0,60}\b(?:above|log)"
)
"""What passes on another one's words, or says where they are, and no reason of its own."""

MOST_LINES_APART = 60
"""An exception so soon after the first one tells the same failure again, in other words."""

_REFUSES = r"(?:Value|Assertion|Runtime|Type|NotImplemented)Error|Exception"
_HUB = r"huggingface|\bhf\.co\b|githubusercontent|modelscope"
_LOST = (
    r"timed? ?out|refused|reset by peer|broken pipe|unreachable|couldn't (?:reach|connect)|cannot connect|max retries"
)
_FAILED_THERE = r"internal server error|bad gateway|service unavailable"
_ROWS = r"x|rows?|examples?|samples?|features?|items?|inputs?|batch\w*|data\w*|records?|entry|messages?"
_SIZES = r"shapes?|dtypes?|data types?|dim(?:ension)?s?|broadcast|scalar type|tensors?\b.{0,40}\bsize|sizes? of"
_ELSEWHERE = r"\bcpu tensors?\b|\bdevice type tensor\b|\bdata is not allocated\b"
"""Tensors that are on another device than the code counts on, or whose parts are still with other ranks."""

_TWO_SIZES = r"\bSize\(\[.{0,80}\bSize\(\["
_UNLIKE = r"match|same|mismatch|expect(?:ed)?|got|must|should|invalid|different|differ|divisible|incompatible|wrong"
_PARALLEL = r"world_?size|parallel|heads|layers|gpus|\b[tpe]p\b"
_OF_ENGINE = r"backend|quanti[sz]\w+|lora|adapter|architecture|implementation|model"
_SETTING = r"--?[a-z][\w.-]+|[a-z]+(?:_[a-z]+)+|\w*config\w*|arguments?|options?|settings?"
_NAMED = r"--?[a-z][\w.-]+|(?<=[`'\"])[a-z]+(?:_[a-z]+)+|\w*config\w*|arguments?|options?|settings?"
_COMPARED = r"(?:is|are) (?:smaller|less|lower|larger|greater|bigger|higher|more) than|exceeds?"
_OF_OPTIMIZER = r"\boptim\w*[ _.]?states?\b|OptimStateKey\b|\bparam(?:eter)?[ _]groups?\b"
_OF_WEIGHTS = r"state_?dict|\.(?:weight|bias)\b|\bpointer\b|\bparameter names?\b|\btensors?\b(?! (?:model )?parallel)"
_LOOKS_OVER = (
    r" in (?:\w+\.)*_*(?:(?:valid|verif|check|pars)\w*_(?:\w+_)?(?:arg|conf|setting|option|param)\w*|__post_init__)\Z"
)
_BELOW = r"/(?:torch/(?!distributed/(?:run|launch|elastic))|triton|numpy)"
_AT_WORK = r"forward|backward|generate|rollout|alloc|fill_|update_|compute_|train_actor|\w*_step"
_REFUSED = (
    r"must|should|ha(?:s|ve) to|needs? to|(?<!not )require[sd]?|can ?not|can't|not allowed|not supported|"
    r"only support\w*|unsupported|invalid|unknown|expected|only|incompatible|mutually|set to|may be set|"
    r"validation"
)


class Kind(NamedTuple):
    """One row: all that is given has to fit.

    Attributes:
        cause: Id of the cause that is meant.
        exceptions: Regular expression on the whole name of the exception's class, without its module; empty: any.
        message: Regular expression on what the exception says; case does not matter.
        parts: Parts of the run (keys of ``PARTS``) in which it is that cause; empty: all.
        frames: Regular expression on the frames (``path:line in function``, one a line).
        code: Regular expression on the source line of the innermost frame.
    """

    cause: str
    exceptions: str = ""
    message: str = ""
    parts: tuple[str, ...] = ()
    frames: str = ""
    code: str = ""


KINDS: tuple[Kind, ...] = (
    # what is beside the program: files, the hub, servers, other processes
    Kind("access_denied", message=r"permission denied"),
    Kind("hf_offline_miss", message=rf"(?:{_HUB}).{{0,400}}(?:{_LOST})|(?:{_LOST}).{{0,80}}https?://"),
    Kind(
        "hf_offline_miss",
        r"\w*(?:Connect|Timeout|SSL|MaxRetry)\w*",
        frames=r"huggingface_hub|/datasets/|transformers/(?:utils/hub|configuration_utils)|modelscope",
    ),
    Kind("sandbox_down", message=_LOST + r"|check the api server", parts=("reward",)),
    Kind("engine_unreachable", message=rf"{_LOST}|{_FAILED_THERE}", parts=("engine", "weight_sync")),
    Kind("engine_unreachable", r"\w*(?:Connect|Timeout|Disconnected|HTTPStatus)\w*", parts=("engine", "weight_sync")),
    Kind("gloo_timeout", message=_LOST, frames=r"torch/distributed/"),
    Kind("gloo_timeout", r"Dist(?:Network|Store)Error|Rendezvous\w+"),
    Kind("disk_full", message=r"stale file handle|input/output error|no space left|read-only file system|remote i/o"),
    Kind("ckpt_broken", r"UnpicklingError"),
    Kind("ckpt_broken", "OSError", r"\bsafetensors archive\b"),
    Kind("ckpt_broken", r"(?!KeyError)\w+", r"is not a valid json file|corrupt|truncated|damaged"),
    Kind(
        "ckpt_broken", r"UnicodeDecodeError|JSONDecodeError", frames=r"from_json_file|configuration_utils|safetensors"
    ),
    Kind(
        "path_missing", "OSError", r"^can't load (?:the )?(?:config\w*|tokenizer|model|\w+ (?:extractor|processor))\b"
    ),
    Kind("path_missing", r"(?:FileNotFound|NotADirectory)Error", r"^(?!.*(?:/tmp/|/proc/|/dev/|lock\b|\.sock\b))"),
    Kind(
        "path_missing", message=r"(?:^|[\s'\"(])/[\w./-]+\S* (?:does not exist|not found|is not a (?:file|directory))"
    ),
    Kind("path_missing", message=r"\bno (?:\w+ ){0,3}(?:files?|shards?|checkpoints?) (?:\w+ ){0,2}(?:found|match)"),
    Kind(
        "no_gpu_visible",
        message=r"(?:device|gpus?|cuda(?::\d+)?)\b.{0,40}\b(?:is |are )?"
        r"(?:not (?:available|visible|found)|unavailable)|"
        r"can only be used on (?:cuda|gpus?)\b|requires? an? (?:cuda )?gpu\b(?! with)",
    ),
    Kind(PROGRAM, message=r"\bout of memory|(?:can't|cannot|failed to|unable to) allocate|not enough memory"),
    # versions that do not fit: modules, models, arguments and values that the other side does not know
    Kind("env_import_broken", r"(?:Import|ModuleNotFound)Error|PackageNotFoundError|VersionConflict"),
    Kind("env_import_broken", message=r"(?:unregistered|unsupported|unknown|unrecognized) (?:model|architecture)"),
    Kind(
        "env_import_broken", message=r"model (?:architecture|type)s?\b.{0,80}not (?:yet )?(?:supported|recogni[sz]ed)"
    ),
    Kind(
        "env_import_broken",
        message=r"unexpected keyword argument|"
        r"\bversions? .{0,60}(?:required|incompatible|not supported|too (?:old|new))|"
        r"(?:please|need to|try to) (?:install|upgrade|update|downgrade|reinstall|rebuild)|"
        r"is not installed|pip install|"
        r"\bsetup failed\b|instances of '(?:nonetype' and 'str|str' and 'nonetype)'",
    ),
    Kind(
        "env_import_broken",
        message=r"\balready (?:used|registered)\b.{0,80}\b(?:config|model|class|operator|registry)|"
        r"\bregist\w+.{0,80}multiple times",
    ),
    Kind("env_import_broken", "KeyError", frames=r"<module>$|/importlib/|_bootstrap|/psutil/"),
    Kind(
        "kernel_compile",
        r"InductorError|BackendCompilerFailed|CompilationError|LoweringException|OutOfResources|\w*CompileError|"
        r"FailOnRecompileLimitHit|InternalTorchDynamoError|TorchRuntimeError|Unsupported",
    ),
    Kind(
        "kernel_compile", frames=r"torch/_inductor/|triton/(?:compiler|backends)|/jit/|cpp_extension|tilelang|deep_gemm"
    ),
    Kind("engine_unfit_model", "KeyError", r"^['\"](?:\w+\.){2,}\w*(?:weight|bias|scale|zeros)\w*['\"]$", ("engine",)),
    Kind("ray_runtime_env", message=r"runtime_?env|\b_*ray_\w+_hook"),
    Kind("engine_unfit_model", "NotImplementedError", parts=("engine",)),
    Kind(
        "engine_unfit_model",
        _REFUSES,
        rf"(?:{_OF_ENGINE})\b.{{0,160}}(?:support|valid|compatible|implemented)|"
        rf"(?:support|valid|compatible|implemented)\w*\b.{{0,80}}(?:{_OF_ENGINE})\b",
        parts=("engine",),
    ),
    Kind(PROGRAM, message=r"(?:cuda|hip|nccl|cublas|cudnn|driver) ?(?:_status|error)|internal assert"),
    # what the code says of numbers, settings, rows and tensors
    Kind(
        "nan_or_loss_scale",
        _REFUSES,
        r"\bnan\b.{0,60}\b\w*(?:loss|grad)|\b\w*(?:loss|grad)\w*\b.{0,40}\b(?:is|are) nan\b",
    ),
    Kind("settings_rejected", "KeyError", code=r"\b[A-Z][A-Z_]{3,}\["),
    Kind("settings_rejected", _REFUSES, r"\bconfig\w* values?\b.{0,80}\bmismatch"),
    Kind("ds_batch_assert", _REFUSES, r"batch.{0,160}(?:divi(?:d|s)|multiple|equal|less|greater|at least|%)"),
    Kind(
        "engine_tp_heads",
        _REFUSES,
        rf"(?:{_PARALLEL}).{{0,120}}(?:divisible|divide|multiple)|(?:divisible by|multiple of).{{0,80}}(?:{_PARALLEL})",
    ),
    Kind("data_unfit", message=r"chat[ _]?template"),
    Kind("data_unfit", r"Template\w*Error|UndefinedError"),
    Kind(
        "data_unfit", "TypeError", r"^\w*reward\w*\(\) (?:missing \d+ required|takes \d+ positional)"
    ),  # a column that the rows have not
    Kind("data_unfit", "KeyError", code=rf"\b(?:{_ROWS})\[['\"]"),
    Kind(
        "data_unfit",
        message=r"\bcolumns?\b.{0,80}(?:not|missing)|\bread records\b|excessive nesting|too many dimensions 'str'",
    ),
    Kind(
        "data_unfit",
        _REFUSES,
        r"\b(?:data ?sets?|train_dataset|examples?|(?:num_)?samples)\b.{0,80}"
        r"(?:empty|no |not|must|should|missing|loaded)|"
        r"(?:\bno|cannot find|could not find|not find any) (?:valid )?(?:data ?sets?|examples|samples)",
    ),
    Kind("data_unfit", "IndexError", parts=("data",)),
    Kind("ckpt_broken", _REFUSES, rf"(?:{_OF_OPTIMIZER}).{{0,600}}\b(?:empty|missing|match|not (?:in|found))"),
    Kind(PROGRAM, "TypeError", r"^\w+\(\): argument '.{1,80}must be .{1,80}, not "),  # of another type altogether
    Kind("tensors_unfit", _REFUSES, rf"\b(?:{_SIZES})\b.{{0,160}}(?:{_UNLIKE})"),
    Kind(
        "tensors_unfit",
        _REFUSES,
        rf"(?:{_UNLIKE}|only supports?|(?:can|could) ?not)\b.{{0,120}}\b(?:{_SIZES}|fp16|bf16|head (?:size|dim))\b",
    ),
    # two sizes, no word on them: the engine built other layers than the weights have, unless a shard came empty
    Kind("engine_unfit_model", _REFUSES, rf"^(?!.*\bSize\(\[0\]\)).*{_TWO_SIZES}", parts=("engine",)),
    Kind("tensors_unfit", _REFUSES, _TWO_SIZES),
    Kind("tensors_unfit", r"IndexError|RuntimeError", r"out of (?:range|bounds).{0,60}(?:dim|size|self)"),
    Kind(
        "ckpt_broken",
        _REFUSES,
        r"\bstate_?dict\b.{0,400}\b(?:only has|missing|not in)\b|\bmissing\b.{0,80}\bstate_?dict\b",
    ),
    Kind("tensors_unfit", _REFUSES, _ELSEWHERE),
    # what is only not supported leaves the checkpoint as good as it was
    Kind(PROGRAM, _REFUSES, r"\bonly supported\b|\bnot (?:yet )?(?:supported|implemented)\b", parts=("checkpoint",)),
    Kind("ckpt_broken", _REFUSES, frames=r"/(?:dist_checkpointing|distributed/checkpoint)/[^\n]*\Z"),
    # what names weights, or is refused below the program, is no setting of it
    Kind(PROGRAM, _REFUSES, _OF_WEIGHTS, parts=("program", "learner", "settings", "engine", "ray")),
    Kind(PROGRAM, _REFUSES, parts=("program", "learner", "settings", "ray"), frames=rf"{_BELOW}[^\n]*\Z"),
    # whatever the words: a function that looks settings over refused them
    Kind("settings_rejected", _REFUSES, parts=("program", "learner", "settings", "ray"), frames=_LOOKS_OVER),
    Kind(
        "settings_rejected",
        _REFUSES + r"|\w*(?:Config|Validation|Argument)\w*(?:Error|Exception)",
        r"\b(?:target.?modules|layer class)\b.{0,200}\bin (?:the )?(?:\w+ )?model\b|"
        r"please (?:specify|set|provide|use|pass)|"
        r"^(?:unknown|unsupported|unrecogni[sz]ed) (?:[\w-]+ ){1,4}\w+: ?\S+$|"
        r"\b(?:remaining|unused|extra|unexpected)[ _]arg(?:v|s|uments?)\b.{0,20}--|\barguments are not used\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b.{{0,80}}\b(?:{_REFUSED})\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b.{{0,40}}\b(?:{_COMPARED})\b.{{0,20}}(?:{_SETTING})\b|"
        rf"\b(?:{_REFUSED})\b.{{0,160}}[\s`'\"(.](?:{_NAMED})\b",
        parts=("program", "learner", "settings", "engine", "ray", "checkpoint"),
        frames=rf"\A(?!(?s:.*) in _*(?:{_AT_WORK})\w*\Z)",  # settings are refused before the work begins
    ),
    Kind("settings_rejected", r"\w*ValidationError|ConfigError|ArgumentError"),
    Kind(
        "settings_rejected",
        "AssertionError",
        r"^(?:AssertionError )?assert (?:self|args|\w*config|cfg)\.\w+ ?(?:[<>!=]=?|in\b|is\b)",
        frames=r" in (?:__init__|__post_init__|\w*(?:valid|check|setup|parse|build|make)\w*)\Z",
    ),
    # where nothing is said of what, the part that raised it says most
    Kind(
        "data_unfit",
        r"(?:Key|Value|Type|Index|ZeroDivision|Assertion|UnicodeDecode|JSONDecode|Attribute)Error",
        parts=("data",),
    ),
    Kind("ckpt_broken", r"(?:Key|Value|Runtime|Assertion|EOF|OS|Index)Error", parts=("checkpoint",)),
)


def general_cause(matches: Matches) -> Match | None:
    """Return the first exception that ended a process, as a match of the cause that its kind speaks for.

    ``PROGRAM`` is the cause where it is of no kind in the table; None where there is no exception, or only such as
    wordings know already, as what passes on another one's end.
    """
    known = {match.order for cause, found in matches.by_cause.items() if cause != STATE for match in found}
    fatal = [
        one
        for one in matches.of(STATE)
        if "survived" not in one.fields and (exception_order(one) not in known or "quoted" in one.fields)
    ]
    first = next((one for one in fatal if one.fields["trace"]), next(iter(fatal), None))
    if first is None:
        return None
    # an exception soon after the first one may say better what it is about
    near = [one for one in fatal if one.source == first.source and 0 < one.order - first.order <= MOST_LINES_APART]
    told = next(((one, row) for one in (first, *near) if (row := _row(one)) is not None), None)
    return _told(*told) if told else _told(first, None)


def _row(match: Match) -> Kind | None:
    name, _, message = match.fields["exception"].partition(":")
    return next((kind for kind in KINDS if _fits(kind, name.rpartition(".")[2], message.strip(), match.fields)), None)


def _told(first: Match, row: Kind | None) -> Match:
    fields = first.fields
    named = _NO_SUCH.search(fields["exception"])
    told = {"failure": fields["exception"][:160].rstrip(".: "), "place": PARTS[fields["part"]].title, **fields}
    told |= {**(named.groupdict() if named else {}), ENDED: "yes"}
    line = int(fields["line"]) if first.evidence.line else 0
    return structs.replace(
        first,
        cause=row.cause if row else PROGRAM,
        confidence=_confidence(fields, row),
        evidence=structs.replace(first.evidence, line=line, text=fields["exception"]),
        order=exception_order(first),
        fields=told,
    )


def _confidence(fields: dict[str, str], row: Kind | None) -> float:
    """How far the exception itself says why: its class alone does not, nor do words that lead elsewhere."""
    if row is not None and row.cause != PROGRAM:
        return SURE
    message = fields["exception"].partition(":")[2].strip()
    is_told = bool(message or ("carried" not in fields and fields["code"])) and not compiled(_TOLD_ELSEWHERE).search(
        message
    )
    return SURE if is_told and fields["part"] != "network" else GUESS


def _fits(kind: Kind, name: str, message: str, fields: dict[str, str]) -> bool:
    if kind.parts and fields["part"] not in kind.parts:
        return False
    if kind.exceptions and not compiled(kind.exceptions).fullmatch(name):
        return False
    said = message or f"{name} {fields['code']}"  # an assertion without words says what its code does
    if kind.message and not compiled(f"(?is){kind.message}").search(
        f"{name}: {said}" if "error" in kind.message else said
    ):
        return False
    if kind.code and not compiled(kind.code).search(fields["code"]):
        return False
    return not kind.frames or compiled(f"(?m){kind.frames}").search(fields["trace"]) is not None
