"""References in configuration files: what is plain is replaced, what only a run would show becomes a hole."""

from __future__ import annotations

import pytest

from rltui.importers.config import interpolated, merged
from rltui.importers.values import HOLE


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": 1, "b": "${a}"}, 1),
        ({"a": {"c": [1, 2]}, "b": "${a.c}"}, [1, 2]),
        ({"a": 1, "b": {"c": "${..a}", "d": "${.e}", "e": "x${a}y"}}, {"c": 1, "d": "x1y", "e": "x1y"}),
        ({"a": "${b.c}", "b": {"c": "${d}"}, "d": 3}, {"c": 3}),
        ({"b": "${oc.env:HOME}"}, HOLE),
        ({"a": 2, "b": "${mul:${a}, 2}"}, HOLE),
        ({"b": "${missing.key}"}, HOLE),
        ({"b": "${....a}"}, HOLE),
        ({"b": "${b}"}, HOLE),
        ({"b": ["${a}", {"c": "${..d}"}], "a": 1}, [1, {"c": HOLE}]),
    ],
)
def test_interpolation(values: dict[str, object], expected: object) -> None:
    assert interpolated(values)["b"] == expected


def test_references_that_multiply_end() -> None:
    values: dict[str, object] = {f"a{i}": f"${{a{i + 1}}}${{a{i + 1}}}" for i in range(40)}
    assert HOLE in str(interpolated({**values, "a40": "x"})["a0"])


def test_merging_goes_into_mappings_and_an_override_replaces() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": [1, 2]}
    assert merged(base, {"a": {"b": 3}, "d": [4]}) == {"a": {"b": 3, "c": 2}, "d": [4]}
    assert merged(base, {"a": {"_override_": True, "b": 3}}) == {"a": {"b": 3}, "d": [1, 2]}
    assert base == {"a": {"b": 1, "c": 2}, "d": [1, 2]}
