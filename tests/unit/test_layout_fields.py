"""A layout as a form: every key, what may stand there in words, and the schema's word against a value."""

from __future__ import annotations

import msgspec
import pytest

from rltui.layout.diff import flat
from rltui.layout.fields import leaves, read_fields, takes, value_problem
from rltui.layout.load import load_layout
from rltui.layout.presets import preset_files, resolve

PRESET = resolve("local/grpo-tiny")


def test_every_key_that_a_preset_has_is_in_the_form() -> None:
    known = {key for key, _ in leaves()}
    maps = {key for key, schema in leaves() if schema.get("type") == "object"}
    sections = {key.rpartition(".")[0] for key in known}
    for _, path in preset_files():
        there = set(flat(msgspec.to_builtins(load_layout(path).layout)))
        lost = [
            key for key in there - known - sections - {"layout"} if not any(key.startswith(f"{one}.") for one in maps)
        ]
        assert lost == [], f"{path}: {lost}"


def test_a_field_says_what_it_is_where_from_and_what_was_set() -> None:
    fields = {one.key: one for one in read_fields(PRESET, ("train.steps=5",))}
    steps = fields["train.steps"]
    assert (steps.value, steps.before, steps.is_set) == (5, 2000, True)
    assert (steps.origin, steps.takes) == ("override at launch", "whole number, 0 or more")
    assert steps.about == "Training steps of the run."
    rate = fields["train.learning_rate"]
    assert rate.origin.rpartition("/")[2].startswith("grpo-tiny.yaml:")
    assert not rate.is_set
    assert fields["train.schedule"].origin == "default"
    assert "one of constant, cosine, linear" in fields["train.schedule"].takes
    assert fields["roles.critic.model"].value is None, "a section that is not there can be filled in"


def test_what_does_not_fit_is_shown_as_it_was_typed() -> None:
    fields = {one.key: one for one in read_fields(PRESET, ("train.steps=many",))}
    assert (fields["train.steps"].value, fields["train.steps"].is_set) == ("many", True)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("train.steps", "7", ""),
        ("train.learning_rate", "1e-5", ""),
        ("train.steps", "abc", "must be a whole number, not 'abc'"),
        ("train.schedule", "cosin", "must be one of constant, linear, cosine"),
        ("roles.learner.gpus", "[2", ""),
    ],
)
def test_the_schema_judges_a_value(key: str, text: str, words: str) -> None:
    said = value_problem(PRESET, ("train.prompts_per_step=0", "train.steps=5"), key, text)
    assert words in said
    if words or text == "[2":
        assert said


def test_what_may_stand_there_in_words() -> None:
    assert takes({"anyOf": [{"type": "boolean"}, {"type": "null"}]}) == "true or false or null"
    assert takes({"type": "array", "items": {"type": "integer", "minimum": 1}}) == "list of whole number, 1 or more"
    assert takes({"type": "number", "exclusiveMinimum": 0, "maximum": 1}) == "number, more than 0, 1 at most"
