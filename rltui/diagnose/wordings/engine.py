"""How they say it: Engines (vLLM, SGLang), templates and sandboxes."""

from rltui.diagnose.engine_judges import read_missed_engine
from rltui.diagnose.signs import Sign, signs

# Servers and clients have the word in their names.
_SANDBOXES = "sandbox sandboxes sandboxfusion microsandbox opensandbox sandboxserver sandboxclient"
_SCORING_PATH = r"\b(?:run_?code|code[/_](?:run|exec\w*)|exec(?:ute)?(?:_code)?|(?:get_|compute_)?(?:rewards?|score))\b"

SIGNS = (
    *signs(
        "engine_kv_no_blocks",
        "no available memory for the cache blocks",
        ("gpu blocks: 0", r"(?i)gpu blocks: 0\b"),
        ("available kv cache memory", r"(?i)available kv cache memory: -\d"),
        ("mem-fraction-static", r"(?i)not enough memory.*mem-fraction-static"),
        ("memory for the kv cache", r"(?i)\b(?:no|not enough|insufficient)\b.{0,24} memory for the kv cache"),
        ("memory for kv cache", r"(?i)\b(?:no|not enough|insufficient)\b.{0,24} memory for kv cache"),
        confidence=0.95,
    ),
    *signs(
        "engine_kv_max_len",
        (
            "that can be stored in kv cache",
            r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
            r"cache \((?P<held>\d+)\)",
        ),
        (
            "larger than the available kv cache memory",
            r"max seq len \((?P<asked>\d+)\).*larger than the available KV cache memory"
            r"(?:.*estimated maximum model length is (?P<held>\d+))?",
        ),
        # the sentence is long: terminals and reports break it before or after
        ("larger than the available kv cache memory", r"larger than the available KV cache memory \([\d.]+ [KMGT]iB\)"),
        confidence=0.95,
    ),
    *signs(
        "engine_free_mem_lt_util",
        (
            "less than desired",
            r"Free memory on device(?: \S+)? \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*"
            r"desired [GC]PU memory utilization \((?P<asked_share>[\d.]+)",
        ),
        ("not properly cleaned up before initializing the vllm instance", ""),
        ("error in memory profiling", ""),
    ),
    *signs(
        "engine_tp_heads",
        (
            "divisible by tensor parallel",
            r"attention heads \((?P<heads>\d+)\) must be divisible by tensor[ _]parallel[ _]size \((?P<tp>\d+)\)",
        ),
        ("divisible by", r"number of GPUs per node is not divisible by the number of tensor parallel"),
        (
            "divisible by",
            r"(?i)num(?:ber of )?_?(?:kv |key.value |attention )?heads.{0,80}divisible by.{0,40}(?:tp|mp_size|tensor|"
            r"world|model.parallel)",
        ),
        (
            "divisible by",
            r"(?i)AssertionError: \d+ is not divisible by \d+|(?:hidden|vocab|intermediate)[ _]size.{0,60}divisible "
            r"by.{0,20}tensor",
        ),
        ("divisible by", r"(?i)must be divisible by (?:[tpe]p|tensor|pipeline|expert|world)[_ ](?:parallel[_ ])?size"),
        (
            "must be a multiple of",
            r"(?i)(?:heads|query_groups|(?:hidden|ffn|vocab|intermediate)\w*size)\b.{0,40}must be a multiple of "
            r"(?:tensor|context|expert|model)\w*parallel",
        ),
        ("% tp_size", r"(?:assert|AssertionError).*% tp_size == 0"),
    ),
    *signs(
        "engine_max_model_len",
        (
            "greater than the derived max_model_len",
            r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len"
            r"(?: \((?:[a-z_]+=(?P<derived>\d+))?)?",
        ),
        (
            "greater than the derived context_length",
            r"context_length \((?P<asked>\d+)\) is greater than the derived context_length \((?P<derived>\d+)",
        ),
        confidence=0.95,
        # so vLLM warns where it was told to take the length; where it refuses, it says first how to tell it
        unless=r"config\.json\)\. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used",
    ),
    *signs(
        "engine_prompt_too_long",
        (
            "longer than the maximum model length",
            r"(?:length (?:of )?(?P<prompt>\d+)\)?.{0,120} |)(?:is )?longer than the maximum model length of "
            r"(?P<limit>\d+)",
        ),
        (
            "longer than the maximum model length",
            r"length (?:of )?(?P<prompt>\d+)\)? is longer than the maximum model length of (?P<limit>\d+)",
        ),
        (
            "maximum context length is",
            r"maximum context length is (?P<limit>\d+) tokens\.? However, you requested (?P<prompt>\d+)",
        ),
        (
            "maximum context length is",
            r"maximum context length is (?P<limit>\d+) tokens\.? However, your prompt contains (?:at least "
            r")?(?P<prompt>\d+)",
        ),
        ("maximum context length is", r"maximum context length is (?P<limit>\d+) tokens"),
        (
            "too long",
            r"(?i)prompt \((?:total length )?(?P<prompt>\d+)(?: tokens)?\) is too long(?: (?:and exceeds limit of|to "
            r"fit into the model \(context length) (?P<limit>\d+))?",
        ),
        (
            "longer than the model's context length",
            r"(?<!\d)(?P<prompt>\d{1,9}) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        ),
        (
            "exceeds the maximum allowed length",
            r"(?i)input length \((?P<prompt>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+)",
        ),
        (
            "exceeds the model's max",
            r"(?i)(?:prompt|input|sequence|tokens?|count).{0,80}exceeds the model's max(?:imum context length of "
            r"(?P<limit>\d+) tokens\. You requested a total of (?P<prompt>\d+))?",
            "exceeds",
        ),
        ("prompt length", r"(?i)prompt length (?P<prompt>\d+) is longer than (?:max_prompt_length )?(?P<limit>\d+)"),
        ("is larger than max_length", r"sequence_length=(?P<prompt>\d+) is larger than max_length=(?P<limit>\d+)"),
        ("max_tokens must be at least 1", r"max_tokens must be at least 1, got -?\d+"),
        (
            "maximum context length",
            r"Input length \((?P<prompt>\d+)\) exceeds model's maximum context length \((?P<limit>\d+)",
        ),
        (
            "max_model_len",
            r"prompt (?:has|of|with) (?P<prompt>\d+) tokens.{0,80}(?:more than|exceeds) max_model_len[= "
            r"(]+(?P<limit>\d+)",
        ),
    ),
    *signs(
        "engine_core_died",
        "engine core initialization failed",
        ("enginedeaderror", "", "enginedeaderror mqenginedeaderror asyncenginedeaderror"),
        ("enginecore", r"EngineCore (?:encountered|hit|failed|has encountered)"),
        "background loop has errored already",
        "engine background task failed",
        ("background loop", r"Background loop is (?:stopped|not running)"),
        ("died unexpectedly", r"(?:Worker ?[Pp]roc|VllmWorker)\b.*died unexpectedly"),
        ("workerproc", r"WorkerProc (?:initialization failed|failed to start|hit an exception)"),
        ("engine loop", r"(?i)engine loop (?:is not running|has died)"),
        "scheduler hit an exception",
        ("is dead", r"(?i)rank \d+ scheduler is dead|scheduler process is dead"),
        ("sigquit", r"(?i)sigquit.{0,120}child"),
        ("engine process failed to start", ""),
        ("fatal signal from worker processes", ""),
        ("engine core process", r"Engine core process \S+ (?:died|failed)"),
        ("engine core processes", r"Engine core processes \S+ (?:died|failed)"),
        ("engine process", r"(?i)engine process (?:has )?died"),
        ("please see the error messages above", r"Initialization failed\. Please see the error messages above"),
        (
            "please check the stack trace above",
            r"Worker failed with error .{1,300}, please check the stack trace above",
        ),
        ("childprocesserror", r"ChildProcessError: worker died"),
        confidence=0.7,
    ),
    Sign(
        cause="engine_exit_line",
        anchor="died unexpectedly",
        pattern=r"Engine core proc(?:ess)? \S+ died unexpectedly",
    ),
    Sign(
        cause="engine_core_died",
        anchor="died unexpectedly",
        pattern=r"Engine core proc(?:ess)? \S+ died unexpectedly",
        check=read_missed_engine,
    ),
    Sign(cause="engine_work_done", anchor="processed prompts", pattern=r"Processed prompts: 100%"),
    *signs(
        "chat_template_missing",
        ("chat_template is not set", ""),
        (
            "chat template",
            r"(?i)default chat template is no longer allowed|does not (?:have|define|provide) a chat[ _]template",
        ),
        (
            "chat template",
            r"(?i)no chat template (?:is )?(?:defined|found|set|specified|provided)|chat template (?:is )?(?:missing|"
            r"not found|not set)",
        ),
        (
            "chat_template",
            r"(?i)chat_template['\"`]? (?:is )?(?:missing|not found|None\b|null\b)|must provide a chat[ _]template",
        ),
    ),
    *signs(
        "sandbox_down",
        (
            "sandbox",
            r"(?i)sandbox.{0,200}(?:connection refused|timed? ?out|unreachable|unavailable|did not start|failed to "
            r"start|max retries exceeded|is (?:down|not running)|not (?:reachable|responding|"
            r"healthy)|connect(?:ion)? (?:error|failed)|"
            r"(?:status|http|error|code|returned|got|failed)\D{0,12}\b50[234]\b|"
            r"\b50[234]:? (?:bad|service|gateway|server|error))",
            _SANDBOXES,
        ),
        (
            "sandbox",
            r"(?i)(?:failed to (?:start|connect to|reach|create)|cannot connect to|could not connect to|error "
            r"(?:starting|connecting)).{0,60}sandbox",
            _SANDBOXES,
        ),
        ("sandbox", r"(?i)failed to execute code.{0,120}sandbox service is running"),
        (
            "sandbox",
            r"(?i)sandbox (?:api )?(?:call|request|runtime) (?:has )?failed|"
            r"\bSandboxError\b",
            "sandbox sandboxerror",
        ),
        (
            "/run_code",
            r"(?i)(?:max retries exceeded|error|refused|timed out|failed|50[234]).{0,200}/run_code|"
            r"/run_code.{0,200}(?:refused|timed out|error)",
        ),
        # the words of Python's HTTP clients, which say it when they have given up, about a path that runs or scores
        (
            "max retries exceeded with url",
            r"(?i)max retries exceeded with url: /\S*?" + _SCORING_PATH,
        ),
        (
            "code execution",
            r"(?i)code execution (?:server|service|api|sandbox).{0,80}(?:refused|timed out|unreachable|unavailable|"
            r"failed)",
        ),
        (
            "judge",
            r"(?i)\b(?:code|math)[ _-]judge\b.{0,160}(?:not available|unavailable|refused|timed? ?out|max "
            r"retries|50[234])",
        ),
        # "sandbox/timeout_rate: 0.02" is a metric, and programs that run out of their own time are an answer
        unless=r"(?i)retry(?:ing)? (?:in|after)|\bretry \d+/\d+|\bstd(?:err|out)['\"]?[:=]|"
        r"sandbox[/_]\w+['\"]?\s?[:=]\s?[\d.]|"
        r"\d (?:programs?|submissions?|solutions?|tests?|test cases?|cases|samples?|rollouts?)\b.{0,20}\btimed? ?out",
    ),
)
