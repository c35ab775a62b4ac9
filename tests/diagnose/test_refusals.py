"""What libraries refuse, by the family of the refusal: beside each the nearest one that means something else."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import text_source


def cause_of(path: str, function: str, said: str, code: str = "raise odd(") -> str:
    """Return the first cause of a log that ends in ``said``, raised by this line of code."""
    log = f'Traceback (most recent call last):\n  File "/w/{path}", line 7, in {function}\n    {code}\n{said}\n'
    return diagnose([text_source("log", log)])[0].id


@pytest.mark.parametrize(
    ("path", "function", "said", "cause"),
    [
        # who looks settings over may speak of data, templates and types
        ("moon/configs/sft.py", "check", "ValueError: the chat_template of both does not match", "settings_rejected"),
        ("moon/loop.py", "check", "ValueError: the chat_template of both does not match", "data_unfit"),
        ("moon/data_loader.py", "check", "ValueError: this cannot be had with --lunar-rows", "settings_rejected"),
        ("moon/data_loader.py", "check", "ValueError: this cannot be had with lunar rows", "data_unfit"),
        ("moon/loop.py", "land", "RuntimeError: no room, out of slots; more with --lunar-slots", "program_failed"),
        # what the refusal advises
        ("moon/moe.py", "forward", "AssertionError: No overlap here. Disable lunar_overlap.", "settings_rejected"),
        ("moon/moe.py", "forward", "AssertionError: No overlap here. Disable it.", "program_failed"),
        ("moon/sync.py", "broadcast", "ValueError: these weights need lunar_whole=True.", "settings_rejected"),
        ("moon/loop.py", "run", "ValueError: nothing to do: first_step=9 > args.steps=8", "settings_rejected"),
        (
            "moon/grpo.py",
            "__init__",
            "ValueError: `use_moon` does not support it. Use `use_sun` instead.",
            "settings_rejected",
        ),
        ("moon/grpo.py", "run", "ValueError: no moon can be resumed here", "program_failed"),
        ("moon/loop.py", "land", "RuntimeError: Set moon_phase before you land", "settings_rejected"),
        # what ran out at work needs no other setting, whatever the refusal advises
        ("moon/loop.py", "land", "RuntimeError: 3 landings failed. Increase moon_size", "settings_rejected"),
        ("moon/loop.py", "land", "RuntimeError: the orbit is full. Increase moon_size", "program_failed"),
        ("moon/loop.py", "land", "RuntimeError: no free orbit, try --moons 3", "program_failed"),
        (
            "moon/loop.py",
            "land",
            "RuntimeError: all 3 moons are dead after 3 restarts, lower moon_size",
            "program_failed",
        ),
        # a function where none was given is wrong code
        ("moon/args.py", "register", "ValueError: moon_size must be odd, got 4", "settings_rejected"),
        ("moon/hooks.py", "register", "ValueError: moon_hook must be callable, got 4", "program_failed"),
        # what derives settings for a model, and what loads the model
        ("sglang/srt/arg_groups/moon.py", "apply", "ValueError: The model does not support it", "settings_rejected"),
        ("sglang/srt/models/moon.py", "apply", "ValueError: The model does not support it", "engine_unfit_model"),
        # adapters
        ("peft/tuners/moon/layer.py", "update_layer", "ValueError: `r` is no number of rows: -1", "settings_rejected"),
        ("peft/tuners/moon/layer.py", "forward", "ValueError: `r` is no number of rows: -1", "program_failed"),
        # files
        ("moon/cache.py", "scan", "CacheNotFound: Cache directory not found: /srv/hub", "path_missing"),
        ("moon/save.py", "save", "ValueError: the target should be a directory, not a file", "path_missing"),
        ("moon/save.py", "save", "ValueError: the target should be another moon", "program_failed"),
        # libraries
        ("moon/mha.py", "forward", "AssertionError: the sliding window requires flash_attn", "env_import_broken"),
        ("moon/mha.py", "forward", "AssertionError: the sliding window requires patience", "program_failed"),
        (
            "moon/engines.py",
            "forward",
            "AssertionError: Lunar-Engine v0.1 must be >= 2.10.0 for this",
            "env_import_broken",
        ),
        ("moon/engines.py", "forward", "ValueError: packed_seqlens is required for 1D", "program_failed"),
        # tensors
        ("moon/route.py", "scatter", "TypeError: top-k weights must be FP32, got bf16", "tensors_unfit"),
        ("moon/route.py", "merge", "ValueError: mask length mismatch: got 3, expected 4", "tensors_unfit"),
        ("moon/route.py", "forward", "AssertionError: moons=1 expected, got moons=4", "tensors_unfit"),
        ("moon/route.py", "forward", "AssertionError: one moon expected, got four", "program_failed"),
        # data
        ("moon/vl.py", "positions", "ValueError: image grids and words do not match", "data_unfit"),
        ("moon/vl.py", "positions", "ValueError: moons and words do not match", "program_failed"),
        # numbers, engines
        ("moon/merge.py", "merge", "ValueError: NaNs detected in the merged layer", "nan_or_loss_scale"),
        ("moon/watch.py", "look", "RuntimeError: the vLLM engine loop has died", "engine_core_died"),
        ("moon/watch.py", "look", "RuntimeError: the moon loop has died", "program_failed"),
    ],
)
def test_a_refusal_is_of_the_family_that_its_words_and_place_say(
    path: str, function: str, said: str, cause: str
) -> None:
    assert cause_of(path, function, said) == cause


@pytest.mark.parametrize(
    ("path", "function", "code", "cause"),
    [
        ("moon/head.py", "forward", "assert moon.dim() == 2, (", "tensors_unfit"),
        ("moon/head.py", "forward", "assert moon.phase == 2, (", "program_failed"),
        ("moon/kernels/attend.py", "attend", "assert moons % block == 0, (", "tensors_unfit"),
        ("moon/buffer.py", "select", 'assert "moon" in item, (', "data_unfit"),
        ("moon/buffer.py", "select", 'assert "moon" in sky, (', "program_failed"),
    ],
)
def test_an_assertion_is_about_what_its_line_compares(path: str, function: str, code: str, cause: str) -> None:
    assert cause_of(path, function, "AssertionError: the moon is full", code) == cause
