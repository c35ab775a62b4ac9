"""``rltui plan``: propose the best layouts for a model and GPUs, or a better division of what stands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.check.run import check_text
from rltui.cli.output import add_json, print_json, print_lines, talk, wrapped
from rltui.cli.plan_request import asked
from rltui.cli.plan_table import Better, as_json, lines, table, terms
from rltui.cli.sources import add_open
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import find_gpu
from rltui.paths import with_home
from rltui.plan.assemble import as_text
from rltui.plan.rank import DEFAULT_COUNT, Proposal, Sound, elsewhere, propose
from rltui.plan.rates import trust_in
from rltui.plan.request import Request
from rltui.plan.standing import Standing, as_it_stands

if TYPE_CHECKING:
    from rltui.plan.remedies import Misfit

SCHEMA = 1
MOST_PROPOSALS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "layout",
        nargs="?",
        default="",
        metavar="PRESET|FILE|SCRIPT",
        help="what to divide better (or --run, or --model)",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes of it")
    add_open(parser)
    parser.add_argument("--run", default="", metavar="RUN", help="divide a run better, by how long its responses are")
    parser.add_argument("--model", metavar="M", help="without a layout: as the trainers load it, or a folder")
    parser.add_argument("--gpus", metavar="NxGxCARD", help="nodes × GPUs × card, such as 2x4xH100")
    parser.add_argument("--cluster", default="", metavar="C", help="take what `rltui selftest` measured on it")
    parser.add_argument("--algorithm", choices=("grpo", "ppo", "opd"), help="default: grpo")
    parser.add_argument("--critic", metavar="M", help="critic of ppo (default: the model)")
    parser.add_argument("--kl", type=float, metavar="C", help="weight of ppo's KL penalty, with a reference (0: none)")
    parser.add_argument("--teacher", metavar="M", help="teacher of opd")
    parser.add_argument("--prompt-tokens", type=int, metavar="N", help="longest prompt (1024)")
    parser.add_argument("--response-tokens", type=int, metavar="N", help="longest response (2048)")
    parser.add_argument("--response-mean", type=float, metavar="N", help="mean response (half of the longest)")
    parser.add_argument("--response-spread", type=float, metavar="N", help="standard deviation of a response's tokens")
    parser.add_argument("--prompts", type=int, metavar="P", help="prompts of a step (64)")
    parser.add_argument("--samples", type=int, metavar="S", help="samples of a prompt (8)")
    parser.add_argument("--async-steps", type=int, metavar="N", help="rollouts run N steps ahead (0)")
    parser.add_argument("--data", help="what to train on (default: the builtin task)")
    parser.add_argument("--reward", choices=("exact", "math", "code", "none"), help="default: as the data needs")
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT, metavar="K", help="how many proposals (3)")
    parser.add_argument("--save", metavar="DIR", help="write each proposal to DIR as a layout")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the proposals, best first; 1 where nothing fits."""
    if not 1 <= options.count <= MOST_PROPOSALS:
        raise UsageError(f"--count must be between 1 and {MOST_PROPOSALS}.")
    request, standing = asked(options)
    better = _better(standing, request, compare=_is_its_own(standing, request)) if standing is not None else None
    sound = _sound if better is None else better.is_sound
    proposals = propose(request, sound, options.count)
    if not proposals:
        return _nothing(request, sound, options.json)
    saved = _save(proposals, better, with_home(options.save)) if options.save else ()
    if options.json:
        shown = [as_json(each, better) for each in proposals]
        trust = request.rates.source if request.rates else trust_in(request.model, request.gpu)
        told = {"proposals": shown, "trust": trust, "measured": request.measured, "saved": saved}
        now = {"now": better.now and better.now.time, "not_compared": better.reason} if better else {}
        print_json({"schema": SCHEMA, **told, **now})
    else:
        print_lines(lines(request, proposals, saved, better))
    return 0


def _is_its_own(standing: Standing, request: Request) -> bool:
    """Whether the GPUs asked for are those that ``standing`` is for."""
    own = standing.layout.hardware
    shape = (find_gpu(own.gpu), own.nodes, own.gpus_per_node)
    return shape == (request.gpu, request.nodes, request.gpus_per_node)


def _better(standing: Standing, request: Request, *, compare: bool) -> Better:
    """What the proposals are held against: on other cards nothing, nor where ``plan`` cannot time it."""
    now, reason = None, "" if compare else "other GPUs than its own were asked for"
    try:
        now = as_it_stands(standing, request) if compare else None
    except RltuiError as error:
        reason = error.message.rstrip(".")
    findings = check_text(as_text(standing.layout), standing.name).findings
    return Better(standing=standing, findings=findings, now=now, reason=reason)


def _sound(text: str, name: str) -> bool:
    return check_text(text, name).ok


def _nothing(request: Request, sound: Sound, json: bool) -> int:
    from rltui.plan.remedies import misfit

    found, others = misfit(request, sound), elsewhere(request)
    if json:
        shown = [as_json(each) for each in others]
        print_json({"schema": SCHEMA, "proposals": [], "misfit": found, "elsewhere": shown})
    else:
        print_lines([*_misfit_lines(request, found, some=bool(others)), *_elsewhere_lines(request, others)])
    return 1


def _misfit_lines(request: Request, found: Misfit, *, some: bool) -> Iterator[str]:
    yield f"Nothing fits {request.nodes}×{request.gpus_per_node} {request.gpu.name} for {request.model_name}."
    yield f"{found.role}: {found.reason}."
    for remedy in found.remedies:
        yield f"  would help: {remedy}"
    if not found.remedies and not some:
        yield "  No larger cluster up to 1024 GPUs and no shorter response helps; take a smaller model."


def _elsewhere_lines(request: Request, others: Sequence[Proposal]) -> Iterator[str]:
    """What other systems' trainers could run, whose engines take several nodes."""
    if not others:
        return
    yield "An engine of the bundled trainers stays within a node. Where it may take several (verl, NeMo-RL, slime):"
    yield ""
    yield from table(request, others)
    yield ""
    yield from wrapped(terms(request, others[0]))
    yield "`rltui import SCRIPT` reads a script of such a system, `rltui launch SCRIPT` runs it."


def _save(proposals: Sequence[Proposal], better: Better | None, folder: Path) -> tuple[str, ...]:
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for proposal in proposals:
            path = folder / f"{proposal.layout.name}.yaml"
            text = proposal.text if better is None else better.text(proposal)
            path.write_text(text, encoding="utf-8")
            paths.append(str(path))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.", "Name a folder of yours.") from error
    talk(f"{len(paths)} layouts written to {folder}")
    return tuple(paths)
