"""``rltui plan``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from rltui.check.run import check_text
from rltui.cli.output import add_json, print_json, print_lines, talk
from rltui.cli.plan_table import as_json, folded, lines, table, terms
from rltui.cli.sources import add_open, load, said
from rltui.cluster.profiles import load_profiles
from rltui.errors import RltuiError, UsageError
from rltui.hardware.gpus import Gpu, find_gpu, nearest_gpus
from rltui.hardware.models import find_model, nearest_models
from rltui.paths import state_dir
from rltui.plan.measured import Measured, read_measured
from rltui.plan.of_layout import Prediction, predict, request_of_layout
from rltui.plan.rank import DEFAULT_COUNT, Proposal, elsewhere, propose
from rltui.plan.rates import Rates, family, rates_of, read_calibration, trust_in
from rltui.plan.request import Means, Request

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.remedies import Misfit

SCHEMA = 1
MOST_GPUS = 4096
MOST_TOKENS = 10**7
MOST_SAMPLES = 10**6
MOST_KL = 100.0
DEFAULTS: dict[str, Any] = {
    "algorithm": "grpo",
    "prompt_tokens": 1024,
    "response_tokens": 2048,
    "prompts": 64,
    "samples": 8,
    "async_steps": 0,
    "data": "builtin/sort-digits",
}
"""Of what a layout says by itself."""

_SHAPE = re.compile(r"([1-9]\d{0,3})[x×]([1-9]\d{0,3})[x×](\S.*)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("layout", nargs="?", metavar="PRESET|FILE|SCRIPT", help="or its model, GPUs, lengths and batch")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    add_open(parser)
    parser.add_argument("--model", metavar="M", help="as the trainers load it, or a folder")
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
    """Print the proposals, best first, behind what a layout that is given would take as it is; 1 where nothing fits."""
    stands, request = _of_layout(options) if options.layout else (None, _request(options))
    if stands is not None and not options.json:
        print_lines([*_as_it_is(stands), ""])
    proposals = propose(request, _sound, options.count)
    if not proposals:
        return _nothing(request, options.json)
    saved = _save(proposals, Path(options.save).expanduser()) if options.save else ()
    if options.json:
        shown = [as_json(each) for each in proposals]
        trust = request.rates.source if request.rates else trust_in(request.model, request.gpu)
        told = {"schema": SCHEMA, "proposals": shown, "trust": trust, "measured": request.measured, "saved": saved}
        print_json(told if stands is None else {**told, "as_it_is": stands})
    else:
        print_lines(lines(request, proposals, saved))
    return 0


def _of_layout(options: argparse.Namespace) -> tuple[Prediction | str, Request]:
    """What ``plan`` expects of the layout or script, or why it cannot tell, and its question: the same GPUs and batch.

    Raises:
        UsageError: Words that stand for what the layout says, or it cannot be read.
        RltuiError: ``plan`` knows nothing of such runs.
    """
    for name in (*DEFAULTS, "model", "gpus", "critic", "kl", "teacher", "reward"):
        if getattr(options, name) is not None:
            word = f"--{name.replace('_', '-')}"
            raise UsageError(f"{options.layout} says what {word} would.", "Change it by key=value.")
    layout = load(options.layout, options.overrides, said(options)).layout
    roles, request = layout.roles, request_of_layout(layout)
    limit = argparse.Namespace(**{**vars(options), "response_tokens": request.response_tokens})
    _within_limit(limit)
    request = structs.replace(
        request,
        critic_name=roles.critic.model if roles.critic is not None else "",
        teacher_name=roles.teacher.model if roles.teacher is not None else "",
        response_mean=options.response_mean or 0.0,
        response_spread=options.response_spread,
        rates=_measured(request.model, request.gpu),
        measured=_selftest(options.cluster, request.gpu) if options.cluster else Measured(),
        means=Means(pack=bool(layout.lengths.pack)),
    )
    try:
        return predict(layout, asked=request), request
    except RltuiError as error:
        return str(error), request


def _as_it_is(stands: Prediction | str) -> Iterator[str]:
    yield "as it is:"
    for line in (stands,) if isinstance(stands, str) else stands.lines():
        yield from folded(f"   {line}")


def _sound(text: str, name: str) -> bool:
    return check_text(text, name).ok


def _request(options: argparse.Namespace) -> Request:
    """The words as a request; anything unknown is refused with the nearest known."""
    for name in ("model", "gpus"):
        if not getattr(options, name):
            raise UsageError(f"`rltui plan` needs --{name}, or a layout or script that says it.")
    for name, value in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    shape = _SHAPE.fullmatch(options.gpus.strip())
    if shape is None or int(shape[1]) * int(shape[2]) > MOST_GPUS or int(shape[2]) > 1024:
        raise UsageError(f"--gpus {options.gpus[:60]!r} is no NODESxGPUSxCARD of at most {MOST_GPUS} GPUs.", "2x4xH100")
    gpu = find_gpu(shape[3])
    if gpu is None:
        raise UsageError(f"The card {shape[3][:60]!r} is not known.", _nearest(nearest_gpus(shape[3])))
    model = _model(options.model)
    least_samples = 2 if options.algorithm == "grpo" else 1
    for name, least, most in (
        ("prompt_tokens", 1, MOST_TOKENS), ("response_tokens", 1, MOST_TOKENS), ("prompts", 1, MOST_SAMPLES),
        ("samples", least_samples, MOST_SAMPLES), ("async_steps", 0, 100), ("count", 1, 20),
    ):  # fmt: skip
        if not least <= getattr(options, name) <= most:
            raise UsageError(f"--{name.replace('_', '-')} must be between {least} and {most}.")
    _within_positions(options, options.model, model.max_position)
    _within_limit(options)
    return Request(
        model_name=options.model,
        model=model,
        gpu=gpu,
        nodes=int(shape[1]),
        gpus_per_node=int(shape[2]),
        algorithm=options.algorithm,
        **_other_roles(options),
        prompt_tokens=options.prompt_tokens,
        response_tokens=options.response_tokens,
        response_mean=options.response_mean or 0.0,
        response_spread=options.response_spread,
        rates=_measured(model, gpu),
        measured=_selftest(options.cluster, gpu) if options.cluster else Measured(),
        prompts=options.prompts,
        samples=options.samples,
        async_steps=options.async_steps,
        data=options.data,
        reward=options.reward or _default_reward(options),
    )


def _measured(model: Architecture, gpu: Gpu) -> Rates | None:
    """What this cluster's own file says of card and family; None: it says nothing, or cannot be read, which is said."""
    try:
        found = read_calibration(state_dir())
    except ValueError as error:
        talk(f"rltui: measured rates are left out, the published ones are taken: {error}; correct or remove the file.")
        return None
    return rates_of(model, gpu, found) if family(model) in found.get(gpu.name, {}) else None


