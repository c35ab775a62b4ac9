"""vLLM's side of a weight transfer: a backend for its weight-transfer API, in the worker processes.

vLLM's own backends need CUDA on both sides and vLLM in the learner, and wait without a deadline. This one receives
from ``trainers.weights``, the same way for all engines, over gloo or NCCL.

Workers that vLLM starts for tensor parallelism import this module, and so know the backend, because
``WORKER_EXTENSION`` names a class in it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from trainers.weights import ParameterMeta, WeightGroup, WeightReceiver, WeightTransferError

BACKEND = "rltui"
WORKER_EXTENSION = f"{__name__}.WorkerExtension"


class WorkerExtension:
    """What our side can ask vLLM's workers; and the reason for them to import this module."""

    weight_transfer_engine: BroadcastWeightTransfer

    def transfer_failure(self) -> str:
        """Why the last transfer failed in this worker, see ``BroadcastWeightTransfer.failure``."""
        return self.weight_transfer_engine.failure


@dataclass
class InitInfo(WeightTransferInitInfo):
    """What each worker needs to join: ``group`` is a ``WeightGroup`` as a dict, so that it can be serialised."""

    group: dict[str, Any]
    rank_offset: int
    owner: str


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """What each worker needs to receive: ``manifest`` holds the fields of each ``ParameterMeta``."""

    manifest: list[tuple[str, str, list[int]]]
    version: int


class BroadcastWeightTransfer(WeightTransferEngine):
    """Receives full parameters and lets vLLM cut this worker's shard out of them, layer by layer.

    What goes wrong is kept for who asks, and not raised: where several workers raise, vLLM reads the first one's answer
    and takes the next one's for that to a later call.

    Attributes:
        failure: What went wrong when it last joined a group or received weights; empty: nothing.
    """

    failure = ""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    _receiver: WeightReceiver | None = None
    _stale: frozenset[str] = frozenset()

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Join the group, leaving an earlier one."""
        self.shutdown()
        rank = init_info.rank_offset + self.parallel_config.rank
        with self._keeping_failures():
            self._receiver = WeightReceiver(WeightGroup(**init_info.group), rank, init_info.owner)

    def start_weight_update(self) -> None:
        """Prepare the model for weights in the format of a checkpoint.

        What vLLM makes of them by itself comes in no transfer, such as the scales of weights that it quantizes.
        """
        used = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)
        self._stale = frozenset(used.intersection(name for name, _ in self.model.named_parameters()))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive and load all parameters of one version.

        Replaces the base class's, which synchronises an accelerator that a CPU machine does not have.
        """
        with self._keeping_failures():
            self.receive_weights(self.parse_update_info(update_info))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Receive and load all parameters of one version.

        Raises:
            WeightTransferError: They did not come, or not as announced, or some of the model's were not among them.
        """
        if self._receiver is None:
            raise RuntimeError("this vLLM worker has not joined a weight group")
        manifest = [ParameterMeta(name, dtype, tuple(shape)) for name, dtype, shape in update_info.manifest]
        for bucket in self._receiver.receive(manifest, update_info.version):
            # it answers with the names of vLLM's own parameters, such as qkv_proj where q, k and v came
            self._stale -= self.model.load_weights(bucket)
        if self._stale:
            # vLLM would go on with their old values.
            raise WeightTransferError(
                f"version {update_info.version} lacks {', '.join(sorted(self._stale)[:5])}: "
                "the learner's manifest is not that of the engine's model"
            )

    def finish_weight_update(self) -> None:
        """Put the loaded weights into use; after a failure too, so that the next transfer can replace what is wrong."""
        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            repack_output_heads(self.model)

    @contextlib.contextmanager
    def _keeping_failures(self) -> Iterator[None]:
        self.failure = ""
        try:
            yield
        except Exception as error:
            logging.getLogger(__name__).exception("the weight transfer failed")
            self.failure = str(error) or repr(error)

    def shutdown(self) -> None:
        """Leave the weights' process group, as vLLM ends."""
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None


def repack_output_heads(model: torch.nn.Module) -> None:
    """Pack the output head's weights for the CPU kernel again.

    A head that is tied to the embedding loads no weight of its own, so vLLM's reload leaves its packed copy as it was
    and goes on sampling from the old head, without an error.
    """
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


# to register a name twice is an error, and vLLM's workers may import this a second time
if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, BroadcastWeightTransfer)
