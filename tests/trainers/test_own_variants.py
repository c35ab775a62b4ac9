"""A user's own variants of GRPO: called as bundled ones are, and ended with a sentence where they cannot be right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from variant_support import REWARDS, chance, groups, grpo, off_policy

from trainers.variants import VariantError, variant

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

OWN = """
import torch

def scaled(groups, *, scale=1.0):
    return scale * (groups.rewards - groups.rewards.mean())

def reinforce(tokens):
    return tokens.advantages * tokens.log_probs

def bounded(tokens, *, most):
    ratio = tokens.apart.exp()
    return ratio.clamp(max=most) * tokens.advantages, ratio > most

def by_root(lengths, limit):
    return lengths.clamp(min=1).rsqrt(), torch.ones_like(lengths)

def absolute(log_probs, reference_log_probs):
    return (log_probs - reference_log_probs).abs()

def above(rewards, *, least):
    return rewards.mean(dim=1) > least

def flat(groups):
    return groups.rewards.mean(dim=1)

def nothing(*given):
    return None

def not_a_number(groups):
    return groups.rewards / 0

def loses_gradient(tokens):
    return tokens.advantages.clone()

def breaks(tokens):
    return tokens.log_porbs
"""


@pytest.fixture(scope="module", autouse=True)
def own_module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("own")
    (folder / "my_variants.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def test_a_function_of_ones_own_is_called_as_bundled_ones_are_with_its_settings() -> None:
    own: Callable[..., Any] = lambda kind, name, *words: variant(grpo(f"{kind}=my_variants:{name}", *words), kind)  # noqa: E731
    assert own("advantage", "scaled", "advantage_settings={scale: 2}")(groups()).sum().abs() < 1e-9
    tokens = off_policy(1)
    gained, changed = own("ratio", "reinforce")(tokens)
    assert torch.equal(gained, tokens.advantages * tokens.log_probs)
    assert not changed.any()
    gained, changed = own("ratio", "bounded", "ratio_settings={most: 1.1}")(tokens)
    assert torch.equal(changed, (tokens.apart.exp() > 1.1) & tokens.mask)
    lengths = torch.tensor([4.0, 1.0])
    assert own("aggregation", "by_root")(lengths, 9)[0].tolist() == [0.5, 1.0]
    assert own("kl_estimator", "absolute")(lengths, -lengths).tolist() == [8.0, 2.0]
    assert own("filter", "above", "filter_settings.least=0.4")(torch.tensor(REWARDS)).tolist() == [False, True, True]


def test_a_policy_learns_by_functions_of_ones_own() -> None:
    words = ("ratio=my_variants:bounded", "ratio_settings={most: 1.3}", "aggregation=my_variants:by_root")
    assert chance(("advantage=my_variants:scaled", *words)) > 0.85


@pytest.mark.parametrize(
    ("kind", "name", "given", "says"),
    [
        ("advantage", "flat", groups, "returned a tensor of shape [3], and [3, 4] is due"),
        ("advantage", "not_a_number", groups, "returned numbers that are not finite"),
        ("advantage", "nothing", groups, "returned NoneType, and a tensor of shape [3, 4] is due"),
        ("ratio", "loses_gradient", partial(off_policy, 1), "must be computed from tokens.log_probs"),
        ("ratio", "breaks", partial(off_policy, 1), "raised AttributeError: 'Tokens' object has no attribute"),
    ],
)
def test_what_cannot_be_right_ends_the_run_with_a_sentence_that_names_it(
    kind: str, name: str, given: Callable[[], Any], says: str
) -> None:
    with pytest.raises(VariantError) as caught:
        variant(grpo(f"{kind}=my_variants:{name}"), kind)(given())
    assert str(caught.value).startswith(f"grpo.{kind} my_variants:{name} ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ratio=no_such:thing",), "grpo.ratio no_such:thing cannot be called: ModuleNotFoundError"),
        (("ratio=my_variants:thing",), "AttributeError"),
        (("ratio=my_variants:bounded",), "missing a required argument: 'most'"),
        (("ratio=my_variants:bounded", "ratio_settings={most: 2, least: 1}"), "unexpected keyword argument 'least'"),
    ],
)
def test_what_cannot_be_called_is_told_before_anything_is_sampled(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(VariantError, match=says):
        variant(grpo(*words), "ratio")
