"""What ``plan`` expects of a layout that stands already: the same formulas, without a search.

``rltui plan`` and this agree to the digit on every proposal, which a test holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from rltui.errors import RltuiError
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.layout.scalars import UNNAMED_GPU
from rltui.memory.from_layout import ENGINE_SEQUENCES, number_bytes
from rltui.memory.layouts import estimate_roles
from rltui.memory.recipes import RECIPES
from rltui.plan.candidates import is_megatron, trained_by
from rltui.plan.cards import ITEM_BYTES
from rltui.plan.measured import Measured
from rltui.plan.rates import TRUST, Family, Rates, family, trust_in
from rltui.plan.request import Means, Request
from rltui.plan.setup import EngineChoice, Placement, Setup, Training
from rltui.plan.throughput import StepTime, step_time

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.layout.roles import Critic, Learner
    from rltui.layout.schema import Layout
    from rltui.memory.estimate import LayoutEstimate

OWN = 1.3
"""By so much a run may be off from rates that another run of its card and family had on the same cluster."""


class Prediction(Struct, frozen=True, kw_only=True):
    """What a run of a layout would take.

    Attributes:
        time: One step.
        steps: How many there are.
        gpus: Cards that it holds, those that no role is on too.
        factor: By how much published points, or a run by rates of its own, may be off, either way.
        mean_tokens: Tokens of a response in the mean that this goes by.
        trust: How far off that may be, and by what is known so.
        ahead: Steps that rollouts run ahead.
    """

    time: StepTime
    steps: int
    gpus: int
    factor: float
    mean_tokens: float
    trust: str
    ahead: int = 0

    @property
    def total_s(self) -> float:
        """All steps; without queue, start-up, evaluations and checkpoints."""
        return self.steps * self.time.step_s

    @property
    def gpu_hours(self) -> float:
        """What it holds its cards for in all."""
        return self.total_s * self.gpus / 3600

    def lines(self) -> Iterator[str]:
        """It in words, with its error bars."""
        time, hours, plural = self.time, self.total_s / 3600, "s" * (self.gpus != 1)
        terms = {"generate": time.generate_s, "score": time.teacher_s, "train": time.update_s, "sync": time.sync_s}
        made = ", ".join(f"{name} {_rounded(seconds)} s" for name, seconds in terms.items() if seconds)
        made += f", rollouts {self.ahead} step{'s' * (self.ahead > 1)} ahead" if self.ahead else ""
        yield f"{self._range(time.step_s)} s a step: {made}; {time.idle_share:.0%} of GPU time idle"
        yield f"{self._range(time.tokens_per_s)} response tokens/s"
        yield f"{self.steps} steps: {self._range(hours)} h on {self.gpus} GPU{plural}"
        yield f"{self._range(self.gpu_hours)} GPU-hours"
        yield (
            f"{self.trust}; responses of {self.mean_tokens:.0f} tokens in the mean; "
            "without queue, start-up, evaluations and checkpoints"
        )

    def _range(self, value: float) -> str:
        low, high = value / self.factor, value * self.factor
        return f"{_rounded(value)} ({_rounded(low)}–{_rounded(high)})"


def _rounded(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{float(f'{value:.3g}'):.0f}" if value >= 100 else f"{value:.3g}"


def predict(
    layout: Layout,
    known: Mapping[str, Mapping[Family, Rates]] | None = None,
    measured: Mapping[str, Measured] | None = None,
) -> Prediction:
    """The time of a step of ``layout``.

    Args:
        layout: What would be launched.
        known: Rates that runs of the user's own had, by card and family.
        measured: What a self-test of the cluster measured, by card.

    Raises:
        RltuiError: ``plan`` does not predict such runs, with the reason.
        UsageError: A model is a local folder whose config.json cannot be read.
    """
    request = request_of_layout(layout)
    own = (known or {}).get(request.gpu.name, {}).get(family(request.model))
    card = (measured or {}).get(request.gpu.name, Measured())
    request = structs.replace(request, rates=own, measured=card)
    return Prediction(
        time=step_time(request, setup_of_layout(layout)),
        steps=layout.train.steps,
        gpus=request.total_gpus,
        factor=OWN if own else TRUST[family(request.model)].factor,
        mean_tokens=request.mean_tokens,
        trust=f"{own.source}, within a factor of {OWN:g}" if own else trust_in(request.model, request.gpu),
        ahead=request.async_steps,
    )


def request_of_layout(layout: Layout) -> Request:
    """A layout whose own division ``plan`` can time, as a request; nothing is known of its lengths but the limit.

    Raises:
        RltuiError: ``plan`` does not predict such runs, with the reason.
    """
    roles = layout.roles
    learner, critic = roles.learner, roles.critic
    in_host = "all" in (learner.offload, critic.offload if critic is not None else "")
    present = (name for name in ("learner", "rollout", "reference", "critic", "teacher") if getattr(roles, name))
    homeless = [name for name in present if not layout.slots_of(name)]
    _refuse(
        (bool(homeless), f"there are no GPUs for {' and '.join(homeless)}"),
        (not layout.num_engines, "there are no engines"),
        (in_host and not RECIPES[layout.system].trains_on_card, "weights in host memory"),
        (learner.zero_stage not in (2, 3) and not is_megatron(layout.system), "ZeRO below stage 2"),
    )
    return _asked(layout)


def wanted_of_layout(layout: Layout) -> Request:
    """What a layout wants, however it divides its GPUs, as a request.

    Raises:
        RltuiError: ``plan`` knows no division of such runs, with the reason.
    """
    _refuse_scorers(layout)
    return _asked(layout)


def _asked(layout: Layout) -> Request:
    roles = layout.roles
    learner, critic, teacher = roles.learner, roles.critic, roles.teacher
    computing = (learner, roles.rollout, critic, roles.reference, teacher)
    gpu, model = find_gpu(layout.hardware.gpu), _model(learner.model)
    if gpu is None:
        named = layout.hardware.gpu != UNNAMED_GPU
        why = f"{layout.hardware.gpu} is no card that has a data sheet here." if named else "No card is named."
        raise RltuiError(why, "Name it: --gpu H100-SXM-80GB, or with its machines --gpus 2x8xH100-SXM-80GB.")
    _refuse(
        (bool(layout.hardware.more), "nodes of several kinds"),
        (bool(learner.lora_rank), "adapters"),
        (any(role is not None and role.precision == "fp32" for role in computing), "numbers in float32"),
    )
    return Request(
        model_name=learner.model,
        model=model,
        gpu=gpu,
        nodes=layout.hardware.nodes,
        gpus_per_node=layout.hardware.gpus_per_node,
        algorithm=layout.algorithm,
        critic_name=critic.model if critic is not None else "",
        critic=_model(critic.model) if critic is not None and critic.model else None,
        teacher_name=teacher.model if teacher is not None else "",
        teacher=_model(teacher.model) if teacher is not None else None,
        prompt_tokens=layout.lengths.prompt,
        response_tokens=layout.lengths.response,
        kl_coefficient=1.0 if roles.reference is not None else 0.0,
        reference_stage=roles.reference.zero_stage if roles.reference is not None else 3,
        prompts=layout.train.prompts_per_step,
        samples=layout.train.samples_per_prompt,
        optimizer_steps=layout.train.optimizer_steps,
        epochs=layout.train.epochs,
        old_log_probs=_scores_samples(layout),
        async_steps=layout.train.async_steps,
        engine_sequences=roles.rollout.max_concurrency or ENGINE_SEQUENCES,
        eager=roles.rollout.enforce_eager,
        weight_bytes=number_bytes(roles.rollout, "quantization", ITEM_BYTES),
        kv_bytes=number_bytes(roles.rollout, "kv_cache_dtype", ITEM_BYTES),
        means=Means(pack=bool(layout.lengths.pack)),
        row_tokens=layout.lengths.pack,
        cut=(learner.tensor_parallel, learner.pipeline_parallel, learner.expert_parallel),
        system=layout.system if is_megatron(layout.system) else "rltui",
    )


def _scores_samples(layout: Layout) -> bool:
    """Whether the policy scores samples that one update is made of: only where engines' scores will not do."""
    grpo, train = layout.grpo, layout.train
    penalised = layout.algorithm == "grpo" and grpo.penalises_kl and (grpo.kl == "reward" or train.truncates)
    return layout.system != "rltui" or penalised


