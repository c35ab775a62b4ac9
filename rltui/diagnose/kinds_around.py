"""Kinds of errors about what is around the program: files, the hub, servers, cards, other processes, versions."""

from __future__ import annotations

from rltui.diagnose.kind import PROGRAM, REFUSES, Kind
from rltui.diagnose.kinds_by_place import KERNELS

_HUB = r"huggingface|\bhf\.co\b|githubusercontent|modelscope"

_LOST = (
    r"timed?[ -]?out|refused|reset by peer|broken pipe|unreachable|couldn't (?:reach|connect)|cannot connect|"
    r"max retries|all connection attempts failed"
)

_FAILED_THERE = r"internal server error|bad gateway|service unavailable"

_OF_ENGINE = r"backend|quanti[sz]\w+|lora|adapter|architecture|implementation|model"

_ENDPOINTS = (
    r"/(?:generate|v1/\w+|health\w*|get_world_size|init_\w+|update_\w+|reset_prefix_cache|pause_\w+|"
    r"\w*_?weights\w*(?![\w/.]))\b"
)
"""Where trainers ask engines: vLLM's and SGLang's servers, and the one of TRL; a folder of weights is none."""

_GAVE_UP = r"\b(?:failed|gave up|giving up) after \d+ (?:\w+ )?(?:retries|attempts|tries)|\bretries exceeded"

_SERVER = r"(?:inference|rollout|generation|engine|router|llm|vllm|sglang)\w*[ _-](?:server|service|engine|endpoint)s?"

_DOWN = r"not (?:ready|running|reachable|healthy)|can(?:'|no)?t be reached|unavailable|did not (?:start|answer|respond)"

_SANDBOX = (
    r"sandbox|code[ _-]?(?:runner|executor|execution|interpreter)|/run_?code\b|/code/run\b|"
    r"(?:execution|agent|container) (?:runtime|process|environment)|\bsimulator\b|(?:environment|env|gym)[ _-]server"
)

_CARDS = (
    r"compute capabilit\w+|sm_?\d{2,3}a?\b|(?:volta|turing|ampere|ada|hopper|blackwell)\b|gpu arch\w*|"
    r"(?:newer|older) gpus?\b|[abhv]\d00s?(?: gpus?)?\b"
)

_VERSION = (
    r"(?:>=|==|<=|<|>) ?v?\d+(?:\.\d+)+|\bv?\d+(?:\.\d+)+(?:\+| (?:or|and) (?:newer|later|higher|above|greater|up))"
)
"""How the versions of a library are named that will do."""

_LIBRARIES = (
    r"flash[-_ ]?attn|flash[-_ ]attention(?:[-_ ]?[234])?|apex|xformers|flashinfer|deep_?(?:ep|gemm)|"
    r"transformer[-_ ]?engine|bitsandbytes|triton|liger[-_]kernel|vllm|sglang|deepspeed|megatron(?:[-_]core)?|"
    r"causal[-_]conv1d|mamba[-_]ssm|nixl|torchao|peft"
)
"""What a code path may need that is not installed with every program."""

_RANK_VARIABLES = (
    r"(?:(?:local_|global_|node_|group_)?(?<!lora )(?<!lora_)rank|(?:local_)?world_size|master_(?:addr|port)|"
    r"slurm_(?:procid|localid|ntasks|nodeid)|ompi_comm_world_\w+|pmi_rank)"
)
"""What launchers tell each process of its place, in the names of their environment variables."""


