"""``rltui plan``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltui.check.run import Report, check_text
from rltui.cli.output import add_json, columns, print_json, print_lines, talk
from rltui.errors import UsageError
from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.hardware.models import find_model, nearest_models
from rltui.plan.candidates import Request
from rltui.plan.rank import Proposal, propose

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rltui.plan.remedies import Misfit

SCHEMA = 1
MOST_GPUS = 4096
MOST_TOKENS = 10**7
MOST_SAMPLES = 10**6
_SHAPE = re.compile(r"([1-9]\d{0,3})[x×]([1-9]\d{0,3})[x×](\S.*)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--model", required=True, metavar="M", help="as the trainers load it, or a folder")
    parser.add_argument("--gpus", required=True, metavar="NxGxCARD", help="nodes × GPUs × card, such as 2x4xH100")
    parser.add_argument("--algorithm", choices=("grpo",), default="grpo", help="default: grpo")
    parser.add_argument("--prompt-tokens", type=int, default=1024, metavar="N", help="longest prompt (1024)")
    parser.add_argument("--response-tokens", type=int, default=2048, metavar="N", help="longest response (2048)")
    parser.add_argument("--prompts", type=int, default=64, metavar="P", help="prompts of a step (64)")
    parser.add_argument("--samples", type=int, default=8, metavar="S", help="samples of a prompt (8)")
    parser.add_argument("--async-steps", type=int, default=0, metavar="N", help="rollouts run N steps ahead (0)")
    parser.add_argument("--data", default="builtin/sort-digits", help="what to train on (default: the builtin task)")
    parser.add_argument("--reward", choices=("exact", "math", "code"), default="", help="default: as the data needs")
    parser.add_argument("--count", type=int, default=3, metavar="K", help="how many proposals (3)")
    parser.add_argument("--save", metavar="DIR", help="write each proposal to DIR as a layout")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the proposals, best first; 1 where nothing fits."""
    request = _request(options)
    proposals = propose(request, _sound, options.count)
    if not proposals:
        return _nothing(request, options.json)
    saved = _save(proposals, Path(options.save).expanduser()) if options.save else ()
    if options.json:
        print_json({"schema": SCHEMA, "proposals": [_as_json(each) for each in proposals], "saved": saved})
    else:
        print_lines(_lines(request, proposals, saved))
    return 0


def _sound(text: str, name: str) -> bool:
    return check_text(text, name).ok


def _report(proposal: Proposal) -> Report:
    return check_text(proposal.text, f"{proposal.layout.name}.yaml")


def _request(options: argparse.Namespace) -> Request:
    """The words as a request; anything unknown is refused with the nearest known."""
    shape = _SHAPE.fullmatch(options.gpus.strip())
    if shape is None or int(shape[1]) * int(shape[2]) > MOST_GPUS or int(shape[2]) > 1024:
        raise UsageError(f"--gpus {options.gpus[:60]!r} is no NODESxGPUSxCARD of at most {MOST_GPUS} GPUs.", "2x4xH100")
    gpu = find_gpu(shape[3])
    if gpu is None:
        raise UsageError(f"The card {shape[3][:60]!r} is not known.", _nearest(nearest_gpus(shape[3])))
    model = find_model(options.model)
    if model is None:
        raise UsageError(
            f"The model {options.model[:120]!r} is not known.",
            _nearest(nearest_models(options.model)) or "A local folder with a config.json is read.",
        )
    for name, least, most in (
        ("prompt_tokens", 1, MOST_TOKENS), ("response_tokens", 1, MOST_TOKENS), ("prompts", 1, MOST_SAMPLES),
        ("samples", 2, MOST_SAMPLES), ("async_steps", 0, 100), ("count", 1, 20),
    ):  # fmt: skip
        if not least <= getattr(options, name) <= most:
            raise UsageError(f"--{name.replace('_', '-')} must be between {least} and {most}.")
    _within_positions(options, model.max_position)
    builtin = options.data.startswith("builtin/")
    return Request(
        model_name=options.model,
        model=model,
        gpu=gpu,
        nodes=int(shape[1]),
        gpus_per_node=int(shape[2]),
        prompt_tokens=options.prompt_tokens,
        response_tokens=options.response_tokens,
        prompts=options.prompts,
        samples=options.samples,
        async_steps=options.async_steps,
        data=options.data,
        reward=options.reward or ("exact" if builtin else "math"),
    )


def _within_positions(options: argparse.Namespace, positions: int) -> None:
    wanted = options.prompt_tokens + options.response_tokens
    if 0 < positions < wanted:
        raise UsageError(
            f"{options.model} has positions for {positions} tokens; prompt and response take {wanted}.",
            "Lower --prompt-tokens or --response-tokens.",
        )


def _nearest(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}?" if names else ""


