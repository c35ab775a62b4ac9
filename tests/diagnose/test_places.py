"""Where no words tell, the innermost frame does: places of libraries that have one story."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source

PACKAGES = "/opt/venv/lib/python3.12/site-packages/"


def first_cause(*frames: tuple[str, str], error: str) -> str:
    """Return the first cause of a log that ends in ``error``, raised below these frames (path, function)."""
    lines = [f'  File "{path}", line 9, in {function}\n    odd(thing)\n' for path, function in frames]
    log = "Traceback (most recent call last):\n" + "".join(lines) + error + "\n"
    return diagnose([text_source("log", log)])[0].id


RUN = ("/srv/run/train.py", "main")


@pytest.mark.parametrize(
    ("path", "function", "error", "cause"),
    [
        ("vllm/config/odd.py", "finish", "ValueError: the moon is full", "settings_rejected"),
        ("trl/trainer/odd_config.py", "finish", "AssertionError: the moon is full", "settings_rejected"),
        ("torch/optim/odd.py", "__init__", "ValueError: the moon is full", "settings_rejected"),
        ("vllm/model_executor/models/odd.py", "load_weights", "KeyError: 'moon'", "engine_unfit_model"),
        ("sglang/srt/layers/odd.py", "__init__", "RuntimeError: the moon is full", "engine_unfit_model"),
        ("ray/_private/runtime_env/odd.py", "setup", "RuntimeError: the moon is full", "ray_runtime_env"),
        ("ray/util/placement_group.py", "check", "ValueError: the moon is full", "ray_pg_infeasible"),
        ("huggingface_hub/file_download.py", "get", "OSError: the moon is full", "hf_offline_miss"),
        ("deepspeed/ops/op_builder/builder.py", "load", "RuntimeError: the moon is full", "env_import_broken"),
        ("odd/kernels/attend.py", "attend", "ValueError: M must be divisible by 256", "tensors_unfit"),
        ("odd/schemas/rows.py", "check", "ValueError: the moon is full", "settings_rejected"),
        ("sentencepiece/__init__.py", "LoadFromFile", "TypeError: not a moon", "path_missing"),
    ],
)
def test_a_place_tells_where_no_words_do(path: str, function: str, error: str, cause: str) -> None:
    assert first_cause(RUN, (PACKAGES + path, function), error=error) == cause
    assert first_cause((PACKAGES + path, function), RUN, error=error) != cause, "only the innermost frame tells"


def test_what_is_called_from_everywhere_leaves_it_to_its_caller() -> None:
    below = ("/usr/lib/python3.12/json/decoder.py", "decode")
    error = "ValueError: the moon is full"
    assert first_cause(RUN, (PACKAGES + "vllm/config/odd.py", "finish"), below, error=error) == "settings_rejected"


def test_a_mistake_of_the_code_is_one_wherever_it_is() -> None:
    error = "TypeError: '<' not supported between instances of 'NoneType' and 'int'"
    assert first_cause(RUN, (PACKAGES + "vllm/config/odd.py", "finish"), error=error) == "program_failed"


def test_an_engine_at_work_says_nothing_of_its_model() -> None:
    at_work = (PACKAGES + "vllm/model_executor/models/odd.py", "forward")
    assert first_cause(RUN, at_work, error="RuntimeError: the moon is full") == "program_failed"


def test_what_a_kernel_refuses_is_no_setting() -> None:
    kernel = (PACKAGES + "odd/kernels/attend.py", "attend")
    assert first_cause(RUN, kernel, error="ValueError: row_index requires a `row_count`") == "program_failed"


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/srv/run/save_checkpoint.py", "ckpt_broken"),
        ("/srv/run/activation_checkpointing.py", "program_failed"),
        ("/srv/run/checkpoint_engine/odd.py", "program_failed"),
    ],
)
def test_not_all_that_is_called_a_checkpoint_is_saved(path: str, cause: str) -> None:
    assert first_cause(RUN, (path, "take"), error="RuntimeError: the moon is full") == cause
