"""Inference engines (vLLM, SGLang) and what they are asked: KV cache, context, tensor parallelism, templates."""

from __future__ import annotations

from rltui.diagnose import engine_judges, engine_remedies
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

_CONSERVING = "https://docs.vllm.ai/en/latest/configuration/conserving_memory.html"

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
        tell="The engine compares free and wanted memory at start; a small gap is a leftover, a large one another "
        "process.",
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
        tell="Connection refused or timeouts to the sandbox, its /run_code or the server of the rewards; rewards "
        "silently become zero meanwhile.",
        remedies=(
            Remedy(
                id="restart-sandbox",
                summary="Check the sandbox's health and restart it, at most three times; pause training while it is "
                "down.",
                safe="auto",
            ),
            Remedy(id="sandbox-concurrency", summary="Halve the number of concurrent executions.", safe="auto"),
        ),
        wrong=("Going on with zero rewards: the policy learns from noise.",),
        collect=("the sandbox server's own log", "whether its port answers from the node that asks"),
        sources=("https://github.com/bytedance/SandboxFusion",),
    ),
)