def _nothing(request: Request, json: bool) -> int:
    from rltui.plan.remedies import misfit

    found = misfit(request, _sound)
    if json:
        print_json({"schema": SCHEMA, "proposals": [], "misfit": found})
    else:
        print_lines(_misfit_lines(request, found))
    return 1


def _misfit_lines(request: Request, found: Misfit) -> Iterator[str]:
    yield f"Nothing fits {request.nodes}×{request.gpus_per_node} {request.gpu.name} for {request.model_name}."
    yield f"{found.role}: {found.reason}."
    for remedy in found.remedies:
        yield f"  would help: {remedy}"
    if not found.remedies:
        yield "  No larger cluster up to 1024 GPUs and no shorter response helps; take a smaller model."


def _save(proposals: Sequence[Proposal], folder: Path) -> tuple[str, ...]:
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for proposal in proposals:
            path = folder / f"{proposal.layout.name}.yaml"
            path.write_text(proposal.text, encoding="utf-8")
            paths.append(str(path))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.", "Name a folder of yours.") from error
    talk(f"{len(paths)} layouts written to {folder}")
    return tuple(paths)


HEADER = ("#", "LEARNERS", "ENGINES", "ZERO", "MICRO", "MEMORY", "STEP", "GEN", "TRAIN", "SYNC", "IDLE", "TOKENS/S")


def _lines(request: Request, proposals: Sequence[Proposal], saved: Sequence[str]) -> Iterator[str]:
    yield from _report(proposals[0]).drawing
    yield ""
    yield from columns(HEADER, [_row(each) for each in proposals], right=frozenset(range(6, len(HEADER))))
    yield ""
    yield from (f"#{each.rank} {each.why}" for each in proposals)
    yield from (f"#{each.rank} {line}" for each in proposals for line in _warnings(each))
    yield "Times are estimates from FLOPs and bandwidth, to rank layouts by; docs/planning.md says what is assumed."
    yield ""
    if saved:
        yield from (f"rltui launch {path}" for path in saved)
        return
    yield f"save:   {_again(request, len(proposals))} --save plans"
    yield f"launch: rltui launch plans/{proposals[0].layout.name}.yaml"


def _again(request: Request, count: int) -> str:
    """The command that gives the same proposals."""
    words = {
        "--model": request.model_name,
        "--gpus": f"{request.nodes}x{request.gpus_per_node}x{request.gpu.name}",
        "--prompt-tokens": request.prompt_tokens,
        "--response-tokens": request.response_tokens,
        "--prompts": request.prompts,
        "--samples": request.samples,
        "--async-steps": request.async_steps,
        "--data": request.data,
        "--reward": request.reward,
        "--count": count,
    }
    return "rltui plan " + " ".join(f"{name} {shlex.quote(str(value))}" for name, value in words.items())


def _warnings(proposal: Proposal) -> Iterator[str]:
    """Warnings of the check, and that the bundled trainers cannot run it (E390)."""
    for finding in _report(proposal).findings:
        if finding.severity == "warning" or finding.code == "E390":
            yield f"{finding.code} {finding.message}"


def _row(proposal: Proposal) -> tuple[str, ...]:
    learner, time = proposal.candidate.learner, proposal.candidate.time
    recompute = " ckpt" if learner.gradient_checkpointing else ""
    return (
        str(proposal.rank),
        f"{learner.ranks} in {_bundles(learner.gpus)}",
        f"{proposal.candidate.engines} × TP{proposal.candidate.engine.tensor_parallel}",
        str(learner.zero_stage),
        f"{learner.micro_batch}{recompute}",
        proposal.verdict,
        *(f"{seconds:.1f} s" for seconds in (time.step_s, time.generate_s, time.train_s, time.sync_s)),
        f"{time.idle_share:.0%}",
        f"{time.tokens_per_s:.0f}",
    )


def _bundles(gpus: Sequence[int]) -> str:
    """``4×8+2`` for four bundles of eight and one of two."""
    full = sum(bundle == gpus[0] for bundle in gpus)
    first = f"{full}×{gpus[0]}" if full > 1 else str(gpus[0])
    return first + "".join(f"+{bundle}" for bundle in gpus[full:])


def _as_json(proposal: Proposal) -> dict[str, Any]:
    learner, engine = proposal.candidate.learner, proposal.candidate.engine
    return {
        "rank": proposal.rank,
        "why": proposal.why,
        "verdict": proposal.verdict,
        "learner_gpus": learner.gpus,
        "engines": proposal.candidate.engines,
        "tensor_parallel": engine.tensor_parallel,
        "peak_gib": {"learner": round(learner.memory.peak_gib, 3), "rollout": round(engine.memory.peak_gib, 3)},
        "time": proposal.candidate.time,
        "findings": [
            {"code": f.code, "severity": f.severity, "message": f.message} for f in _report(proposal).findings
        ],
        "layout": proposal.layout,
    }
