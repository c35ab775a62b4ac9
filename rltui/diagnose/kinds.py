"""What kinds of errors there are, where no wording knows one: a table of exceptions, words, parts of a run and frames.

Programs word the same mistake in hundreds of ways, but raise the same few exceptions about the same few things: sizes
of tensors, settings, columns, paths, versions, servers. The first row that fits gives the cause that is meant.
"""

from __future__ import annotations

from typing import NamedTuple

PROGRAM = "program_failed"

_REFUSES = r"(?:Value|Assertion|Runtime|Type|NotImplemented)Error|Exception"
_HUB = r"huggingface|\bhf\.co\b|githubusercontent|modelscope"
_LOST = (
    r"timed? ?out|refused|reset by peer|broken pipe|unreachable|couldn't (?:reach|connect)|cannot connect|max retries|"
    r"all connection attempts failed"
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


_COMBINATIONS = (
    r"\b(?:is|are) (?:\w+ )?(?:(?:not|only) (?:\w+ )?supported|unsupported)\b|\b(?:does|do) not (?:yet )?support\b|"
    r"\bnot (?:yet )?compatible with\b|\bincompatible with\b|\bmutually exclusive\b|"
    r"\bcan(?:'t|not| not) (?:be used|use|specify|combine|pass)\b|\bmust be (?:enabled|disabled|set|used)\b|"
    r"^(?:invalid|unknown|unsupported) (?:\w+ ){1,3}\w*: ?\S"
)
"""What is said of settings that do not go together, or of a value that is none of those known."""

_SETS_UP = (
    r" in (?:__init__|__post_init__|_*(?:setup|prepare|build|make|create)\w*|"
    r"\w*(?:valid|verif|check|config|parse)\w*)\Z"
)

_ENDPOINTS = (
    r"/(?:generate|v1/\w+|health\w*|get_world_size|init_\w+|update_\w+|reset_prefix_cache|pause_\w+|\w*_?weights\w*)\b"
)
"""Where trainers ask engines: vLLM's and SGLang's servers, and the one of TRL."""

_SERVER = r"(?:inference|rollout|generation|engine|router|llm|vllm|sglang)\w*[ _-](?:server|service|engine|endpoint)s?"
_DOWN = r"not (?:ready|running|reachable|healthy)|can(?:'|no)?t be reached|unavailable|did not (?:start|answer|respond)"
_SANDBOX = r"sandbox|code[ _-]?(?:runner|executor|execution|interpreter)|/run_?code\b|/code/run\b"
_CARDS = (
    r"compute capabilit\w+|sm_?\d{2,3}a?\b|(?:volta|turing|ampere|ada|hopper|blackwell)\b|gpu arch\w*|"
    r"(?:newer|older) gpus?\b"
)
_COMPARES_SIZES = (
    r"\.(?:shape|size\(|numel\(|ndim|dtype|device)\S*\s*[!=]=|[!=]=\s*[\w.\[\]]+\.(?:shape|size\(|dtype|device)\b"
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
    Kind(
        "hf_gated_auth",
        message=rf"\bgated (?:repo|model|dataset)|(?:{_HUB}).{{0,300}}\b(?:unauthori[sz]ed|forbidden)\b",
    ),
    Kind(
        "hf_rate_limit", message=rf"\b(?:too many requests|rate.?limit\w*|50[0-4] server error)\b.{{0,200}}(?:{_HUB})"
    ),
    Kind("sandbox_down", r"\w*Sandbox\w*|\w*Runtime(?:Unavailable|NotReady)\w*"),
    Kind(
        "sandbox_down",
        message=rf"(?:{_SANDBOX}).{{0,300}}(?:{_LOST}|{_DOWN}|fail)|(?:{_LOST}|{_DOWN}).{{0,200}}(?:{_SANDBOX})",
    ),
    Kind(
        "engine_unreachable",
        message=rf"(?:{_LOST}|{_DOWN}|{_FAILED_THERE}).{{0,300}}{_ENDPOINTS}|{_ENDPOINTS}.{{0,300}}(?:{_LOST}|{_DOWN})|"
        rf"\b{_SERVER}\b.{{0,80}}(?:{_LOST}|{_DOWN})|^server (?:launch|start)\w* failed",
    ),
    Kind(
        "hf_offline_miss",
        message=rf"(?:{_HUB}).{{0,400}}(?:{_LOST})|(?:{_LOST}).{{0,80}}https?://|(?:{_LOST}).{{0,160}}(?:{_HUB})",
    ),
    Kind(
        "hf_offline_miss",
        r"\w*(?:Connect|Timeout|SSL|MaxRetry)\w*",
        frames=r"huggingface_hub|/datasets/|transformers/(?:utils/hub|configuration_utils)|modelscope",
    ),
    Kind("sandbox_down", message=_LOST + r"|check the api server", parts=("reward",)),
    Kind("engine_unreachable", message=rf"{_LOST}|{_FAILED_THERE}", parts=("engine", "weight_sync")),
    Kind("engine_unreachable", r"\w*(?:Connect|Timeout|Disconnected|HTTPStatus)\w*", parts=("engine", "weight_sync")),
    Kind("engine_unreachable", r"ServerDisconnectedError|RemoteProtocolError", parts=("network", "program")),
    Kind("gloo_timeout", message=_LOST, frames=r"torch/distributed/"),
    Kind("gloo_timeout", r"Dist(?:Network|Store)Error|Rendezvous\w+"),
    Kind("disk_full", message=r"stale file handle|input/output error|no space left|read-only file system|remote i/o"),
    Kind("disk_full", "RuntimeError", r"^file \S+ cannot be opened"),  # torch.save, where its folder is there
    Kind("data_unfit", r"UnidentifiedImageError|DecompressionBombError|BadGzipFile|LibsndfileError"),
    Kind("ckpt_broken", r"UnpicklingError|\w*Checkpoint\w*(?:Error|Exception)"),
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
    Kind("path_missing", message=r"(?:doesn't|does not|no) (?:contain )?(?:any |\(supported\) )?data files\b"),
    Kind("path_missing", message=r"^incorrect path_or_model_id"),
    Kind("path_missing", message=r"\bno (?:\w+ ){0,3}(?:files?|shards?|checkpoints?) (?:\w+ ){0,2}(?:found|match)"),
    Kind(
        "no_gpu_visible",
        message=r"(?:device|gpus?|cuda(?::\d+)?)\b.{0,40}\b(?:is |are )?"
        r"(?:not (?:available|visible|found)|unavailable)|"
        r"can only be used on (?:cuda|gpus?)\b|requires? an? (?:cuda )?(?:gpu|accelerator)\b(?! with)|"
        r"\bno (?:\w+ )?(?:gpus?|accelerators?|devices?) (?:were |was |is |are )?(?:found|detected)\b"
        r"(?!.{0,40}\bray\b)|"
        r"\bgpu is (?:required|needed)|(?:compiled|built) without cuda|"
        r"^you requested gpus?\b|number of accelerators available",
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
        r"(?:please|need to|try to) (?:install|upgrade|update|downgrade|reinstall|rebuild)"
        r"(?! (?:the|your) (?:data|conf))|"
        r"is not installed|pip install|^[\w.-]+ (?:is |are )?(?:required|needed) (?:to (?:use|run)|for)\b|"
        r"\bsetup failed\b|instances of '(?:nonetype' and 'str|str' and 'nonetype)'",
    ),
    Kind(
        "env_import_broken",
        message=r"\balready (?:used|registered)\b.{0,80}\b(?:config|model|class|operator|registry)|"
        r"\bregist\w+.{0,80}multiple times",
    ),
    Kind(
        "env_import_broken",
        "KeyError",
        frames=r"(?:site|dist)-packages/[^\n]*<module>\Z|\bimportlib\b|/psutil/|/models/auto/",
    ),
    Kind(
        "kernel_compile",
        r"InductorError|BackendCompilerFailed|CompilationError|LoweringException|OutOfResources|\w*CompileError|"
        r"FailOnRecompileLimitHit|InternalTorchDynamoError|TorchRuntimeError|Unsupported",
    ),
    Kind(
        "kernel_compile", frames=r"torch/_inductor/|triton/(?:compiler|backends)|/jit/|cpp_extension|tilelang|deep_gemm"
    ),
    Kind("engine_unfit_model", "KeyError", r"^['\"](?:\w+\.){2,}\w*(?:weight|bias|scale|zeros)\w*['\"]$", ("engine",)),
    Kind("ray_runtime_env", message=r"runtime[_ ]?env|\b_*ray_\w+_hook"),
    Kind("ray_actor_died", r"(?:Owner|Actor|Worker|Node)\w*(?:Died|Lost|Unavailable|Crashed)\w*"),
    Kind(
        "ray_pg_infeasible",
        message=r"\bplacement[ _]groups?\b.{0,200}(?:timed? ?out|to be ready|infeasible|invalid|not enough)|"
        r"timed out.{0,80}\bplacement[ _]groups?\b|\bnot? enough (?:\w+ ){0,2}(?:gpus|resources|nodes)\b|"
        r"\bnot included in a placement group\b|"
        r"\b(?:available|desired|requested|required)\b[\w ]{0,20}\bgpus?\b.{0,60}\b(?:less than|fewer|only|exceeds?)\b",
    ),
    Kind(
        "gpu_arch_unsupported",
        message=rf"(?:supports?|supported|requires?|required|needs?|unsupported)\b.{{0,80}}\b(?:{_CARDS})|"
        r"kernel image (?:is|for)|compute capability.{0,80}(?:not supported|required|at least|too (?:old|low))",
    ),
    Kind("rank_numbers", "KeyError", r"^['\"](?:(?:local_|global_|node_)?rank|(?:local_)?world_size|master_\w+)['\"]$"),
    Kind(
        "rank_numbers",
        message=r"\b(?:same|duplicated?) (?:\w+ )?rank\b|\binvalid (?:\w+ )?rank\b|"
        r"(?<!lora )\brank\b.{0,40}\b(?:should|must) be (?:within|in the|less|smaller|below)\b|"
        r"\brank \d+ is not part of|\b(?:local_rank|rank|world_size|master_addr)\b.{0,40}"
        r"(?:expected, but not set|\benvironment variable)|"
        r"\blocal_rank\b.{0,40} != |"
        r"(?<!lora )\brank\b.{0,40}\balready (?:checked|assigned|taken|in use|registered)",
    ),
    Kind(
        "nccl_desync",
        message=r"\b(?:different|mismatch\w*|inconsistent|disagree\w*|differs?)\b.{0,80}\b(?:across|between|on other) "
        r"(?:\w+ )?ranks\b|\branks\b.{0,60}\b(?:different|mismatch\w*|disagree|inconsistent|differ)\b|\bother ranks: ",
    ),
    Kind("engine_unfit_model", "NotImplementedError", parts=("engine",)),
    Kind(
        "engine_unfit_model",
        _REFUSES,
        rf"(?:{_OF_ENGINE})\b.{{0,160}}(?:support|valid|compatible|implemented)|"
        rf"(?:support|valid|compatible|implemented)\w*\b.{{0,80}}(?:{_OF_ENGINE})\b",
        parts=("engine",),
    ),
    Kind(
        "engine_unfit_model",
        _REFUSES,
        r"\b(?:attention ?backend|attentionbackend\w*|head[_ ]?size|headdim|max_lora_rank)\b.{0,160}"
        r"(?:support|valid|found|selected|multiple)|\bmax_lora_rank\b|"
        r"\bmodel \w+For\w+ (?:does not|doesn't) support|weights were not initialized from checkpoint",
    ),
    Kind(PROGRAM, message=r"(?:cuda|hip|nccl|cublas|cudnn|driver) ?(?:_status|error)|internal assert"),
    # what the code says of numbers, settings, rows and tensors
    Kind(
        "nan_or_loss_scale",
        _REFUSES,
        r"\bnan\b.{0,60}\b\w*(?:loss|grad)|\b\w*(?:loss|grad)\w*\b.{0,40}\b(?:is|are) nan\b|"
        r"\bnon-?finite\b|\bnot finite\b|\bloss[_ ]scale\b.{0,40}\bminimum|elements? of std >= 0|"
        r"\bunexpected result nan\b",
    ),
    Kind("settings_rejected", "KeyError", code=r"\b[A-Z][A-Z_]{3,}\["),
    Kind("settings_rejected", _REFUSES, r"\bconfig\w* values?\b.{0,80}\bmismatch"),
    Kind("ds_batch_assert", _REFUSES, r"batch.{0,160}(?:divi(?:d|s)|multiple|equal|less|greater|at least|%)"),
    Kind(
        "engine_tp_heads",
        _REFUSES,
        rf"(?:{_PARALLEL}).{{0,120}}(?:divisible|divide|multiple)|(?:divisible by|multiple of).{{0,80}}(?:{_PARALLEL})",
    ),
    Kind("data_unfit", message=r"chat[ _]?template|\broles must alternate|multimodal tokens to \d+ placeholders"),
    Kind(
        "data_unfit", r"Template\w*Error|UndefinedError|Dataset(?!\w*NotFound)\w*(?:Error|Exception)|Arrow\w+|CastError"
    ),
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
    Kind("data_unfit", message=r"\b(?:update|fix|check|convert|recreate|regenerate) (?:the|your) data ?set\b"),
    Kind("data_unfit", "IndexError", parts=("data",)),
    Kind("ckpt_broken", _REFUSES, rf"(?:{_OF_OPTIMIZER}).{{0,600}}\b(?:empty|missing|match|not (?:in|found))"),
    Kind(PROGRAM, "TypeError", r"^\w+\(\): argument '.{1,80}must be .{1,80}, not "),  # of another type altogether
    Kind("engine_unfit_model", "AssertionError", _COMPARES_SIZES, parts=("engine",)),
    Kind("tensors_unfit", "AssertionError", _COMPARES_SIZES, parts=("program", "learner")),
    Kind("tensors_unfit", rf"{_REFUSES}|IndexError", rf"\b(?:{_SIZES})\b.{{0,160}}(?:{_UNLIKE})"),
    Kind("tensors_unfit", _REFUSES, r"\bexpected input \w+ .{0,60}\bto match\b"),
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
        r"\bmissing\b.{0,20}\bunexpected keys?\b|"
        r"\bstate_?dict\b.{0,400}\b(?:only has|missing|not in)\b|\bmissing\b.{0,80}\bstate_?dict\b",
    ),
    Kind("tensors_unfit", _REFUSES, _ELSEWHERE),
    # what is only not supported leaves the checkpoint as good as it was
    Kind(PROGRAM, _REFUSES, r"\bonly supported\b|\bnot (?:yet )?(?:supported|implemented)\b", parts=("checkpoint",)),
    Kind(
        "ckpt_broken",
        rf"{_REFUSES}|OSError",
        r"\b(?:load|read|restore|restoring|resum|deseriali[sz])\w*\b.{0,60}"
        r"\b(?:checkpoint|state_?dict|optimizer states?)\b.{0,100}\b(?:fail\w*|missing|corrupt\w*|invalid|mismatch\w*)"
        r"|\bunable to load weights\b",
    ),
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
        r"^(?:invalid|unknown|unsupported|unrecogni[sz]ed) (?:[\w-]+ ){0,4}[\w-]+\b.{0,60}"
        r"\b(?:expected|must be|choose|available|supported|one of|valid (?:options|choices|values))\b|"
        r"\b(?:remaining|unused|extra|unexpected)[ _]arg(?:v|s|uments?)\b.{0,20}--|\barguments are not used\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b(?!/).{{0,80}}\b(?:{_REFUSED})\b|"
        rf"(?:^|[\s`'\"(.])(?:{_SETTING})\b.{{0,40}}\b(?:{_COMPARED})\b.{{0,20}}(?:{_SETTING})\b|"
        rf"\b(?:{_REFUSED})\b.{{0,160}}[\s`'\"(.](?:{_NAMED})\b",
        parts=("program", "learner", "settings", "engine", "ray", "checkpoint"),
        frames=rf"\A(?!(?s:.*) in _*(?:{_AT_WORK})\w*\Z)",  # settings are refused before the work begins
    ),
    # a combination that is refused while things are set up, with no setting named
    Kind(
        "settings_rejected", _REFUSES, _COMBINATIONS, parts=("program", "learner", "settings", "ray"), frames=_SETS_UP
    ),
    Kind("settings_rejected", r"\w*ValidationError|ConfigError|ArgumentError"),
    Kind(
        "settings_rejected",
        "AssertionError",
        r"^(?:AssertionError )?assert (?:self|args|\w*config|cfg)\.\w+ ?(?:[<>!=]=?|in\b|is\b)",
        frames=r" in (?:__init__|__post_init__|\w*(?:valid|check|setup|parse|build|make)\w*)\Z",
    ),
    Kind(
        "settings_rejected",
        "AssertionError",
        r"\bassert\b.{0,80}\b(?:args|config|cfg)\.\w+.{0,20}[<>!=%]",
        frames=rf"\A(?!(?s:.*) in _*(?:{_AT_WORK})\w*\Z)",
    ),
    # where nothing is said of what, the part that raised it says most
    Kind(
        "data_unfit",
        r"(?:Key|Value|Type|Index|ZeroDivision|Assertion|UnicodeDecode|JSONDecode|Attribute)Error",
        parts=("data",),
    ),
    Kind("ckpt_broken", r"(?:Key|Value|Runtime|Assertion|EOF|OS|Index)Error", parts=("checkpoint",)),
)
