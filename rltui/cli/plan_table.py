"""How ``rltui plan`` shows its proposals."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from rltui.check.findings import Finding
from rltui.check.run import Report, check_text
from rltui.cli.output import columns, wrapped
from rltui.importers.values import printable
from rltui.layout.load import load_text
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_layout
from rltui.plan import measured
from rltui.plan.assemble import DIVIDED_ANEW, as_text
from rltui.plan.cards import rates as rates_in_use
from rltui.plan.decoding import decode_step, sequences_at_once, steady_s
from rltui.plan.of_layout import OWN
from rltui.plan.rank import DEFAULT_COUNT, Proposal
from rltui.plan.rates import TRUST, family, trust_in, unmeasured_card
from rltui.plan.request import Request
from rltui.plan.setup import Setup, Training
from rltui.plan.standing import Standing, changes, differences, divided_like
from rltui.plan.training import train_terms

OPTIONS = {
    "algorithm": "--algorithm",
    "critic_name": "--critic",
    "kl_coefficient": "--kl",
    "teacher_name": "--teacher",
    "prompt_tokens": "--prompt-tokens",
    "response_tokens": "--response-tokens",
    "response_mean": "--response-mean",
    "response_spread": "--response-spread",
    "prompts": "--prompts",
    "samples": "--samples",
    "async_steps": "--async-steps",
    "data": "--data",
    "reward": "--reward",
}
"""Options by the name of what they set; said again only where they are not the default."""

DOES_NOT_FIT = ("M301", "M302")
"""Codes of roles that take more than their cards have."""

OWN_TRUST = f"another run of such a model on these cards is taken to be within a factor of {OWN:g} (assumed)"

TIMES = ("STEP", "GEN", "SCORE", "TRAIN", "VALUE", "SYNC", "IDLE", "TOKENS/S")


class Better(Struct, frozen=True, kw_only=True):
    """What the proposals are held against.

    Attributes:
        standing: It.
        findings: What the check says of it.
        now: Its own division and time; None where they cannot be compared.
        reason: Why not.
    """

    standing: Standing
    findings: tuple[Finding, ...]
    now: Proposal | None
    reason: str = ""

    def is_sound(self, text: str, name: str) -> bool:
        """Whether the check finds no fault in it, divided as the planned layout ``text``, that it does not have now.

        Faults are errors, and roles that do not fit their cards: of another system's script these only warn.
        """
        divided = divided_like(self.standing.layout, load_text(text, name).layout)
        return _faults(check_text(as_text(divided), self.standing.name).findings) <= _faults(self.findings)

    def divided(self, proposal: Proposal) -> Layout:
        """It in the division of ``proposal``."""
        return divided_like(self.standing.layout, proposal.layout)

    def text(self, proposal: Proposal) -> str:
        """It in that division as YAML, which says where it is from."""
        return as_text(self.divided(proposal), DIVIDED_ANEW.format(printable(self.standing.name)))

    def changes(self, proposal: Proposal) -> tuple[str, ...]:
        """The overrides that divide it so."""
        return changes(self.standing.layout, self.divided(proposal))


def _faults(findings: Sequence[Finding]) -> set[str]:
    return {each.code for each in findings if each.severity == "error" or each.code in DOES_NOT_FIT}


def lines(
    request: Request, proposals: Sequence[Proposal], saved: Sequence[str], better: Better | None = None
) -> Iterator[str]:
    """The best as a picture, all in a table, why, and what to do next."""
    reports = [report(each, better) for each in proposals]
    yield from reports[0].drawing
    yield ""
    yield from table(request, [*([better.now] if better and better.now else ()), *proposals])
    yield ""
    yield from wrapped(_sentences(request, proposals, reports, better))
    yield ""
    if saved:
        yield from (_with(path, each) for path, each in zip(saved, reports, strict=True))
    elif better is None:
        yield f"save:   {_again(request, len(proposals))} --save plans"
        yield f"launch: rltui launch plans/{proposals[0].layout.name}.yaml"
    elif better.standing.again:
        yield f"#1: {shlex.join([*better.standing.again, *better.changes(proposals[0])])}"
    else:
        yield "#1 differs from it, in a layout's keys, and in its own words where rltui knows them:"
        yield from (f"  {line}" for line in differences(better.standing, better.divided(proposals[0])))


def _with(path: str, checked: Report) -> str:
    """What can be done with a proposal that was saved; what the bundled trainers do not run is not launched."""
    runs = all(finding.code != "E390" for finding in checked.findings)
    return f"rltui {'launch' if runs else 'check'} {path}"


def _sentences(
    request: Request, proposals: Sequence[Proposal], reports: Sequence[Report], better: Better | None
) -> Iterator[str]:
    """Why each proposal has its rank, what the first is made of, and how far to believe it."""
    if better is not None:
        yield _compared(better, proposals[0])
    for each, checked in zip(proposals, reports, strict=True):
        yield f"#{each.rank} {each.why}"
        yield f"   {_training(each)}"
        yield from (f"   {line}" for line in _warnings(checked, better))
    yield from terms(request, proposals[0])
    yield "Times are estimates, in seconds, from FLOPs and bandwidth; docs/planning.md says what is assumed."


def _compared(better: Better, best: Proposal) -> str:
    """How much the first proposal is better than what stands already."""
    name = better.standing.name
    if better.now is None:
        return f"{name} as it stands is not compared: {better.reason}."
    gain = better.now.time.step_s / best.time.step_s - 1
    if gain < 0.005:
        return f"now: {name} as it stands; nothing here is faster."
    return f"now: {name} as it stands; #1 makes {gain:.0%} more steps in the same time."


def terms(request: Request, best: Proposal) -> Iterator[str]:
    """What the first step's seconds are made of, at which rates, and how far to believe them."""
    time, rates = best.time, rates_in_use(request, request.model)
    rest = f"sync {time.sync_s:.1f} + other {time.other_s:.1f}"
    yield f"#1 step {time.step_s:.1f} s = {_made_and_trained(request, best)} + {rest}"
    yield from (f"   {line}" for line in _phases(request, best.setup))
    mean, spread = request.mean_tokens, request.spread_tokens
    assumed = "" if request.response_mean else " (assumed: --response-mean says better)"
    yield f"   responses: mean {mean:.0f}, spread {spread:.0f}, limit {request.response_tokens} tokens{assumed}"
    yield f"   rates: {rates.source}: {rates.training:.0%} of the peak FLOP/s, {rates.decode:.0%} of the bandwidth"
    if request.measured.sources:
        yield f"   cards and links: {measured.words(request.measured)}"
    factor = TRUST[family(request.model)].factor if request.rates is None else OWN
    trust = trust_in(request.model, request.gpu) if request.rates is None else OWN_TRUST
    yield f"   error: {time.step_s / factor:.0f} to {time.step_s * factor:.0f} s; {trust}"
    if unknown := ", ".join(_unknown(request, best.setup)):
        yield f"   not known: no published time has been compared for {unknown}"