def _refuse_scorers(layout: Layout) -> None:
    _refuse(
        (layout.roles.judge is not None, "how long a judge thinks is not known"),
        (layout.roles.reward_model is not None, "it knows no times of a reward model"),
    )


def _refuse(*kinds: tuple[bool, str]) -> None:
    for is_so, what in kinds:
        if is_so:
            raise RltuiError(f"plan does not predict runs of this kind: {what}.")


def _model(name: str) -> Architecture:
    found = find_model(name)
    if found is None:
        raise RltuiError(f"The shape of the model {name} is not known.")
    return found


def training_way(layout: Layout, role: Learner | Critic) -> Training:
    """How a role trains, on its own GPUs or its pool's."""
    own: Sequence[int] = getattr(role, "gpus", ())
    pool = role.pool or layout.roles.learner.pool
    cut = layout.cut_of(role)
    stage: Literal[1, 2, 3] = 1 if is_megatron(layout.system) else 2 if role.zero_stage == 2 else 3
    way = Training(
        gpus=tuple(layout.pools[pool].gpus if pool else own or layout.roles.learner.gpus),
        zero_stage=stage,
        # 0: all rows of a rank at once; what an import left open is not known to be so
        micro_batch=role.micro_batch or (1 if layout.unsure else layout.train.samples_per_step),
        gradient_checkpointing=role.gradient_checkpointing,
        offload=role.offload != "none",
        sequence_parallel=getattr(cut, "sequence_parallel", 1),
        tensor_parallel=getattr(cut, "tensor_parallel", 1),
        pipeline_parallel=getattr(cut, "pipeline_parallel", 1),
        expert_parallel=getattr(cut, "expert_parallel", 1),
        packed_tokens=layout.lengths.pack,
    )
    return trained_by(layout.system, way)


