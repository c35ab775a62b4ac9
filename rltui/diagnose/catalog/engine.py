"""Inference engines (vLLM, SGLang) and what they are asked: KV cache, context, tensor parallelism, templates."""

from __future__ import annotations

from rltui.diagnose import engine_judges, engine_remedies
from rltui.diagnose.causes import Cause
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Remedy

_CONSERVING = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"

SIGNS = (
    *signs(
        "engine_kv_no_blocks",
        "no available memory for the cache blocks",
        ("gpu blocks: 0", r"(?i)gpu blocks: 0\b"),
        ("available kv cache memory", r"(?i)available kv cache memory: -\d"),
        ("mem-fraction-static", r"(?i)not enough memory.*mem-fraction-static"),
        confidence=0.95,
    ),
    *signs(
        "engine_kv_max_len",
        (
            "that can be stored in kv cache",
            r"max seq len \((?P<asked>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<held>\d+)\)",
        ),
        (
            "larger than the available kv cache memory",
            r"max seq len \((?P<asked>\d+)\)(?:.*estimated maximum model length is (?P<held>\d+))?",
        ),
        confidence=0.95,
    ),
    *signs(
        "engine_free_mem_lt_util",
        (
            "less than desired gpu memory utilization",
            r"Free memory on device(?: \S+)? \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\).*"
            r"utilization \((?P<asked_share>[\d.]+)",
        ),
        ("not properly cleaned up before initializing the vllm instance", ""),
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
            r"(?i)num(?:ber of )?_?(?:kv |key.value |attention )?heads.{0,80}divisible by.{0,40}(?:tp|tensor|world)",
        ),
        (
            "divisible by",
            r"(?i)AssertionError: \d+ is not divisible by \d+|(?:hidden|vocab|intermediate)[ _]size.{0,60}divisible by.{0,20}tensor",
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
        confidence=0.95,
    ),
    *signs(
        "engine_prompt_too_long",
        (
            "longer than the maximum model length",
            r"(?:length (?:of )?(?P<prompt>\d+)\)?) is longer than the maximum model length of (?P<limit>\d+)",
        ),
        (
            "maximum context length is",
            r"maximum context length is (?P<limit>\d+) tokens\.? However, you requested (?P<prompt>\d+)",
        ),
        ("maximum context length is", r"maximum context length is (?P<limit>\d+) tokens"),
        (
            "too long",
            r"(?i)prompt \((?:total length )?(?P<prompt>\d+)(?: tokens)?\) is too long(?: (?:and exceeds limit of|to fit into the model \(context length) (?P<limit>\d+))?",
        ),
        (
            "longer than the model's context length",
            r"(?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+)",
        ),
        (
            "exceeds the maximum allowed length",
            r"(?i)input length \((?P<prompt>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+)",
        ),
        (
            "exceeds the model's maximum",
            r"(?i)(?:prompt|input|sequence).{0,80}exceeds the model's max(?:imum)? (?:model |context |input )?(?:length|len)",
        ),
    ),
    *signs(
        "engine_core_died",
        "engine core initialization failed",
        "enginedeaderror",
        ("enginecore", r"EngineCore (?:encountered|hit|failed|has encountered)"),
        "background loop has errored already",
        ("background loop", r"Background loop is (?:stopped|not running)"),
        ("died unexpectedly", r"(?:Worker proc|VllmWorker)\S*.*died unexpectedly"),
        ("workerproc", r"WorkerProc (?:initialization failed|failed to start|hit an exception)"),
        ("engine loop", r"(?i)engine loop (?:is not running|has died)"),
        ("scheduler hit an exception", ""),
        confidence=0.7,
    ),
    Sign(
        cause="engine_exit_line",
        anchor="died unexpectedly",
        pattern=r"Engine core proc(?:ess)? \S+ died unexpectedly",
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
            r"(?i)no chat template (?:is )?(?:defined|found|set|specified|provided)|chat template (?:is )?(?:missing|not found|not set)",
        ),
        ("chat_template", r"(?i)chat_template (?:is )?(?:missing|not found|None\b)|must provide a chat[ _]template"),
    ),
    *signs(
        "sandbox_down",
        (
            "sandbox",
            r"(?i)sandbox.{0,120}(?:connection refused|timed? ?out|unreachable|unavailable|did not start|failed to start|max retries exceeded|is (?:down|not running)|connect(?:ion)? (?:error|failed)|50[234])",
        ),
        (
            "sandbox",
            r"(?i)(?:failed to (?:start|connect to|reach|create)|cannot connect to|could not connect to|error (?:starting|connecting)).{0,60}sandbox",
        ),
        ("sandbox", r"(?i)failed to execute code.{0,120}sandbox service is running"),
        (
            "/run_code",
            r"(?i)(?:max retries exceeded|error|refused|timed out|failed|50[234]).{0,200}/run_code|/run_code.{0,200}(?:refused|timed out|error)",
        ),
        (
            "code execution",
            r"(?i)code execution (?:server|service|api|sandbox).{0,80}(?:refused|timed out|unreachable|unavailable|failed)",
        ),
        unless=r"(?i)retry(?:ing)? (?:in|after)|\bretry \d+/\d+",
    ),
)