def _made_and_trained(request: Request, best: Proposal) -> str:
    """One after the other, or what lasts longest where rollouts run ahead (``model_step_s``)."""
    time, setup, ahead = best.time, best.setup, request.async_steps
    made = time.generate_s + time.teacher_s
    if not ahead:
        return f"generation {made:.1f} + training {time.update_s:.1f}"
    steady = steady_s(request, setup.engine, setup.engines) + time.teacher_s
    alone = (made + time.update_s) / (1 + ahead)
    part = "half" if ahead == 1 else f"1/{1 + ahead}"
    longest = f"training {time.update_s:.1f}, engines always full {steady:.1f}, {part} of a step alone {alone:.1f}"
    return f"the longest of ({longest})"


def _phases(request: Request, setup: Setup) -> Iterator[str]:
    """Generation by what a token costs, training by its micro-batches."""
    batch = sequences_at_once(request, setup.engine, setup.engines)
    step = decode_step(request, setup.engine.tensor_parallel, batch)
    matrices = max(step.weights_s, step.products_s)
    parts = {"weights": matrices, "cache": step.cache_s, "launches and sampling": step.fixed_s}
    made = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in parts.items())
    each = f"{1000 * step.step_s:.1f} ms for a token of each: {made}"
    yield f"generation: {batch:.0f} sequences at once on an engine, {each}"
    count, pass_s, update_s, bound = train_terms(request, setup.learner)
    many = f"{count} micro-batches of {pass_s:.2g} s" if count > 1 else f"one micro-batch of {pass_s:.3g} s"
    yield f"training: {many} on a rank, bound by {bound}; optimizer {update_s:.2g} s"


def _unknown(request: Request, setup: Setup) -> Iterator[str]:
    """What is in the first proposal that no published time was compared with."""
    if request.rates is None and unmeasured_card(request.model, request.gpu):
        yield request.gpu.name
    if setup.learner.offload:
        yield "an offloaded optimizer"
    if setup.learner.sequence_parallel > 1:
        yield "shared sequences"


def table(request: Request, proposals: Sequence[Proposal]) -> Iterator[str]:
    """Who has which GPUs, and the seconds of a step; columns of roles that the algorithm does not have are left out."""
    rows = [dict(_cells(request, each)) for each in proposals]
    header = tuple(rows[0])
    right = frozenset(header.index(name) for name in header if name in TIMES)
    yield from columns(header, [tuple(row.values()) for row in rows], right=right)


def _cells(request: Request, proposal: Proposal) -> Iterator[tuple[str, str]]:
    setup, time, algorithm = proposal.setup, proposal.time, request.algorithm
    yield "#", str(proposal.rank or "now")
    if algorithm == "ppo":
        yield "PLACED", setup.placement
    own = f" / {_bundles(setup.critic.gpus)}" if setup.critic is not None and setup.placement == "split" else ""
    yield "LEARNERS", _bundles(setup.learner.gpus) + own
    yield "ENGINES", f"{setup.engines}×TP{setup.engine.tensor_parallel}"
    if setup.teacher is not None:
        yield "TEACHERS", f"{setup.teachers}×TP{setup.teacher.tensor_parallel}"
    yield "STEP", f"{time.step_s:.1f}"
    yield "GEN", f"{time.generate_s:.1f}"
    if algorithm == "opd":
        yield "SCORE", f"{time.teacher_s:.1f}"
    yield "TRAIN", f"{time.train_s:.1f}"
    if algorithm == "ppo":
        yield "VALUE", f"{time.critic_s:.1f}"
    yield "SYNC", f"{time.sync_s:.1f}"
    yield "IDLE", f"{time.idle_share:.0%}"
    yield "TOKENS/S", f"{time.tokens_per_s:.0f}"