def _selftest(cluster: str, gpu: Gpu) -> Measured:
    """What a self-test measured of this card there; where there was none, that is said, and data sheets stand.

    Raises:
        UsageError: There is no such cluster.
    """
    load_profiles().get(cluster)
    try:
        found = read_measured(state_dir()).get(cluster, {})
    except ValueError as error:
        talk(f"rltui: what self-tests measured is left out: {error}; correct or remove the file.")
        return Measured()
    if gpu.name not in found:
        others = f" (only of {', '.join(found)})" if found else ""
        talk(f"rltui: no self-test has measured {gpu.name} on {cluster}{others}; rltui selftest --cluster {cluster}")
    return found.get(gpu.name, Measured())


def _within_limit(options: argparse.Namespace) -> None:
    mean, spread, limit = options.response_mean, options.response_spread, options.response_tokens
    if mean is not None and not 1 <= mean <= limit:
        raise UsageError(f"--response-mean must be between 1 and --response-tokens ({limit}).")
    if spread is not None and not 0 <= spread <= limit:
        raise UsageError(f"--response-spread must be between 0 and --response-tokens ({limit}).")


def _default_reward(options: argparse.Namespace) -> Literal["exact", "math", "none"]:
    if options.algorithm == "opd":
        return "none"
    return "exact" if options.data.startswith("builtin/") else "math"


def _model(name: str) -> Architecture:
    model = find_model(name)
    if model is None:
        raise UsageError(
            f"The model {name[:120]!r} is not known.",
            _nearest(nearest_models(name)) or "A local folder with a config.json is read.",
        )
    return model


def _other_roles(options: argparse.Namespace) -> dict[str, Any]:
    """Critic, KL penalty and teacher; refused where the algorithm has none."""
    for name, algorithm in (("critic", "ppo"), ("kl", "ppo"), ("teacher", "opd")):
        if getattr(options, name) is not None and options.algorithm != algorithm:
            raise UsageError(f"--{name} is for --algorithm {algorithm}, not {options.algorithm}.")
    if options.algorithm == "opd":
        if not options.teacher:
            raise UsageError("Distillation has a teacher.", "Name it: --teacher Qwen/Qwen3-32B.")
        teacher = _model(options.teacher)
        _within_positions(options, options.teacher, teacher.max_position)
        return {"teacher_name": options.teacher, "teacher": teacher}
    kl = options.kl or 0.0
    if not 0 <= kl <= MOST_KL:
        raise UsageError(f"--kl must be between 0 and {MOST_KL:g}.")
    if not options.critic:
        return {"kl_coefficient": kl}
    return {"kl_coefficient": kl, "critic_name": options.critic, "critic": _model(options.critic)}


def _within_positions(options: argparse.Namespace, model: str, positions: int) -> None:
    wanted = options.prompt_tokens + options.response_tokens
    if 0 < positions < wanted:
        raise UsageError(
            f"{model} has positions for {positions} tokens; prompt and response take {wanted}.",
            "Lower --prompt-tokens or --response-tokens.",
        )


def _nearest(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}?" if names else ""


def _nothing(request: Request, json: bool) -> int:
    from rltui.plan.remedies import misfit

    found, others = misfit(request, _sound), elsewhere(request)
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
    yield from terms(request, others[0])
    yield "`rltui import SCRIPT` reads a script of such a system, `rltui launch SCRIPT` runs it."


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
