"""The learner: one rank of the policy, as a Ray actor class."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from trainers.data.tensors import row_tensors
from trainers.roles.deepspeed_rank import DeepSpeedRank, patience
from trainers.roles.meter import METER, measured
from trainers.roles.step_report import StepReport, StepSums
from trainers.roles.zero import TORCH_DTYPES, exported_shapes, full_parameters

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from rltui.layout import schema
    from rltui.layout.schema import Layout
    from rltui.layout.settings import Train
    from trainers.data.batch import MiniBatch, Rows, Shard
    from trainers.data.images import ImageReader
    from trainers.data.tensors import RowTensors
    from trainers.objectives import Objective
    from trainers.roles.forward import Scores
    from trainers.roles.router_replay import Routers
    from trainers.roles.sequence_group import SequenceGroup
    from trainers.weights import ParameterMeta, WeightGroup, WeightSender


class Learner(DeepSpeedRank):
    """One rank of the policy: data-parallel, or one of several that share their rows' tokens."""

    tag = "deepspeed"

    def __init__(self, layout: Layout, rank: int, model_path: str) -> None:
        super().__init__(layout, rank, model_path)
        self._objective: Objective
        self._entropy_gradient = False
        self._reader: ImageReader | None = None
        self._sender: WeightSender | None = None
        self._sequence: SequenceGroup | None = None
        self._routers: Routers | None = None

    @property
    def _role(self) -> schema.Learner:
        return self._layout.roles.learner

    @property
    def _world(self) -> int:
        return self._layout.slots_of("learner")

    @property
    def _train(self) -> Train:
        idle = self._layout.ppo.critic_warmup_steps if self._layout.algorithm == "ppo" else 0
        train = self._layout.train
        return structs.replace(train, steps=max(1, train.steps - idle)) if idle else train

    @property
    def _learning_rate(self) -> float:
        return self._layout.train.learning_rate

    def _model(self, dtype: Any) -> Any:
        from trainers.data.images import image_reader
        from trainers.objectives import objective
        from trainers.roles.attention import attention_for
        from trainers.roles.vision import freeze_vision, model_class

        self._objective = objective(self._layout)
        self._entropy_gradient = self._layout.entropy_coefficient > 0
        self._reader = image_reader(self._layout, self._model_path)
        attention = attention_for(self._role.precision, self._layout.lengths.pack)
        model = model_class(self._model_path).from_pretrained(
            self._model_path, dtype=dtype, attn_implementation=attention
        )
        if self._role.lora_rank:
            from trainers.roles.lora import with_adapters

            model = with_adapters(model, self._role, self._layout.train.seed)
        if self._role.freeze_vision:
            freeze_vision(model)  # with its adapters, where it has any
        if self._layout.roles.rollout.router_replay:
            from trainers.roles.router_replay import Routers

            self._routers = Routers(model)
        return model

    @property
    def _has_frozen_base(self) -> bool:
        return self._role.lora_rank > 0

    def _probe(self, rows: RowTensors) -> torch.Tensor:
        return self._scores(rows).log_probs

    def _prepare_rows(self, *, is_packed: bool) -> None:
        size = self._role.sequence_parallel
        # Ulysses wraps the attention over packed rows, so that comes first, with its proof
        super()._prepare_rows(is_packed=is_packed or size > 1)
        if size == 1:
            return
        from trainers.roles.sequence_group import sequence_group
        from trainers.roles.sequence_parallel import share_attention

        def score(rows: RowTensors, group: SequenceGroup | None) -> torch.Tensor:
            return self._probe(replace(rows, sequence=group))

        group = sequence_group(self._rank, self._world, size, patience(self._layout))
        share_attention(self._engine.module, group, score, self._engine.device)
        self._sequence = group

    @measured("log-probs")
    def log_probs(self, rows: Rows) -> NDArray[np.float32]:
        """Log-probabilities [B, R] of the response tokens of ``rows`` under the weights of this moment.

        All ranks must be called with as many rows, because a forward pass of ZeRO-3 is a collective.
        """
        from trainers.roles.forward import measure_log_probs

        return measure_log_probs(self._scores, rows, self._role.micro_batch, self._engine.device, self._reader)

    def train(self, shard: Shard) -> StepReport:
        """Make one optimizer step for each of this rank's mini-batches; all ranks must have as many rows.

        Ranks that share their rows' tokens get, and report, the same. Rows without signal are only measured. Without
        any rows to train on, no step is made.
        """
        import torch

        # wall-clock time, because reports of ranks on several nodes are held against each other
        began = time.time()
        sums = StepSums()
        # asked before the steps: after one, the scheduler has moved on to the next one's
        learning_rate = self._engine.get_lr()[0]
        with torch.no_grad(), METER.moment("log-probs"):
            for part in shard.measured.micro_batches(self._layout.roles.learner.micro_batch):
                rows = row_tensors(part, self._engine.device, self._reader)
                sums.measure(rows, self._scores(rows))
        for number, batch in enumerate(shard.trained):
            self._accumulate(batch, sums, is_first=number == 0)
            sums.step(self.step())
        return sums.report(
            learning_rate=learning_rate, began_at=began, memory_gib=self.memory_gib(), loss_scale=self.loss_scale
        )

    @measured("backward")
    def _accumulate(self, batch: MiniBatch, sums: StepSums, is_first: bool) -> None:
        """Add up one optimizer step's gradients; only before the first of a step are trainer and engine one policy."""
        for part in batch.rows.micro_batches(self._layout.roles.learner.micro_batch):
            rows = row_tensors(part, self._engine.device, self._reader)
            scores = self._scores(rows)
            result = self._objective(scores, rows, batch.denominator)
            # DeepSpeed averages gradients over ranks, and the denominator is already that of the whole batch.
            self._engine.backward(result.loss * self._world)
            if is_first:
                sums.measure(rows, scores)
            sums.train(rows, result)

    def _scores(self, rows: RowTensors) -> Scores:
        """What the policy says of the response columns of ``rows``, and of the tokens that a teacher finds likely."""
        from trainers.data.batch import TEACHER_TOP_IDS
        from trainers.roles.forward import response_scores

        if self._sequence:
            rows = replace(rows, sequence=self._sequence)
        if self._routers:
            from trainers.roles.model_inputs import response_routes

            self._routers.replay(response_routes(rows))
        return response_scores(
            self._engine,
            rows,
            self._layout.train.temperature,
            rows.columns.get(TEACHER_TOP_IDS),
            chunked=self._role.chunked_logits,
            entropy_gradient=self._entropy_gradient,
        )

    def manifest(self) -> list[ParameterMeta]:
        """What engines must know of the weights before they come: names, the engine's dtype, full shapes."""
        from trainers.weights import ParameterMeta

        dtype = TORCH_DTYPES[self._layout.roles.rollout.precision]
        return [ParameterMeta(name, dtype, shape) for name, shape in exported_shapes(self._engine.module).items()]

    def join_weight_group(self, group: WeightGroup, timeout_s: float) -> str:
        """Open the sending end of the weight transfer, leaving an earlier one; in words, how weights travel."""
        from trainers.weights import WeightSender

        if self._sender is not None:
            self._sender.close()
        self._sender = WeightSender(group, timeout_s)
        return self._sender.route

    @measured("weight sync")
    def send_weights(self, version: int) -> int:
        """Send all parameters to the engines; the bytes. Ranks without an engine only take part in ZeRO-3's gathers."""
        import torch

        # cast here and not by the engine: half the bytes travel where learners keep float32
        dtype = getattr(torch, TORCH_DTYPES[self._layout.roles.rollout.precision])
        parameters = full_parameters(self._engine.module, at_once=self._role.gather_whole_model)
        if self._sender is not None:
            try:
                return self._sender.send(((name, tensor.to(dtype)) for name, tensor in parameters), version)
            finally:
                _exhaust(parameters)  # where an engine died, the other ranks still wait for this one in the gathers
        if self._layout.roles.learner.zero_stage == 3:
            _exhaust(parameters)
        return 0


def _exhaust(parameters: Iterator[tuple[str, Any]]) -> None:
    for _ in parameters:
        pass
