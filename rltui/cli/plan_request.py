"""What the words of ``rltui plan`` ask for: a model and GPUs, or what a layout, a script or a run wants already."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import structs

from rltui.cli.output import talk
from rltui.cli.sources import load_opened, opened, said
from rltui.cluster.profiles import load_profiles
from rltui.dialects.load import load_dialects, recognised
from rltui.errors import RltuiError, UsageError
from rltui.hardware.architecture import Architecture
from rltui.hardware.gpus import Gpu, find_gpu, nearest_gpus
from rltui.hardware.models import find_model, nearest_models
from rltui.layout.load import load_text
from rltui.layout.scalars import UNNAMED_GPU
from rltui.layout.schema import Layout
from rltui.paths import state_dir
from rltui.plan.assemble import as_text
from rltui.plan.calibrate import with_lengths
from rltui.plan.measured import Measured, read_measured
from rltui.plan.of_layout import wanted_of_layout
from rltui.plan.rates import Rates, family, rates_of, read_calibration
from rltui.plan.request import Request
from rltui.plan.standing import Standing

MOST_GPUS = 4096
MOST_TOKENS = 10**7
MOST_SAMPLES = 10**6
MOST_KL = 100.0
ALONE = {
    "algorithm": "algorithm",
    "critic": "roles.critic.model",
    "kl": "ppo.kl_coefficient",
    "teacher": "roles.teacher.model",
    "prompt_tokens": "lengths.prompt",
    "response_tokens": "lengths.response",
    "prompts": "train.prompts_per_step",
    "samples": "train.samples_per_prompt",
    "async_steps": "train.async_steps",
    "data": "data.train",
    "reward": "data.reward",
    "model": "roles.learner.model",
}
"""Options of a plan for a model alone; where a layout is named, its keys say the same."""
_SHAPE = re.compile(r"([1-9]\d{0,3})[x×]([1-9]\d{0,3})[x×](\S.*)")


def asked(options: argparse.Namespace) -> tuple[Request, Standing | None]:
    """The words as a request, and what stands already; anything unknown is refused with the nearest known.

    Raises:
        UsageError: A word that is not understood, or that says what something else says.
        RltuiError: ``plan`` knows no division of what is named, with the reason.
    """
    if options.run and options.layout:
        raise UsageError("Name a layout or --run, not both.", f"rltui plan --run {options.run}")
    if not (options.run or options.layout):
        return _alone(options), None
    for name, key in ALONE.items():
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is for a plan without a layout.",
                f"Change the key instead: rltui plan {options.layout or f'--run {options.run}'} {key}=…",
            )
    standing, request = _of_run(options) if options.run else _of_layout(options)
    if options.gpus:
        gpu, nodes, gpus_per_node = _shape(options.gpus)
        request = structs.replace(request, gpu=gpu, nodes=nodes, gpus_per_node=gpus_per_node)
    return _with_rates(_with_means(request, options), options.cluster), standing


def _of_layout(options: argparse.Namespace) -> tuple[Standing, Request]:
    path, script = opened(options.layout)
    layout = load_opened(path, script, options.overrides, said(options)).layout
    if options.gpus and layout.hardware.gpu == UNNAMED_GPU:
        named = f"hardware.gpu={_shape(options.gpus)[0].name}"
        layout = load_opened(path, script, [*options.overrides, named], said(options)).layout
    request = wanted_of_layout(layout)
    if not script:
        again = ("rltui", "launch", options.layout, *said(options), *options.overrides)
        return Standing(name=options.layout, layout=layout, again=again), request
    dialects = recognised(script, load_dialects().values())
    return Standing(name=options.layout, layout=layout, words=dialects[0].words if dialects else {}), request


def _of_run(options: argparse.Namespace) -> tuple[Standing, Request]:
    """A run with the lengths that its responses have had; without them where it has too few steps, which is said."""
    from rltui.service.all_clusters import open_run
    from rltui.service.config import layout_of_work, read_work
    from rltui.service.describe import attempt_path
    from rltui.watch.run_watcher import RunWatcher

    with open_run(options.cluster, options.run) as (context, summary):
        client, path = context.cluster.client, attempt_path(summary)
        try:
            work = read_work(client, path)
            layout = layout_of_work(client, path, work)
        except RltuiError as error:
            raise RltuiError(f"{summary.run_id} has no layout to plan by: {error.message}") from error
        series = RunWatcher(client, summary.path).every_step().series
    if options.overrides or said(options):
        layout = load_text(as_text(layout), summary.run_id, [*said(options), *options.overrides]).layout
    request = wanted_of_layout(layout)
    try:
        request = with_lengths(request, layout, series)
    except RltuiError as error:
        talk(f"rltui: lengths of responses are assumed. {error.message}")
    if not isinstance(work, Layout):
        return Standing(name=work.source, layout=layout, words=work.dialect.words), request
    again = ("rltui", "resubmit", summary.run_id, *options.overrides)
    return Standing(name=summary.run_id, layout=layout, again=again), request


def _alone(options: argparse.Namespace) -> Request:
    if not (options.model and options.gpus):
        raise UsageError(
            "Name a model and GPUs, or what stands already: a layout, a script or a run.",
            "rltui plan --model Qwen/Qwen3-8B --gpus 2x8xH100, rltui plan run.sh --gpu H100, rltui plan --run RUN",
        )
    gpu, nodes, gpus_per_node = _shape(options.gpus)
    said_so = {name: getattr(options, name) for name in ALONE if name not in ("critic", "kl", "teacher", "model")}
    request = Request(
        model_name=options.model,
        model=_model(options.model),
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        **{name: value for name, value in said_so.items() if value is not None},
    )
    least_samples = 2 if request.algorithm == "grpo" else 1
    for name, least, most in (
        ("prompt_tokens", 1, MOST_TOKENS), ("response_tokens", 1, MOST_TOKENS), ("prompts", 1, MOST_SAMPLES),
        ("samples", least_samples, MOST_SAMPLES), ("async_steps", 0, 100),
    ):  # fmt: skip
        _between(name, getattr(request, name), least, most)
    _within_positions(request, options.model, request.model)
    request = structs.replace(_with_means(request, options), **_other_roles(options, request))
    reward = options.reward or _default_reward(request)
    return _with_rates(structs.replace(request, reward=reward), options.cluster)


def _shape(words: str) -> tuple[Gpu, int, int]:
    """Card, nodes and cards of each."""
    shape = _SHAPE.fullmatch(words.strip())
    if shape is None or int(shape[1]) * int(shape[2]) > MOST_GPUS or int(shape[2]) > 1024:
        raise UsageError(f"--gpus {words[:60]!r} is no NODESxGPUSxCARD of at most {MOST_GPUS} GPUs.", "2x4xH100")
    gpu = find_gpu(shape[3])
    if gpu is None:
        raise UsageError(f"The card {shape[3][:60]!r} is not known.", _nearest(nearest_gpus(shape[3])))
    return gpu, int(shape[1]), int(shape[2])


def _with_rates(request: Request, cluster: str) -> Request:
    measured = _selftest(cluster, request.gpu) if cluster else Measured()
    return structs.replace(request, rates=_measured(request.model, request.gpu), measured=measured)


def _with_means(request: Request, options: argparse.Namespace) -> Request:
    """The request with what the words say of the responses' lengths."""
    mean, spread, limit = options.response_mean, options.response_spread, request.response_tokens
    if mean is not None and not 1 <= mean <= limit:
        raise UsageError(f"--response-mean must be between 1 and the longest response ({limit} tokens).")
    if spread is not None and not 0 <= spread <= limit:
        raise UsageError(f"--response-spread must be between 0 and the longest response ({limit} tokens).")
    known = {"response_mean": mean, "response_spread": spread}
    return structs.replace(request, **{name: value for name, value in known.items() if value is not None})


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