def setup_of_layout(layout: Layout) -> Setup:
    """Who has which GPUs.

    Raises:
        RltuiError: ``plan`` does not predict such runs, with the reason.
    """
    _refuse_scorers(layout)
    roles, estimate = layout.roles, estimate_roles(layout)
    teacher = roles.teacher
    if roles.rollout.engine != "vllm" or (teacher is not None and teacher.engine != "vllm"):
        raise RltuiError("plan does not predict runs of this kind: engines that are not vLLM's.")
    return Setup(
        learner=training_way(layout, roles.learner),
        critic=training_way(layout, roles.critic) if roles.critic is not None else None,
        engine=_engine(estimate, "rollout", roles.rollout.tensor_parallel),
        engines=layout.num_engines,
        teacher=_engine(estimate, "teacher", teacher.tensor_parallel) if teacher is not None else None,
        teachers=teacher.engines if teacher is not None else 0,
        placement=_placement(layout),
        sleeps=roles.rollout.sleep_while_training,
        memories={},
    )


def _engine(estimate: LayoutEstimate, role: str, width: int) -> EngineChoice:
    engine = next((each for each in estimate.engines if each.role == role), None)
    memory = estimate.role(role)
    if engine is None or memory is None:
        raise RltuiError(f"plan does not predict runs of this kind: the memory of {role} is not known.")
    return EngineChoice(tensor_parallel=width, engine=engine, memory=memory)


def _placement(layout: Layout) -> Placement:
    """How roles share GPUs, in plan's words.

    Raises:
        RltuiError: They share in a way that plan knows nothing of.
    """
    roles = layout.roles
    home, engines = roles.learner.pool, roles.rollout.pool
    value = home if roles.critic is None else roles.critic.pool or home
    shared = bool(home) and home == engines
    if (engines and not shared and engines == value != home) or (roles.teacher is not None and roles.teacher.pool):
        raise RltuiError("plan does not predict runs of this kind: engines or teachers in a pool with other roles.")
    if value != home:
        if not shared:
            raise RltuiError("plan does not predict runs of this kind: learner, critic and engines each by themselves.")
        return "split"
    return "standard" if shared else "apart"
