"""Rollout by transformers: a batched sampling loop with a KV cache, for machines where vLLM cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM

from trainers.roles.engine import Completion, SamplingSettings
from trainers.weights import WeightReceiver, WeightTransferError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Rollout
    from trainers.weights import ParameterMeta, WeightGroup

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

MAX_SEQUENCES = 512
"""Sequences sampled at once; more prompts than fill this are sampled one batch after the other."""


class HfEngine:
    """An engine on one device: CUDA where there is one, else CPU.

    Args:
        rollout: The rollout role of the layout.
        model_path: Local folder or Hugging Face name of the initial weights.
        index: Number of this engine.

    Raises:
        ValueError: The layout asks for tensor parallelism.
    """

    def __init__(self, rollout: Rollout, model_path: str, index: int) -> None:
        if rollout.tensor_parallel != 1:
            raise ValueError(
                f"roles.rollout.engine=hf runs on one GPU, but tensor_parallel is {rollout.tensor_parallel}: "
                "set it to 1, or the engine to vllm"
            )
        self._index = index
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=DTYPES[rollout.precision])
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._receiver: WeightReceiver | None = None

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, weight_version: int
    ) -> list[Completion]:
        """Sample completions, all of the first prompt first."""
        generator = torch.Generator(self._device).manual_seed(sampling.seed)
        batch_prompts = max(1, MAX_SEQUENCES // sampling.samples_per_prompt)
        completions: list[Completion] = []
        for start in range(0, len(prompts), batch_prompts):
            batch = prompts[start : start + batch_prompts]
            token_ids, log_probs = self._sample(batch, sampling, generator)
            rows = zip(token_ids.tolist(), log_probs.tolist(), strict=True)
            for row, (tokens, values) in enumerate(rows):
                prompt_index = start + row // sampling.samples_per_prompt
                completions.append(_completion(prompt_index, tokens, values, sampling.stop_token_id, weight_version))
        return completions

    def join_weight_group(self, group: WeightGroup, rank_offset: int) -> None:
        """Join ``group`` as rank ``rank_offset``, leaving an earlier one."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = WeightReceiver(group, rank_offset, f"engine {self._index}")

    def receive_weights(self, manifest: Sequence[ParameterMeta], version: int) -> None:
        """Overwrite the model's parameters by the learner's, converting them to the engine's precision.

        Raises:
            WeightTransferError: The learner's parameters are not the model's, or did not come.
        """
        if self._receiver is None:
            raise RuntimeError(f"engine {self._index} has not joined a weight group")
        parameters = dict(self._model.named_parameters(remove_duplicate=False))
        for bucket in self._receiver.receive(manifest, version):
            for name, tensor in bucket:
                if name not in parameters or parameters[name].shape != tensor.shape:
                    raise WeightTransferError(
                        f"engine {self._index}: the model has no parameter {name!r} of shape {tuple(tensor.shape)}"
                    )
                parameters[name].copy_(tensor)
        # Tied parameters have several names; one of them is enough.
        received = {id(parameters[meta.name]) for meta in manifest}
        stale = [name for name, parameter in parameters.items() if id(parameter) not in received]
        if stale:
            raise WeightTransferError(f"engine {self._index}: version {version} lacks {', '.join(stale[:5])}")

    @torch.inference_mode()
    def _sample(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sampled tokens (int64) and their log-probabilities (float32), each [sequences, steps].

        Rows go on after their stop token; what follows it means nothing.
        """
        token_ids, mask, positions = left_pad(prompts, sampling.max_tokens)
        prompt_tokens = token_ids.shape[1]
        # Without padding no mask is needed, and attention takes its faster causal path.
        padded = not bool(mask.all())
        token_ids, mask, positions = (tensor.to(self._device) for tensor in (token_ids, mask, positions))
        output = self._forward(token_ids, mask[:, :prompt_tokens] if padded else None, positions, None)
        cache = output.past_key_values
        cache.batch_repeat_interleave(sampling.samples_per_prompt)
        logits, mask, positions = (
            tensor.repeat_interleave(sampling.samples_per_prompt, dim=0)
            for tensor in (output.logits, mask, positions[:, -1:])
        )
        sampled: list[torch.Tensor] = []
        log_probs: list[torch.Tensor] = []
        done = torch.zeros(len(logits), 1, dtype=torch.bool, device=self._device)
        for step in range(1, sampling.max_tokens + 1):
            all_log_probs = torch.log_softmax(logits[:, -1].float() / sampling.temperature, dim=-1)
            token = torch.multinomial(all_log_probs.exp(), 1, generator=generator)
            sampled.append(token)
            log_probs.append(all_log_probs.gather(1, token))
            done |= token == sampling.stop_token_id
            if step == sampling.max_tokens or bool(done.all()):
                break
            seen = mask[:, : prompt_tokens + step] if padded else None
            output = self._forward(token, seen, positions + step, cache)
            logits = output.logits
        return torch.cat(sampled, dim=1), torch.cat(log_probs, dim=1)

    def _forward(self, token_ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> Any:
        return self._model(
            input_ids=token_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )


def left_pad(prompts: Sequence[Sequence[int]], room_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Right-align ``prompts`` of any lengths, so that all of them continue in the same column.

    Args:
        prompts: Token ids, at least one each; P prompts, the longest of T tokens.
        room_tokens: Tokens that will be appended; the mask covers them already.

    Returns:
        Token ids [P, T] (padding is 0), mask [P, T + room_tokens] (0 at padding), and positions [P, T], which count
        from each prompt's first token (0 at padding); all int64.
    """
    longest = max(len(prompt) for prompt in prompts)
    token_ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.ones(len(prompts), longest + room_tokens, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        token_ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, : longest - len(prompt)] = 0
    positions = (mask[:, :longest].cumsum(dim=1) - 1).clamp(min=0)
    return token_ids, mask, positions


def _completion(
    prompt_index: int, tokens: list[int], log_probs: list[float], stop_token_id: int, weight_version: int
) -> Completion:
    """Cut a row of samples after its stop token."""
    stopped = stop_token_id in tokens
    length = tokens.index(stop_token_id) + 1 if stopped else len(tokens)
    return Completion(
        prompt_index=prompt_index,
        token_ids=tuple(tokens[:length]),
        log_probs=tuple(log_probs[:length]),
        finish_reason="stop" if stopped else "length",
        weight_version=weight_version,
    )
