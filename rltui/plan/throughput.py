"""How long a step would take: a roofline for each phase, with every assumption a constant.

Generating is in :mod:`rltui.plan.decoding`, training in :mod:`rltui.plan.training`, what cards and links give in
:mod:`rltui.plan.cards` and :mod:`rltui.plan.rates`. How long responses are is in the request: without a word on
them, evenly spread between nothing and the limit, so the mean is half of it and the longest of a step the limit itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.parameters import count_parameters
from rltui.memory.estimate import GIB
from rltui.plan.cards import ITEM_BYTES, host_bytes_per_s, link_bytes_per_s, ring_bytes_per_s
from rltui.plan.decoding import generate_s, steady_s, teacher_s
from rltui.plan.training import reference_s, train_s

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.request import Request
    from rltui.plan.setup import EngineChoice, Setup, Training

LOAD_BYTES_PER_S = 4e9
"""At which new weights get into an engine's own format, each GPU its part: NeMo-RL publishes 5 s for Llama-3.1-8B,
whole on each GPU, and 14 s for the 70B."""

STEP_OVERHEAD_S = 1.0
SAMPLE_OVERHEAD_S = 1e-3
"""Of each step, and of each of its samples: rewards, data, logging, moving samples. What steps of NeMo-RL, RLinf and
verl take beside their published phases: 1 to 3 s with 512 to 2,048 samples, 5 to 20 s with 8,192."""


class StepTime(Struct, frozen=True, kw_only=True):
    """One training step, in seconds, and who waits meanwhile.

    Attributes:
        generate_s: From the first prompt to the last token.
        teacher_s: The teacher's scores of all samples; 0 without a teacher.
        train_s: Log-probs, forward, backward and optimizer of the policy, and the reference's log-probs.
        critic_s: Values, forward, backward and optimizer of the critic; 0 without one.
        update_s: Policy and critic: one after the other, or at once where the critic has GPUs of its own.
        sync_s: New weights to the engines, and their waking up.
        other_s: Rewards, data and logging.
        step_s: All of it: generation and training one after the other, or at once where rollouts run ahead.
        idle_share: GPU time of the whole cluster that nothing uses.
        tokens_per_s: Response tokens that are generated and trained on.
        decode_bound: What decoding waits for at the full batch.
        train_bound: What training waits for.
    """

    generate_s: float
    teacher_s: float
    train_s: float
    critic_s: float
    update_s: float
    sync_s: float
    other_s: float
    step_s: float
    idle_share: float
    tokens_per_s: float
    decode_bound: str
    train_bound: str


def sync_s(request: Request, learner: Training, engine: EngineChoice) -> float:
    """Seconds in which learner rank 0 gathers all weights (ZeRO-3), and engine GPUs get them whole and load a part."""
    return gather_s(request, learner) + broadcast_s(request) + load_s(request, engine)


def broadcast_s(request: Request) -> float:
    """Seconds in which all weights pass once to the engines, over the network where there are several nodes."""
    return _weights(request.model) / link_bytes_per_s(request, (1,) * request.nodes)


def load_s(request: Request, engine: EngineChoice) -> float:
    """Seconds in which each GPU of an engine gets its part of new weights into the engine's own format."""
    return _weights(request.model) / engine.tensor_parallel / LOAD_BYTES_PER_S


def gather_s(request: Request, learner: Training) -> float:
    """Seconds in which rank 0 gathers all weights; uncut, with ZeRO-2 or less, it has them."""
    if learner.zero_stage < 3 and learner.sharing == learner.expert_parallel == 1:
        return 0.0
    return _weights(request.model) / ring_bytes_per_s(request, learner.gpus)


def _weights(model: Architecture) -> float:
    return ITEM_BYTES * count_parameters(model).total


def shared_sync_s(request: Request, setup: Setup) -> float:
    """The same where engines share the learner's GPUs; those that sleep leave for host memory and come back."""
    broadcast_s = _weights(request.model) / ring_bytes_per_s(request, setup.learner.gpus)
    moved = 2 * setup.engine.engine.weights_gib * GIB if setup.sleeps else 0.0
    moved_s = moved / host_bytes_per_s(request)
    return gather_s(request, setup.learner) + broadcast_s + load_s(request, setup.engine) + moved_s


def model_step_s(request: Request, made_s: float, update_s: float, steady: float) -> float:
    """What waits for what: one after the other, or at once where rollouts run ahead; and what belongs to neither.

    Ahead by n steps, the samples of a step are asked for when the weights of the step n + 1 before it are there, and
    the last of them may take until n further steps are trained: n + 1 steps take no less than making and training one.

    Args:
        request: What is planned for.
        made_s: From the first prompt of a step to its last sample, by itself.
        update_s: Training.
        steady: Seconds of a step's samples where engines are always full; of no matter where nothing runs ahead.
    """
    step_s = made_s + update_s
    if request.async_steps:
        step_s = max(update_s, steady, step_s / (1 + request.async_steps))
    return step_s + overhead_s(request)


def overhead_s(request: Request) -> float:
    """Seconds of a step that belong to no phase."""
    return STEP_OVERHEAD_S + SAMPLE_OVERHEAD_S * request.samples_per_step


def step_time(request: Request, setup: Setup) -> StepTime:
    """Seconds of a step, from those of its phases: added up, or side by side where cards are apart."""
    learner, critic, shared = setup.learner, setup.critic, setup.placement != "apart"
    generate, decode_bound = generate_s(request, setup.engine, setup.engines)
    train, train_bound = train_s(request, learner)
    train += reference_s(request, learner) if request.kl_coefficient else 0.0
    value = 0.0 if critic is None else train_s(request, critic, request.critic or request.model)[0]
    score = 0.0 if setup.teacher is None else teacher_s(request, setup.teacher, setup.teachers)
    sync = shared_sync_s(request, setup) if shared else sync_s(request, learner, setup.engine)
    split = setup.placement == "split"
    update = max(train, value) if split else train + value
    made = generate + score
    steady = steady_s(request, setup.engine, setup.engines) + score if request.async_steps else made
    step = model_step_s(request, made, update, steady) + sync
    busy = learner.ranks * (train + sync + (0.0 if split else value))
    busy += setup.engines * setup.engine.tensor_parallel * (generate + (0.0 if shared else sync))
    busy += critic.ranks * value if split and critic is not None else 0.0
    busy += setup.teachers * setup.teacher.tensor_parallel * score if setup.teacher is not None else 0.0
    return StepTime(
        generate_s=generate,
        teacher_s=score,
        train_s=train,
        critic_s=value,
        update_s=update,
        sync_s=sync,
        other_s=overhead_s(request),
        step_s=step,
        idle_share=max(0.0, 1 - busy / (request.total_gpus * step)),
        tokens_per_s=request.samples_per_step * request.mean_tokens / step,
        decode_bound=decode_bound,
        train_bound=train_bound,
    )
