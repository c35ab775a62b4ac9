"""The critic: one rank of the value model of PPO, as a Ray actor class."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainers.data.tensors import row_tensors
from trainers.roles.deepspeed_rank import DeepSpeedRank
from trainers.roles.meter import measured
from trainers.roles.step_report import RankReport, worst

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from rltui.layout import schema
    from trainers.data.batch import MiniBatch, Rows, Shard
    from trainers.data.tensors import RowTensors


class Critic(DeepSpeedRank):
    """One data-parallel rank of the critic: the policy's architecture with one output a token instead of logits."""

    tag = "critic"

    @property
    def _role(self) -> schema.Critic:
        critic = self._layout.roles.critic
        assert critic is not None
        return critic

    @property
    def _world(self) -> int:
        return self._layout.slots_of("critic")

    @property
    def _learning_rate(self) -> float:
        return self._role.learning_rate

    def _model(self, dtype: Any) -> Any:
        from transformers import AutoConfig, AutoModelForTokenClassification

        from trainers.roles.attention import attention_for

        config = AutoConfig.from_pretrained(self._model_path, num_labels=1)
        config.classifier_dropout = 0.0  # its default drops a tenth of what the head sees
        # the head of values is not in a policy's folder and drawn by each rank; DeepSpeed broadcasts rank 0's
        return AutoModelForTokenClassification.from_pretrained(
            self._model_path,
            config=config,
            dtype=dtype,
            attn_implementation=attention_for(self._role.precision, self._layout.lengths.pack),
        )

    def _probe(self, rows: RowTensors) -> torch.Tensor:
        return self._values(rows)

    @measured("log-probs")
    def values(self, rows: Rows) -> NDArray[np.float32]:
        """Values [B, R] of the states in which the response tokens of ``rows`` were chosen.

        All ranks must be called with as many rows, because a forward pass of ZeRO-3 is a collective.
        """
        import numpy as np
        import torch

        from trainers.data.batch import stack

        parts = rows.micro_batches(self._role.micro_batch)
        with torch.no_grad():
            found = [self._values(row_tensors(part, self._engine.device)).float().cpu().numpy() for part in parts]
        shape = rows.response_mask.shape
        return stack(found, shape[1]) if found else np.zeros(shape, np.float32)

    def train(self, shard: Shard) -> RankReport:
        """Make one optimizer step for each of this rank's mini-batches; all ranks must have as many rows."""
        began, losses, tokens, clipped = time.time(), 0.0, 0, 0
        norms: list[float | None] = []
        for batch in shard.trained:
            loss, too_far, count = self._backward(batch)
            losses, clipped, tokens = losses + loss, clipped + too_far, tokens + count
            norms.append(self.step())
        return RankReport(
            loss=losses / max(1, len(norms)),
            # NaN where one is, which max may overlook
            grad_norm=worst(norm for norm in norms if norm is not None),
            tokens=tokens,
            clipped_tokens=clipped,
            overflow_steps=norms.count(None),
            loss_scale=self.loss_scale,
            began_at=began,
            ended_at=time.time(),
            memory_gib=self.memory_gib(),
        )

    @measured("backward")
    def _backward(self, batch: MiniBatch) -> tuple[float, int, int]:
        """Add up the gradients of one optimizer step; its loss, and the clipped and all tokens."""
        from trainers.data.batch import RETURNS, VALUES
        from trainers.losses import value_loss

        loss, clipped, tokens = 0.0, 0, 0
        for part in batch.rows.micro_batches(self._role.micro_batch):
            rows = row_tensors(part, self._engine.device)
            result = value_loss(
                self._values(rows),
                rows.columns[VALUES],
                rows.columns[RETURNS],
                rows.response_mask,
                value_clip=self._layout.ppo.value_clip,
                denominator=batch.denominator,
            )
            # DeepSpeed averages gradients over ranks, and the denominator is already that of the whole batch.
            self._engine.backward(result.loss * self._world)
            loss += float(result.loss.detach())
            clipped += int(result.clipped_tokens)
            tokens += int(rows.response_mask.sum())
        return loss, clipped, tokens

    def _values(self, rows: RowTensors) -> torch.Tensor:
        """Values [B, R] of the response tokens under the weights of this moment."""
        from trainers.roles.model_inputs import response_values

        return response_values(self._engine, rows)
