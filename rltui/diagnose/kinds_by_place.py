"""Kinds of errors by where they are raised: libraries keep what reads settings, files, models and servers apart.

A library words its refusals anew with each version, but its folders and the functions in them stay. So where no words
tell, the innermost frame does: what ``vllm/config`` refuses is a setting, what ``ray/_private/runtime_env`` raises is
about that environment.
"""

from __future__ import annotations

from rltui.diagnose.kind import Kind

_REFUSES = r"(?:Value|Assertion|Runtime|NotImplemented)Error|Exception"
"""Not TypeError: that a value has no place there is a mistake of the code."""

_PASSES_ON = (
    r"/(?:asyncio|concurrent|importlib|json|multiprocessing|unittest)/|/(?:contextlib|functools|subprocess|threading|"
    r"socket|ssl|selectors|runpy|typing|enum|shutil|pathlib)\.py|<frozen |"
    r"/torch/(?:utils/_contextlib|nn/modules/module)\.py|"
    r"/(?:pydantic|requests|urllib3|httpx|httpcore|aiohttp|anyio|uvloop|tenacity)/"
)
"""Frames of what is called from everywhere: the one that called it tells."""


def _raised_in(places: str, functions: str = r"\S+") -> str:
    """The pattern for frames whose innermost telling one is in one of these files, and in one of these functions."""
    return rf"/(?:{places})[^\n]* in (?:\S+\.)?(?:{functions})(?:\n[^\n]*(?:{_PASSES_ON})[^\n]*)*\Z"


_READS_SETTINGS = (
    r"(?!configuration_(?:utils|auto))\w*(?:config|configs|configuration|args|argument|arguments|argparse|options|settings|hparams)\w*"
    r"(?:/[\w/]+)?\.py|"
    r"\w+/engine/arg_utils\.py|sglang/srt/(?:arg_groups|configs)/|accelerate/utils/dataclasses\.py|"
    r"torch/distributed/(?:run|launch)\w*\.py|(?:[\w.-]+/)*schemas/[\w/]+\.py|(?:[\w.-]+/)*validat(?:ion|ors?|e)\.py"
)

_MODELS_OF_ENGINES = (
    r"(?:vllm|sglang/srt|lmdeploy|tensorrt_llm)/(?:model_executor/(?:layers|models|model_loader|kernels)|models|model_loader|"
    r"layers|lora|transformers_utils|v1/attention|attention|platforms|_torch/models|_torch/modules)/"
)

_SETS_UP = r"(?!forward|apply|execute|run|compute|__call__|_?get_|fetch|replace)\S+"
"""What an engine does with a model before it works with it."""

KERNELS = _raised_in(
    r"(?:[\w.-]+/)*(?:kernels?|(?<!deepspeed/)_?ops|triton\w*|cute\w*|functional)/(?!op_builder)[\w/]*\.py|"
    r"(?:[\w.-]+/)*\w*(?:_ops|_kernels?)\.py",
    r"(?!__init__|__post_init__)\S+",
)
"""Frames of what works on tensors alone, whose sizes and types it takes for what they are."""

SGLANG_SETTINGS = Kind("settings_rejected", _REFUSES, frames=_raised_in(r"sglang/srt/arg_groups/"))
"""What it derives for a model out of its flags, and refuses in the words of models and backends."""

REFUSES_SETTINGS: tuple[Kind, ...] = (
    Kind("settings_rejected", _REFUSES, frames=_raised_in(_READS_SETTINGS)),
    Kind("settings_rejected", _REFUSES, frames=r" in (?:\S+\.)?(?:str_?to_?bool|str2bool|_*validate_shared_\w+)\Z"),
)
"""Who does nothing but look settings over, whatever these are of: data, templates, tensors."""

PLACES: tuple[Kind, ...] = (
    Kind("ray_runtime_env", frames=_raised_in(r"ray/_private/runtime_env/|ray/runtime_env/")),
    Kind("ray_pg_infeasible", frames=_raised_in(r"ray/util/placement_group\.py|ray/\w+/placement_group\w*\.py")),
    Kind(
        "ray_head_unreachable",
        r"ConnectionError|TimeoutError|\w*Rpc\w*Error|GetTimeoutError",
        frames=_raised_in(r"ray/(?:_private/(?:services|node|worker|gcs_utils)\.py|util/client/)"),
    ),
    Kind("wandb_auth", "AuthenticationError", frames=_raised_in("wandb/")),
    Kind("wandb_network", r"Exception|\w*(?:Comm|Connect|Timeout|Manager|Service)\w*", frames=_raised_in("wandb/sdk/")),
    Kind("path_missing", frames=_raised_in(r"huggingface_hub/utils/_validators\.py")),
    Kind("path_missing", r"TypeError|OSError|RuntimeError", frames=_raised_in(r"sentencepiece/", "Load\\w*|Init")),
    Kind(
        "hf_offline_miss",
        r"OSError|\w*(?:Connection|Timeout|HTTP|Http|Download|Request)\w*",
        frames=_raised_in(
            r"huggingface_hub/(?:file_download|_snapshot_download|hf_file_system|utils/_http)\.py|"
            r"modelscope/hub/|datasets/utils/file_utils\.py|torch/hub\.py|tiktoken/load\.py|nltk/"
        ),
    ),
    Kind(
        "env_import_broken",
        frames=_raised_in(
            r"deepspeed/ops/op_builder/(?:builder|all_ops|__init__)\.py|bitsandbytes/(?:cextension|cuda_setup)|triton/runtime/build\.py|"
            r"transformers/(?:convert_slow_tokenizer|dependency_versions\w*|utils/(?:versions|import_utils))\.py|pkg_resources/"
        ),
    ),
    Kind(
        "no_gpu_visible",
        r"\w*Error",
        frames=_raised_in(
            r"triton/runtime/driver\.py|torch/cuda/__init__\.py",
            r"_lazy_init|_check_capability|set_device|current_device|get_device_\w+|_create_driver|device_count",
        ),
    ),
    Kind("gloo_timeout", r"\w*(?:Connection|Timeout|Network|Store)\w*", frames=_raised_in(r"torch/distributed/")),
    Kind("rank_numbers", "ValueError", frames=_raised_in(r"torch/distributed/(?:elastic/)?rendezvous")),
    Kind("engine_unfit_model", rf"{_REFUSES}|KeyError", frames=_raised_in(_MODELS_OF_ENGINES, _SETS_UP)),
    # which class a model's own description names
    Kind(
        "engine_unfit_model",
        "TypeError",
        frames=_raised_in(r"(?:vllm|sglang/srt)/(?:model_executor/)?models/registry\.py"),
    ),
    # an optimizer, a sampler or a schedule refuses what it is made with
    Kind(
        "settings_rejected",
        r"ValueError|AssertionError",
        frames=_raised_in(
            r"torch/optim/|torch/utils/data/|\w+/core/optimizer\w*\.py|\w*(?:scheduler|optimizer)\w*\.py", "__init__"
        ),
    ),
    # an adapter refuses the numbers that its settings name while its layers are made
    Kind(
        "settings_rejected",
        "ValueError",
        frames=_raised_in(r"peft/tuners/[\w/]+\.py", r"update_layer|__init__|_check_\w+"),
    ),
    Kind(
        "settings_rejected",
        "ValueError",
        frames=_raised_in(r"transformers/modeling_utils\.py", r"\w*(?:can_dispatch|attn_implementation)\w*"),
    ),
    Kind("settings_rejected", rf"{_REFUSES}|KeyError", frames=_raised_in(_READS_SETTINGS)),
)