KINDS_AROUND: tuple[Kind, ...] = (
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
    Kind("sandbox_down", message=_LOST + r"|check the api server", parts=("reward",)),
    Kind(
        "engine_unreachable",
        message=rf"(?:{_LOST}|{_DOWN}|{_FAILED_THERE}).{{0,300}}{_ENDPOINTS}|{_ENDPOINTS}.{{0,300}}(?:{_LOST}|{_DOWN})|"
        rf"(?:{_GAVE_UP}).{{0,600}}{_ENDPOINTS}|\b{_SERVER}\b.{{0,80}}(?:{_LOST}|{_DOWN})|"
        r"^server (?:launch|start)\w* failed",
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
    # any other server outside of the cluster
    Kind(
        "hf_offline_miss",
        message=rf"\bhttpsconnectionpool\(host='(?!localhost|127\.|10\.|192\.168\.).{{0,300}}(?:{_LOST})|"
        r"https://.{0,300}\bcertificate verif\w+ failed|\burlopen error\b",
        parts=("network", "program", "data", "checkpoint", "disk"),
    ),
    Kind(
        "engine_unreachable",
        message=rf"{_LOST}|{_FAILED_THERE}|{_GAVE_UP}|\b(?:request failed|status(?: ?code)?)\b\W{{0,4}}[45]\d\d\b|"
        r"\bserver\b.{0,20}\b(?:failed|failure)\b",
        parts=("engine", "weight_sync"),
    ),
    Kind("engine_unreachable", r"\w*(?:Connect|Timeout|Disconnected|HTTPStatus)\w*", parts=("engine", "weight_sync")),
    Kind("engine_unreachable", r"ServerDisconnectedError|RemoteProtocolError", parts=("network", "program")),
    Kind("engine_unreachable", r"\w*(?:Connect|Timeout|Disconnected)\w*", frames=r"/(?:litellm|openai)/"),
    Kind("engine_unreachable", r"\w*(?:Router|Server|Engine|Endpoint)\w*(?:Unreachable|Unavailable)\w*"),
    Kind(
        "engine_core_died",
        REFUSES,
        r"\b(?:engine ?core|(?:vllm|sglang|llm|inference|rollout)\w* (?:async )?(?:engine|server)\w*)\b.{0,40}"
        r"\b(?:died|dead|crashed|terminated)\b",
    ),
    Kind("nccl_timeout", message=r"\bcommunicator was aborted\b|\bcollective\b.{0,60}\btimed? ?out"),
    Kind("gloo_timeout", message=r"\bconnection (?:closed|reset) by peer \["),
    Kind("engine_core_died", "TimeoutError", r"\brpc call\b|\bengine ?core\b"),
    Kind("ray_oom_kill", r"OutOfMemoryError", r"\bnode\b.{0,60}\bmemory\b|\bmemory\b.{0,60}\bnode\b"),
    Kind(
        "driver_mismatch",
        message=r"\bfabric ?manager\b|\bdriver\b.{0,40}\b(?:insufficient|too old|mismatch)|"
        r"\bsystem not (?:yet )?initialized",
    ),
    Kind("nccl_system_error", message=r"\bno socket interface\b|\bncclsystemerror\b|\bunhandled system error\b"),
    Kind("wandb_network", r"CommError|\w+", rf"{_LOST}|communicat\w+ with", frames=r"/wandb/"),
    Kind("wandb_network", message=r"\bcommunicate with (?:the )?(?:wandb|backend)\b|\bwandb\b.{0,80}\btimed out\b"),
    Kind("gloo_timeout", message=_LOST, frames=r"torch/distributed/"),
    Kind("gloo_timeout", r"Dist(?:Network|Store)Error|Rendezvous\w+"),
    Kind("disk_full", message=r"stale file handle|input/output error|no space left|read-only file system|remote i/o"),
    Kind("disk_full", "RuntimeError", r"^file \S+ cannot be opened"),  # torch.save, where its folder is there
    Kind("data_unfit", r"UnidentifiedImageError|DecompressionBombError|BadGzipFile|LibsndfileError"),
    # what is computed anew for the backward pass, to save memory
    Kind(PROGRAM, "CheckpointError", r"\brecomput|\btorch\.utils\.checkpoint\b"),
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
    Kind("path_missing", "NotFoundError", r"no such file or directory|create/open|cannot find the (?:file|path)"),
    Kind(
        "path_missing", message=r"(?:^|[\s'\"(])~?/[\w./-]+\S* (?:does not exist|not found|is not a (?:file|directory))"
    ),
    Kind("path_missing", message=r"(?:doesn't|does not|no) (?:contain )?(?:any |\(supported\) )?data files\b"),
    Kind("path_missing", message=r"^incorrect path_or_model_id"),
    Kind(
        "path_missing",
        rf"{REFUSES}|\w*NotFound\w*",
        r"\b(?:director(?:y|ies)|folder) (?:was |is )?(?:not found|missing)\b|"
        r"\b(?:should|must) be an? (?:\w+ )?(?:directory|folder)\b",
    ),
    Kind("path_missing", message=r"\bno (?:\w+ ){0,3}(?:files?|shards?|checkpoints?) (?:\w+ ){0,2}(?:found|match)"),
    Kind("setup_line_failed", r"Conda\w*Error"),
    Kind("no_gpu_visible", "DeferredCudaCallError"),
    Kind(
        "no_gpu_visible",
        message=r"(?:device|gpus?|cuda(?::\d+)?)\b(?! (?:extension|kernel|op|library|toolkit|module)s?\b).{0,40}"
        r"\b(?:is |are )?"
        r"(?:not (?:available|visible|found)|unavailable)|"
        r"can only be used on (?:cuda|gpus?)\b|requires? an? (?:cuda )?(?:gpu|accelerator)\b(?! with)|"
        r"\bno (?:\w+ )?(?:gpus?|accelerators?|devices?) (?:were |was |is |are )?(?:found|detected)\b"
        r"(?!.{0,40}\bray\b)|"
        r"\bgpu is (?:required|needed)|(?:compiled|built) without cuda|"
        r"\b(?:can ?not|can't|could not|unable to) find (?:any? )?(?:\w+ )?(?:accelerator|gpu)s?\b|"
        r"^you requested gpus?\b|number of accelerators available",
    ),
    Kind(
        "engine_kv_no_blocks",
        message=r"\b(?:no|not enough|insufficient)\b.{0,30}\b(?:memory|space|blocks)\b.{0,20}\bcache\b",
        parts=("engine",),
    ),
    Kind("engine_max_model_len", message=r"\bmax_model_len\b.{0,40}\b(?:greater|larger|longer) than\b"),
    Kind(PROGRAM, message=r"\bout of memory|(?:can't|cannot|failed to|unable to) allocate|not enough memory"),
    # the card that is needed, beside which a version may stand
    Kind("gpu_arch_unsupported", message=rf"\b(?:requires?|needs?) (?:an? )?(?:{_CARDS})"),
    # versions that do not fit: modules, models, arguments and values that the other side does not know
    Kind("abi_mismatch", r"ImportError|OSError", r"\bundefined symbol\b|\bsymbol not found\b|\bwrong elf\b|\babi\b"),
    Kind("env_import_broken", r"(?:Import|ModuleNotFound)Error|PackageNotFoundError|VersionConflict"),
    # Gym's registry of environments: of a package that is not there, or has others in this version
    Kind("env_import_broken", r"UnregisteredEnv|(?:Name|Namespace|Version)NotFound|DeprecatedEnv"),
    Kind("env_import_broken", "KeyError", r"^['\"][\w/:]+-v\d+['\"]$"),
    # raised while a module was imported by another one
    Kind("env_import_broken", r"TypeError|AttributeError", frames=r"\A(?s:.*)\n[^\n]* in <module>\Z"),
    Kind(
        "env_import_broken",
        message=r"(?:unregistered|unsupported|unknown|unrecogni[sz]ed) (?:model|architecture)|"
        r"\bmodel (?:architecture|type)s?\b.{0,120}\bnot (?:yet )?(?:supported|recogni[sz]e)|"
        r"\bfailed to import\b|\bneed to have \w+ installed\b|"
        # a file in a form that the library, in Rust, does not know yet
        r"\bnot match any variant of untagged enum\b|\bunknown variant `[^`]*`, expected\b",
    ),
    # tools that compile, and what they link with
    Kind(
        "env_import_broken",
        message=r"(?:could not|cannot|can't|failed to|unable to) (?:find|locate|open) .{0,40}"
        r"\b(?:nvcc|gcc|g\+\+|ninja|cuda_home|compiler|cudart|toolkit)\b|"
        r"\b(?:nvcc|gcc|g\+\+|ninja|cuda_home|compiler)\b.{0,60}(?:not (?:found|set|installed)|doesn't exist)|"
        r"unrecogni[sz]ed command[- ]line option|cannot find -l\w|fatal error: \S+\.h\w*: no such file",
    ),
    Kind(
        "env_import_broken",
        message=r"unexpected keyword argument|^(?!\w*reward)[\w.]+\(\) (?:missing \d+ required|takes \d+ positional)|"
        r"\bversions? .{0,60}(?:required|incompatible|not supported|too (?:old|new))|"
        r"(?:please|need to|must|try to) (?:install|upgrade|update|downgrade|reinstall|rebuild)"
        r"(?! (?:the|your) (?:data|conf))|"
        r"is not installed|pip install|\bversion \(?v?\d[\w.+]*\)? (?:does not|doesn't) match\b|"
        r"^(?!\w+_(?:port|path|dir|file|name|size|key|url|id|model|mode|type|tensors?|masks?|ids|seqlens|lengths?|"
        r"logits|states?|group|device)\b)"
        r"[\w.-]+ (?:is |are )?(?:required|needed) (?:to (?:use|run)|for)\b|"
        rf"\b(?:requires?|needs?|at least|supported (?:for|with|in|by|since))\b.{{0,60}}(?:{_VERSION})|"
        rf"(?:{_VERSION}).{{0,40}}\b(?:is|are) (?:required|needed)\b|"
        r"\brequires? [\w.-]+ (?:to be |be )?installed\b|\b(?:needs? to|must|has to) be installed\b|"
        r"\bnot (?:be )?installed\b|\bmust be [<>=]=? ?v?\d+(?:\.\d+){2}|"
        rf"\brequires? (?:the )?(?:{_LIBRARIES})(?: package| library| kernels?)?(?:[.,!)]|$)|"
        r"\bis [`'\"]?[\w.-]+[`'\"]? (?:\w+ly )?installed\b|"
        r"\bmodule is not available\b|\bimport(?:ing)? failed\b|"
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
    # what a kernel's own file refuses before it is compiled
    Kind("tensors_unfit", "AssertionError", frames=KERNELS, code=r"[=!]=|%"),
    Kind(
        "kernel_compile",
        r"InductorError|BackendCompilerFailed|CompilationError|LoweringException|OutOfResources|\w*CompileError|"
        r"FailOnRecompileLimitHit|InternalTorchDynamoError|TorchRuntimeError|Unsupported",
    ),
    Kind(
        "kernel_compile", frames=r"torch/_inductor/|triton/(?:compiler|backends)|/jit/|cpp_extension|tilelang|deep_gemm"
    ),
    Kind("engine_unfit_model", "KeyError", r"^['\"](?:\w+\.){2,}\w*(?:weight|bias|scale|zeros)\w*['\"]$", ("engine",)),
    # what Ray's agents say of packages, and its dashboard of one that is too large
    Kind("ray_runtime_env", "HTTPRequestEntityTooLarge", frames=r"/ray/"),
    Kind("ray_runtime_env", r"RuntimeEnv\w*"),
    Kind(
        "ray_runtime_env",
        message=r"runtime[_ ]?env|\b_*ray_\w+_hook|\buri \w+://|\b_ray_pkg_\w+|\bpy_modules\b|"
        r"\bupload\w* .{0,200}\bray cluster\b",
    ),
    Kind(
        "ray_port_in_use",
        message=r"\bsession name\b.{0,160}\bdoes not match\b|\bray component\b.{0,80}\bport\b.{0,60}\bused by\b",
    ),
    Kind("ray_shm_too_small", r"\w*(?:ObjectStore|Plasma)\w*(?:Full|OutOf)\w*"),
    Kind(
        "ray_shm_too_small",
        message=r"\bobject[_ ]store\b.{0,80}\b(?:full|exceeds|too small|out of)\b|/dev/shm\b.{0,40}\btoo small\b",
    ),
    Kind("ray_actor_died", r"(?:Owner|Actor|Worker|Node)\w*(?:Died|Lost|Unavailable|Crashed)\w*"),
    Kind("ray_actor_died", message=r"\bray (?:actor|worker|task)s?\b.{0,60}\b(?:died|dead|lost|killed|crashed)\b"),
    Kind("ray_actor_died", message=r"\b(?:failed to (?:get|look up|find)|could not find) .{0,40}\bactor\b"),
    Kind(
        "ray_pg_infeasible",
        message=r"\bplacement[ _]groups?\b.{0,200}(?:timed? ?out|to be ready|infeasible|invalid|not enough)|"
        r"timed out.{0,80}\bplacement[ _]groups?\b|\bnot? enough (?:\w+ ){0,2}(?:gpus|resources|nodes)\b|"
        r"\bnot included in a placement group\b|"
        r"\bless than\b.{0,40}\bgpu count\b|"
        r"\b(?:available|desired|requested|required)\b[\w ]{0,20}\bgpus?\b.{0,60}\b(?:less than|fewer|only|exceeds?)\b",
    ),
    Kind(
        "engine_unfit_model",
        REFUSES,
        r"\b(?:attention ?backend|attentionbackend\w*|head[_ ]?size|headdim|max_lora_rank)\b.{0,160}"
        r"(?:support|valid|found|selected|multiple)|\bmax_lora_rank\b|"
        r"\bmodel \w+For\w+ (?:does not|doesn't) support|weights were not initialized from checkpoint",
    ),
    Kind(
        "gpu_arch_unsupported",
        message=rf"(?:supports?|supported|requires?|required|needs?|unsupported)\b.{{0,80}}\b(?:{_CARDS})|"
        r"kernel image (?:is|for)|compute capability.{0,80}(?:not supported|required|at least|too (?:old|low))",
    ),
    Kind(
        "nccl_duplicate_gpu",
        message=r"\bduplicated? (?:gpu|(?:cuda )?device)\b|\bsame (?:\w+ )?(?:gpu|cuda device)\b.{0,80}\branks?\b|"
        r"\branks\b.{0,80}\bsame (?:\w+ )?(?:gpu|device)\b|\bnccl\b.{0,40}\binvalid ?usage",
    ),
    Kind("rank_numbers", "KeyError", rf"^['\"]{_RANK_VARIABLES}['\"]?$"),
    Kind(
        "rank_numbers",
        message=rf"\b{_RANK_VARIABLES}\b.{{0,40}}(?:expected, but not set|\benvironment variable|parameter missing|"
        r"\b(?:is|was|are) (?:missing|not (?:set|in the environment|defined|found)))|"
        rf"(?:could not|cannot|can't|failed to) (?:find|get|read) ['\"]?{_RANK_VARIABLES}\b|"
        r"\b(?:process ?group|torch\.distributed|distributed environment) (?:has not been|is not|was not|not|must be) "
        r"(?:been )?initiali[sz]ed",
    ),
    Kind(
        "rank_numbers",
        message=r"\b(?:same|duplicated?) (?:\w+ )?rank\b|\binvalid (?:\w+ )?rank\b|"
        r"(?<!lora )\brank\b.{0,40}\b(?:should|must) be (?:within|in the|less|smaller|below)\b|"
        r"(?<!lora )\b(?:rank|world_size) must be (?:non-?negative|positive)\b|"
        r"\brank \d+ is (?:not part of|out of range)|"
        r"\blocal_rank\b.{0,40} != |"
        r"(?<!lora )\brank\b.{0,40}\balready (?:checked|assigned|taken|in use|registered)",
    ),
    Kind(
        "rank_numbers",
        message=r"\A(?!.*\b(?:batch|samples?|heads|layers|experts|prompts)).*\b(?:less|smaller|bigger|larger|greater|"
        r"exceeds?|more|fewer|equal)\b.{0,60}\bworld[_ ]size\b",
    ),
    # torchrun's agents hand out the ranks, and count on as many of them as they were told of
    Kind("rank_numbers", r"IndexError|KeyError|AssertionError", frames=r"torch/distributed/elastic/agent/[^\n]*\Z"),
    Kind(
        "nccl_desync",
        message=r"\b(?:different|mismatch\w*|inconsistent|disagree\w*|differs?)\b.{0,80}\b(?:across|between|on other) "
        r"(?:\w+ ){0,2}(?:ranks|replicas)\b|\bnot match\w* across (?:\w+ ){0,2}(?:ranks|replicas)\b|"
        r"\branks\b.{0,60}\b(?:different|mismatch\w*|disagree|inconsistent|differ)\b|\bother ranks: ",
    ),
    Kind("engine_unfit_model", "NotImplementedError", parts=("engine",)),
    Kind(
        "engine_unfit_model",
        REFUSES,
        rf"(?:{_OF_ENGINE})\b.{{0,160}}(?:support|valid|compatible|implemented)|"
        rf"(?:support|valid|compatible|implemented)\w*\b.{{0,80}}(?:{_OF_ENGINE})\b",
        parts=("engine",),
    ),
    Kind(
        "path_missing",
        r"(?:Value|Assertion|Runtime|File\w*|OS)Error|Exception",
        r"\b(?:not found|does(?:n't| not) exist|cannot find|could not find|(?:un|not )able to find|no such)\b"
        r"[^.]{0,60}?[\s'\"(:=]/(?!proc|dev|tmp|sys)[\w.-]+/[\w./-]+",
    ),
    Kind(PROGRAM, message=r"(?:cuda|hip|nccl|cublas|cudnn|driver) ?(?:_status|error)|internal assert"),
)
