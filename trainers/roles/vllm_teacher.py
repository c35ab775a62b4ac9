"""A teacher by vLLM: one prefill of prompt and response gives the log-probability of every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm import LLM, SamplingParams
from vllm.model_executor.layers.logits_processor import LogitsProcessor

from rltui.layout import schema
from trainers.data.columns import TeacherScores
from trainers.roles.vllm_engine import engine_arguments
from trainers.roles.vllm_images import VllmImages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.batch import Rows

WORKER_EXTENSION = f"{__name__}.WorkerExtension"

NEVER = -20.0
"""Log-probability of a placeholder in a response: no teacher says one, and vLLM cannot be asked for it."""

BATCHED_TOKENS = 1024
"""Tokens of one step: vLLM holds the logits of all of them, outside of the memory that it counts when it starts."""


class WorkerExtension:
    """Methods that vLLM adds to each of the teacher's workers."""

    def divide_logits(self, temperature: float) -> int:
        """Let the model divide its logits by ``temperature``; returns how many output layers were told.

        vLLM applies a request's temperature to the tokens it samples, never to those of a prompt, and a teacher
        scores prompts only.
        """
        model: torch.nn.Module = self.model_runner.get_model()  # type: ignore[attr-defined]
        heads = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
        for head in heads:
            head.scale = head.scale / temperature
        return len(heads)


class VllmScorer:
    """A teacher on ``tensor_parallel`` devices.

    Args:
        layout: The layout.
        role: The teacher's settings.
        model_path: Folder of the model.

    Raises:
        ValueError: The temperature is not 1, and vLLM's form of this model offers no place to apply it.
    """

    def __init__(self, layout: schema.Layout, role: schema.Teacher, model_path: str) -> None:
        on_cpu = not torch.cuda.is_available()
        self._images = VllmImages(model_path, layout.lengths) if layout.lengths.images else None
        arguments = teacher_arguments(layout, role, model_path, on_cpu=on_cpu)
        self._llm = LLM(**(arguments | ({} if self._images is None else self._images.arguments())))
        temperature = layout.train.temperature
        if temperature != 1.0 and not all(self._llm.collective_rpc("divide_logits", args=(temperature,))):
            raise ValueError(
                f"vLLM cannot score {model_path} at train.temperature={temperature:g}: set it to 1, or "
                "roles.teacher.engine=hf"
            )

    def score(self, rows: Rows, top_k: int) -> TeacherScores:
        """Score the response tokens of ``rows``; rows that only fill up are not looked at."""
        shape = rows.response_mask.shape
        log_probs = np.zeros(shape, np.float32)
        top_ids, top_log_probs = np.zeros((*shape, top_k), np.int32), np.zeros((*shape, top_k), np.float32)
        used = [row for row in range(len(rows)) if rows.response_mask[row].any()]
        requests = [self._request(rows, row) for row in used]
        # flat: a dict and an object for each token and candidate would take longer than the model
        parameters = SamplingParams(max_tokens=1, prompt_logprobs=top_k, detokenize=False, flat_logprobs=True)
        outputs = self._llm.generate(requests, parameters, use_tqdm=False)
        for row, output in zip(used, outputs, strict=True):
            count = int(rows.attention_mask[row, -shape[1] :].sum())
            ids, found = likeliest(output.prompt_logprobs, count, top_k)
            log_probs[row, :count] = found[:, 0]
            top_ids[row, :count], top_log_probs[row, :count] = ids[:, 1:], found[:, 1:]
            if self._images is not None:
                said = rows.token_ids[row][rows.attention_mask[row]].tolist()
                self._images.check([*said[:-1], output.prompt_token_ids[-1]], output.prompt_token_ids)
                if said[-1] == self._images.token_id:
                    log_probs[row, count - 1] = NEVER
        return TeacherScores(log_probs, top_ids, top_log_probs)

    def _request(self, rows: Rows, row: int) -> dict[str, Any]:
        """One row as a prompt of vLLM.

        A placeholder of images that the student sampled is its last token; vLLM would look for its image.
        """
        token_ids = rows.token_ids[row][rows.attention_mask[row]].tolist()
        if self._images is None:
            return {"prompt_token_ids": token_ids}
        if token_ids[-1] == self._images.token_id:
            token_ids[-1] = 0
        return self._images.request(token_ids, () if rows.images is None else rows.images[row])


def teacher_arguments(layout: schema.Layout, role: schema.Teacher, model_path: str, on_cpu: bool) -> dict[str, Any]:
    """Return the keyword arguments of ``vllm.LLM`` for a teacher."""
    rollout = schema.Rollout(
        tensor_parallel=role.tensor_parallel, memory_utilization=role.memory_utilization, precision=role.precision
    )
    arguments = engine_arguments(rollout, model_path, layout.lengths, on_cpu=on_cpu)
    del arguments["weight_transfer_config"]  # a teacher's weights stay as they are
    del arguments["disable_log_stats"]  # nobody asks what waits in a teacher: it is called with all it has to do
    return arguments | {
        "worker_extension_cls": WORKER_EXTENSION,
        # vLLM samples at least one token, and answers at most max_logprobs candidates a token
        "max_model_len": arguments["max_model_len"] + 1,
        "max_logprobs": max(20, layout.opd.top_k),
        "max_num_batched_tokens": max(BATCHED_TOKENS, layout.lengths.images),
        "enable_prefix_caching": False,  # prompts whose tokens are scored never read it
    }


def likeliest(found: Any, count: int, top_k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids and log-probabilities [count, 1 + top_k] of the last ``count`` tokens of a prompt, their own token first.

    Args:
        found: vLLM's ``FlatLogprobs``, which has the prompt's own token and then the likeliest ones, that one again
            where it is among them.
        count: Tokens of the response.
        top_k: Likeliest tokens asked for.
    """
    starts, width = np.asarray(found.start_indices[-count:]), 1 + top_k
    places = starts[:, None] + np.arange(width)
    return np.asarray(found.token_ids)[places], np.asarray(found.logprobs, np.float32)[places]