CAUSES = (
    Cause(
        id="engine_kv_no_blocks",
        tier="root",
        title="Nothing was left for the engine's KV cache after weights and activations",
        tell="The engine says so before it starts, or counts 0 GPU blocks.",
        remedies=engine_remedies.kv_no_blocks,
        wrong=(
            "A lower memory utilization: the cache gets what is left of that share, so it has to rise. "
            "In one thread 0.03 to 0.4 all failed and 0.5 worked.",
        ),
        explains=frozenset({"engine_kv_max_len", "engine_core_died"}),
        sources=(_CONSERVING, "vllm-project/vllm#10439"),
    ),
    Cause(
        id="engine_kv_max_len",
        tier="root",
        title="One sequence of the full context does not fit into the engine's KV cache",
        detail="{asked} tokens wanted, {held} fit",
        tell="The engine names both numbers, or the memory that one request would need.",
        remedies=engine_remedies.kv_max_len,
        wrong=("Fewer concurrent requests: not even one fits.",),
        explains=frozenset({"engine_core_died"}),
        sources=(_CONSERVING,),
    ),
    Cause(
        id="engine_free_mem_lt_util",
        tier="root",
        title="The GPU had less free memory than the engine was told to take",
        detail="{free_gib} of {total_gib} GiB free, share asked for {asked_share}",
        tell="The engine compares free and wanted memory at start; a small gap is a leftover, a large one another process.",
        remedies=engine_remedies.free_memory,
        wrong=("Lowering the utilization where next to nothing is free: the card belongs to someone else.",),
        explains=frozenset({"engine_core_died"}),
        sources=(_CONSERVING,),
    ),
    Cause(
        id="engine_tp_heads",
        tier="root",
        title="Tensor parallelism does not divide the model",
        detail="{heads} attention heads, tensor parallelism {tp}",
        tell="The engine refuses before it loads anything, and names the numbers.",
        remedies=engine_remedies.tensor_parallel,
        wrong=("Odd sizes such as 3, 5 or 6 to use up GPUs: heads come in powers of two times a small factor.",),
        explains=frozenset({"engine_core_died"}),
        sources=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",),
    ),
    Cause(
        id="engine_max_model_len",
        tier="root",
        title="max_model_len is larger than the model's own context",
        detail="{asked} asked for, the model has {derived}",
        tell="The engine derives the limit from config.json and refuses more.",
        remedies=engine_remedies.max_model_len,
        wrong=("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1: positions the model never saw give NaN or nonsense.",),
        explains=frozenset({"engine_core_died"}),
        sources=("https://docs.vllm.ai/en/latest/configuration/env_vars.html",),
    ),
    Cause(
        id="engine_prompt_too_long",
        tier="root",
        title="A prompt does not fit into the engine's context",
        detail="{prompt} tokens, limit {limit}",
        tell="The engine or its server names both numbers; in vLLM's V1 a prompt of exactly the limit fails too.",
        remedies=engine_remedies.prompt_too_long,
        wrong=("Truncating the end of the prompt silently: the question may be lost.",),
        sources=("EleutherAI/lm-evaluation-harness#2880",),
    ),
    Cause(
        id="engine_core_died",
        tier="wrapper",
        title="The engine's process died; this line only passes it on",
        tell="EngineDeadError, 'Engine core initialization failed' and the like come from the side that waits. The "
        "cause is the first ERROR of the engine process itself; where there is none, think of a kill: host memory, "
        "SIGKILL, driver. The same words after the script's last output are the normal end of an offline script.",
        remedies=(
            Remedy(
                id="restart-once",
                summary="Restart once from the newest checkpoint, and only if nothing above names a cause.",
                safe="confirm",
            ),
        ),
        wrong=("Restarting again and again: what killed it is still there.",),
        collect=(
            "the first ERROR line of the EngineCore or worker process, above this one",
            "dmesg of that node: kernel kills and Xid events",
            "the exit code or signal of the engine process",
        ),
        judge=engine_judges.engine_core_died,
        sources=("vllm-project/vllm#23176", "vllm-project/vllm#32468"),
    ),
    Cause(
        id="chat_template_missing",
        tier="root",
        title="The tokenizer has no chat template",
        tell="Base models and some quantised copies come without one; transformers dropped its default ones in 4.44.",
        remedies=(
            Remedy(
                id="set-chat-template",
                summary="Use the instruct model's tokenizer, or set tokenizer.chat_template (vLLM: --chat-template).",
                safe="confirm",
            ),
        ),
        wrong=("Another engine version: the template belongs to the model's files.",),
        sources=("huggingface/transformers#33246",),
    ),
    Cause(
        id="sandbox_down",
        tier="root",
        title="The code-execution sandbox does not answer",
        tell="Connection refused or timeouts to the sandbox or its /run_code; rewards silently become zero meanwhile.",
        remedies=(
            Remedy(
                id="restart-sandbox",
                summary="Check the sandbox's health and restart it, at most three times; pause training while it is down.",
                safe="auto",
            ),
            Remedy(id="sandbox-concurrency", summary="Halve the number of concurrent executions.", safe="auto"),
        ),
        wrong=("Going on with zero rewards: the policy learns from noise.",),
        collect=("the sandbox server's own log", "whether its port answers from the node that asks"),
        sources=("https://github.com/bytedance/SandboxFusion",),
    ),
)
