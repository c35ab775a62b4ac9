"""Whether ``rltui plan`` proposes the division of GPUs that a published, working script has, among its first three.

The scripts are those of the import's gate, on its card, with packed rows and a reference where the script has them;
Megatron's cuts are left out. A division is learner GPUs beside engine GPUs, or colocated, and is the same within an
eighth of all GPUs or a node, whichever is less: exactly that number up to fifteen GPUs.

Nearly all scripts are colocated or divide in half, and ``plan`` proposes half on principle, so a blind guess of these
two does as well: what the ranking itself is worth is seen in the uneven divisions alone. Since gathers over nodes use
the adapters of all cards, ten of those are found; eleven were while they used one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import import_scripts
from msgspec import Struct
from score import Figure, Score

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import import_text
from rltui.layout.load import load_text
from rltui.plan.rank import ALIKE, elsewhere, propose
from rltui.plan.request import Means, Request

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

FIRST = 3
ASKED: dict[str, tuple[int, ...]] = {}
"""What was proposed for a request: scripts often ask the same."""

COLOCATED = 0
"""Learner GPUs that stand for learner and engines on the same ones."""


class Split(Struct, frozen=True, kw_only=True):
    """A script's division, and the first proposals'; in learner GPUs."""

    script: str
    request: Request
    published: int
    proposed: tuple[int, ...]

    @property
    def found(self) -> bool:
        """Whether one of the proposals is the script's."""
        return _found(self, self.proposed)


def wanted() -> Iterator[tuple[str, Request, int]]:
    """Working GRPO scripts whose model is known, as requests, and the learner's GPUs beside those of the engines."""
    for script in import_scripts.scripts():
        found = import_text(*import_scripts.source(script))
        if not script.works or found.layout is None or not found.needed_gpus or not found.trainer_gpus:
            continue
        layout = load_text(as_yaml(found.layout), script.facts["id"], [import_scripts.CARD]).layout
        if layout is None or layout.algorithm != "grpo" or find_model(layout.roles.learner.model) is None:
            continue
        apart = found.rollout_gpus and found.needed_gpus == found.trainer_gpus + found.rollout_gpus
        shared = found.needed_gpus == found.trainer_gpus
        if apart or shared:
            published = found.trainer_gpus if apart else COLOCATED
            yield script.facts["id"], _request(layout, found.needed_gpus), published


def _request(layout: Layout, gpus: int) -> Request:
    node = min(gpus, layout.hardware.gpus_per_node)
    name = layout.roles.learner.model
    model, gpu = find_model(name), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    return Request(
        model_name=name,
        model=model,
        gpu=gpu,
        nodes=gpus // node,
        gpus_per_node=node,
        prompt_tokens=layout.lengths.prompt,
        response_tokens=layout.lengths.response,
        prompts=layout.train.prompts_per_step,
        samples=layout.train.samples_per_prompt,
        async_steps=layout.train.async_steps,
        kl_coefficient=1.0 if layout.roles.reference is not None else 0.0,
        means=Means(pack=bool(layout.lengths.pack)),
    )


def splits() -> Iterator[Split]:
    """Every script's division beside the proposals'; the check of a proposal is left out, it takes most of the time."""
    for script, request, published in wanted():
        if (key := repr(request)) not in ASKED:
            ASKED[key] = tuple(_learners(request))
        yield Split(script=script, request=request, published=published, proposed=ASKED[key])


def _learners(request: Request) -> Iterator[int]:
    for each in propose(request, lambda text, name: True, FIRST) or elsewhere(request, FIRST):
        yield COLOCATED if each.setup.placement == "standard" else each.setup.learner.ranks


def score() -> Score:
    """Shares of scripts whose division is proposed, of all, of what fits, and of the uneven ones alone."""
    every = list(splits())
    fitting = [each for each in every if each.proposed]
    uneven = [each for each in fitting if not _found(each, _blind(each))]
    missed = [each for each in fitting if not each.found]
    guessed = 100 * (1 - len(uneven) / len(fitting))
    nothing = Counter(each.request.model_name for each in every if not each.proposed)
    return Score(
        predictor="plan's divisions",
        figures=(
            Figure("the script's division among three, of all scripts (%)", _share(every), 93.6, True, len(every)),
            Figure("the same, of those for which anything fits (%)", _share(fitting), 93.6, True, len(fitting)),
            Figure("the same, of those neither colocated nor half : half (%)", _share(uneven), 41.6, True, len(uneven)),
        ),
        worst=(
            ("for comparison", f"colocated and half : half, blindly, are right for {guessed:.1f} % of those that fit"),
            *((each.script, _missed(each)) for each in missed),
            *((f"{number} without a proposal", model) for model, number in nothing.most_common()),
        ),
    )


def _found(each: Split, proposed: tuple[int, ...]) -> bool:
    near = min(each.request.gpus_per_node, max(1, each.request.total_gpus // ALIKE))
    pair = ((each.published, learners) for learners in proposed)
    return any(one == other or (COLOCATED not in (one, other) and abs(one - other) < near) for one, other in pair)


def _share(found: list[Split]) -> float:
    return 100 * sum(each.found for each in found) / len(found)


def _blind(each: Split) -> tuple[int, ...]:
    return COLOCATED, each.request.total_gpus // 2


def _missed(each: Split) -> str:
    words = [str(number) if number else "colocated" for number in (each.published, *each.proposed)]
    request = each.request
    where = f"{request.model_name} on {request.nodes}×{request.gpus_per_node}"
    return f"{where}: learner has {words[0]}, proposed {', '.join(words[1:])}"