def _default_reward(request: Request) -> Literal["exact", "math", "none"]:
    if request.algorithm == "opd":
        return "none"
    return "exact" if request.data.startswith("builtin/") else "math"


def _model(name: str) -> Architecture:
    model = find_model(name)
    if model is None:
        raise UsageError(
            f"The model {name[:120]!r} is not known.",
            _nearest(nearest_models(name)) or "A local folder with a config.json is read.",
        )
    return model


def _other_roles(options: argparse.Namespace, request: Request) -> dict[str, Any]:
    """Critic, KL penalty and teacher; refused where the algorithm has none."""
    for name, algorithm in (("critic", "ppo"), ("kl", "ppo"), ("teacher", "opd")):
        if getattr(options, name) is not None and request.algorithm != algorithm:
            raise UsageError(f"--{name} is for --algorithm {algorithm}, not {request.algorithm}.")
    if request.algorithm == "opd":
        if not options.teacher:
            raise UsageError("Distillation has a teacher.", "Name it: --teacher Qwen/Qwen3-32B.")
        teacher = _model(options.teacher)
        _within_positions(request, options.teacher, teacher)
        return {"teacher_name": options.teacher, "teacher": teacher}
    kl = options.kl or 0.0
    if not 0 <= kl <= MOST_KL:
        raise UsageError(f"--kl must be between 0 and {MOST_KL:g}.")
    if not options.critic:
        return {"kl_coefficient": kl}
    return {"kl_coefficient": kl, "critic_name": options.critic, "critic": _model(options.critic)}


def _within_positions(request: Request, name: str, model: Architecture) -> None:
    wanted = request.prompt_tokens + request.response_tokens
    if 0 < model.max_position < wanted:
        raise UsageError(
            f"{name} has positions for {model.max_position} tokens; prompt and response take {wanted}.",
            "Lower --prompt-tokens or --response-tokens.",
        )


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"--{name.replace('_', '-')} must be between {least} and {most}.")


def _nearest(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}?" if names else ""
