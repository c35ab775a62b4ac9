"""``rltui mem``: estimate what each role takes of its GPUs, moment by moment."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_cluster, add_json, print_json, print_lines, talk, wrapped
from rltui.cli.sources import add_source, load, said
from rltui.errors import UsageError
from rltui.hardware.architecture import Architecture
from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.hardware.hub import CONFIG, PREFIX
from rltui.hardware.models import find_model, hub_model, known_model, nearest_models
from rltui.layout.schema import Layout
from rltui.memory import measured, model_sheet
from rltui.memory.bars import lines
from rltui.memory.estimate import LayoutEstimate
from rltui.memory.json_form import as_json
from rltui.memory.layouts import estimate_layout
from rltui.paths import is_file, is_folder, with_home

CARD = "H100-SXM-80GB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "PRESET|FILE|SCRIPT|hf:ORG/NAME|config.json")
    parser.add_argument("--measured", action="store_true", help="also what earlier runs like it took, and how far off")
    add_cluster(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table; 1 where a role does not fit its card."""
    model = _model(options.layout)
    if model is not None:
        return _sheet(options, model)
    layout = _layout(options)
    estimate = estimate_layout(layout)
    found = _measured(options.cluster, layout, estimate) if options.measured else ()
    if options.json:
        print_json({**as_json(estimate), **({"measured": found} if options.measured else {})})
    else:
        print_lines(wrapped([*lines(estimate), *measured.lines(found)]))
        if options.measured and not found:
            talk(f"No run of this family on {options.cluster} has measured its memory on a card yet.")
    return 1 if any(role.verdict == "no" for role in estimate.roles) else 0


def _measured(cluster: str, layout: Layout, estimate: LayoutEstimate) -> tuple[measured.Correction, ...]:
    """What earlier runs of the layout's family on ``cluster`` say of its estimate."""
    from rltui.service.all_clusters import open_clusters
    from rltui.service.memory_peaks import family_peaks

    with open_clusters(cluster) as clusters:
        return measured.corrections(estimate, family_peaks(clusters.context(cluster), layout))


def _model(word: str) -> Architecture | None:
    """The model that ``word`` names: one of the hub, a ``config.json`` or the folder of one; None: it is a layout.

    What is no file is a model, too, where it is the name of a known one.
    """
    if word.startswith(PREFIX):
        return hub_model(word)
    path = with_home(word)
    if path.name == CONFIG or is_file(path / CONFIG):
        return find_model(str(path.absolute()))
    return None if is_file(path) else known_model(word)


def _layout(options: argparse.Namespace) -> Layout:
    """The layout that was named. A word that is none may be a model's name, spelt wrongly: the nearest are said."""
    word: str = options.layout
    try:
        return load(word, options.overrides, said(options)).layout
    except UsageError as error:
        is_there = is_file(with_home(word)) or is_folder(with_home(word))
        near = [] if is_there or "Did you mean" in error.hint else nearest_models(word)
        if not near:
            raise
        hint = f"If it is a model: the nearest known are {', '.join(near)}. {error.hint}"
        raise UsageError(error.message, hint) from error


def _sheet(options: argparse.Namespace, model: Architecture) -> int:
    if options.overrides:
        name = model_sheet.layout_word(model.name, model.source)
        raise UsageError(
            f"{options.overrides[0]!r} changes a layout, and {options.layout} is a model.",
            f"For a run of it: rltui mem PRESET roles.learner.model={name}.",
        )
    card = options.gpu or CARD
    gpu = find_gpu(card)
    if gpu is None:
        near = " or ".join(nearest_gpus(card))
        raise UsageError(f"The card {card!r} is not known.", f"Did you mean {near}?" if near else "")
    sheet = model_sheet.model_sheet(model, gpu)
    print_json(model_sheet.as_json(sheet)) if options.json else print_lines(wrapped(model_sheet.lines(sheet)))
    return 0