def _training(proposal: Proposal) -> str:
    """How it trains, what its engines may take where they share the card, and whether memory is tight."""
    setup, way = proposal.setup, proposal.setup.learner
    words = [_cut(way) if way.megatron else f"ZeRO-{way.zero_stage}", f"micro-batch {way.micro_batch}"]
    if way.gradient_checkpointing:
        words.append("gradient checkpointing")
    if way.offload:
        host = estimate_layout(proposal.layout).host
        size = f" ({host.ram_gib:.0f} GiB of it a node)" if host else ""
        words.append(f"optimizer in host memory{size}")
    if proposal.layout.lengths.pack:
        words.append("packed rows")
    if way.sequence_parallel > 1 and not way.megatron:
        words.append(f"{way.sequence_parallel} GPUs share a sequence")
    if setup.placement != "apart":
        words.append(f"engines take {setup.utilization:g} of a card{' and sleep' if setup.sleeps else ''}")
    fullest = max(setup.memories.values(), key=lambda memory: memory.peak_gib)
    words.append(f"memory {proposal.verdict}: {fullest.role} {fullest.peak_gib:.0f} of {fullest.capacity_gib:.0f} GiB")
    return ", ".join(words)


def _cut(way: Training) -> str:
    """How Megatron divides the model, in its own words."""
    sizes = {
        "TP": way.tensor_parallel,
        "PP": way.pipeline_parallel,
        "CP": way.sequence_parallel,
        "EP": way.expert_parallel,
    }
    return "Megatron " + (" × ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "undivided")


def _again(request: Request, count: int) -> str:
    """The command that gives the same proposals."""
    words: dict[str, object] = {
        "--model": request.model_name,
        "--gpus": f"{request.nodes}x{request.gpus_per_node}x{request.gpu.name}",
    }
    defaults = dict(zip(reversed(Request.__struct_fields__), reversed(Request.__struct_defaults__), strict=False))
    words |= {
        option: getattr(request, name) for name, option in OPTIONS.items() if getattr(request, name) != defaults[name]
    }
    if count != DEFAULT_COUNT:
        words["--count"] = count
    return "rltui plan " + " ".join(f"{name} {shlex.quote(str(value))}" for name, value in words.items())


def report(proposal: Proposal, better: Better | None = None) -> Report:
    """What the check says of it; beside something that stands, of that in the proposal's division."""
    if better is None:
        return check_text(proposal.text, f"{proposal.layout.name}.yaml")
    return check_text(as_text(better.divided(proposal)), better.standing.name)


def _warnings(checked: Report, better: Better | None) -> Iterator[str]:
    """Warnings of the check, and that the bundled trainers cannot run it (E390); none that what stands has too."""
    known = {each.code for each in better.findings} if better else set()
    for finding in checked.findings:
        if finding.code not in known and (finding.severity == "warning" or finding.code == "E390"):
            yield f"{finding.code} {finding.message}"


def _bundles(gpus: Sequence[int]) -> str:
    """``4×8+2`` for four bundles, on a node each, of eight and one of two."""
    full = sum(bundle == gpus[0] for bundle in gpus)
    first = f"{full}×{gpus[0]}" if full > 1 else str(gpus[0])
    return first + "".join(f"+{bundle}" for bundle in gpus[full:])


def as_json(proposal: Proposal, better: Better | None = None) -> dict[str, Any]:
    """The proposal with its layout, in GiB and seconds, and what it would change of what stands already."""
    setup = proposal.setup
    return {
        "rank": proposal.rank,
        "why": proposal.why,
        "verdict": proposal.verdict,
        "placement": setup.placement,
        "learner_gpus": setup.learner.gpus,
        "critic_gpus": setup.critic.gpus if setup.critic is not None else [],
        "engines": setup.engines,
        "tensor_parallel": setup.engine.tensor_parallel,
        "memory_utilization": setup.utilization,
        "sleep_while_training": setup.sleeps,
        **_teachers(setup),
        "peak_gib": {role: round(memory.peak_gib, 3) for role, memory in setup.memories.items()},
        "time": proposal.time,
        "findings": [
            {"code": f.code, "severity": f.severity, "message": f.message} for f in report(proposal, better).findings
        ],
        "layout": proposal.layout,
        **({"changes": better.changes(proposal)} if better else {}),
    }


def _teachers(setup: Setup) -> dict[str, int]:
    if setup.teacher is None:
        return {}
    return {"teachers": setup.teachers, "teacher_tensor_parallel": setup.teacher.tensor_parallel}
