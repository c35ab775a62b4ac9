"""Any layout either loads and re-serialises to itself, or fails with a place."""

import json
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rltui.check.reporters import as_text
from rltui.check.run import check_text
from rltui.layout.document import decode
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.load import dump_layout, load_text
from rltui.layout.presets import resolve

TINY = resolve("local/grpo-tiny").read_text()

scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats() | st.text(max_size=12)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
keys = st.sampled_from(
    [
        "train.steps",
        "train.learning_rate",
        "roles.learner.gpus",
        "roles.rollout.engines",
        "name",
        "hardware",
        "grpo",
        "pools",
        "pools.a.gpus",
        "roles.learner.pool",
        "roles.reference",
        "roles.critic",
        "roles.teacher",
        "hardware.gpus_outside_ray",
        "lengths.pack",
        "slurm.exclude",
        "slurm.time",
        "data.reward",
        "tracking.project",
    ]
)


def _problems(load: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        load()
    except LayoutError as error:
        return error.problems
    return ()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_load_or_fail_with_a_place(data: bytes) -> None:
    problems = _problems(lambda: load_text(decode(data, "any.yaml"), "any.yaml"))
    assert all(problem.file == "any.yaml" for problem in problems)


@settings(max_examples=200, deadline=None)
@given(keys, values)
def test_any_value_under_a_key_loads_or_fails_with_a_place(key: str, value: object) -> None:
    overrides = [f"{key}={json.dumps(value)}"]
    if _problems(lambda: load_text(TINY, "tiny.yaml", overrides)):
        return
    loaded = load_text(TINY, "tiny.yaml", overrides)
    assert load_text(dump_layout(loaded.layout), "again").layout == loaded.layout


choices = {
    "hardware.nodes": st.integers(1, 10_000),
    "hardware.gpus_per_node": st.integers(1, 16),
    "hardware.gpus_outside_ray": st.integers(0, 16),
    "hardware.cpus_per_node": st.integers(0, 200),
    "hardware.gpu": st.sampled_from(["cpu", "H100-SXM-80GB", "GH200", "V100-SXM2-32GB"]),
    "algorithm": st.sampled_from(["grpo", "ppo", "opd"]),
    "roles.learner.gpus": st.lists(st.integers(1, 16), max_size=6),
    "roles.learner.pool": st.sampled_from(["", "a", "b", "c"]),
    "roles.learner.tensor_parallel": st.integers(1, 1024),
    "roles.learner.sequence_parallel": st.integers(1, 1024),
    "roles.learner.model": st.sampled_from(["Qwen/Qwen3-8B", "unknown/model", "builtin/tiny-qwen3", "/tmp/x", "$X"]),
    "roles.learner.micro_batch": st.integers(0, 10**9),
    "roles.learner.hpz_partition": st.integers(0, 64),
    "roles.rollout.pool": st.sampled_from(["", "a", "b", "c"]),
    "roles.rollout.engines": st.integers(0, 1000),
    "roles.rollout.tensor_parallel": st.integers(1, 1024),
    "roles.rollout.max_concurrency": st.integers(0, 100),
    "roles.critic": st.sampled_from(["null", "{}", "{pool: a}", "{pool: c}"]),
    "roles.teacher": st.sampled_from(["null", "{model: Qwen/Qwen3-32B, tensor_parallel: 7}", "{model: m, pool: b}"]),
    "roles.reward": st.sampled_from(["null", "{}", "{workers: 3}", "{workers: 1000000, timeout_s: 1e-9}"]),
    "pools": st.sampled_from(["{}", "{a: {gpus: [1]}}", "{a: {gpus: [4, 4]}, b: {gpus: [1, 2, 3]}}"]),
    "train.steps": st.integers(0, 10**9),
    "train.prompts_per_step": st.integers(1, 10**9),
    "train.samples_per_prompt": st.integers(1, 10**9),
    "train.optimizer_steps": st.integers(1, 10**4),
    "train.warmup_steps": st.integers(0, 10**9),
    "lengths.prompt": st.integers(1, 10**9),
    "lengths.pack": st.integers(0, 10**9),
    "data.reward": st.sampled_from(["exact", "coin", "math", "code", "http", "none"]),
    "slurm.time": st.sampled_from(["", "90", "24:00", "1-0", "9-00:00:00", "soon", "99999999999999999999"]),
}


@settings(max_examples=80, deadline=None)
@given(st.fixed_dictionaries({}, optional=choices))
@example({"data.reward": "code", "train.prompts_per_step": 10**6, "train.samples_per_prompt": 10**6})
def test_any_layout_that_loads_can_be_checked_and_its_fixes_are_overrides(changes: dict[str, object]) -> None:
    words = [f"{key}={value}" for key, value in changes.items()]
    report = check_text(TINY, "tiny.yaml", words)
    for finding in report.findings:
        assert finding.message
        if report.readable and finding.fix:
            load_text(TINY, "tiny.yaml", [*words, *finding.fix])
    list(as_text(report))
