"""Any layout either loads and re-serialises to itself, or fails with a place."""

import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from rltui.layout.document import decode
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.load import dump_layout, load_text
from rltui.layout.presets import resolve

TINY = resolve("local/grpo-tiny").read_text()

scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats() | st.text(max_size=12)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
keys = st.sampled_from(
    ["train.steps", "train.learning_rate", "roles.learner.gpus", "roles.rollout.engines", "name", "hardware", "grpo"]
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
