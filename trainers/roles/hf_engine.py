"""Rollout by transformers: a batched sampling loop with a KV cache, for machines where vLLM cannot run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainers.data.images import ImageReader
from trainers.data.prompts import images_of, tokens_of
from trainers.data.stops import Stops
from trainers.roles.card import release_card
from trainers.roles.completions import Completion, Streamed, derive_seed
from trainers.roles.router_replay import Recording, Routers
from trainers.roles.vision import model_class
from trainers.weights import WeightReceiver, WeightTransferError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rltui.layout.schema import Lengths, Rollout
    from trainers.data.prompts import EnginePrompt
    from trainers.roles.completions import Part, Request
    from trainers.roles.sampling import SamplingSettings
    from trainers.weights import ParameterMeta, WeightGroup

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

MAX_SEQUENCES = 512
"""Sequences sampled at once, unless the layout says otherwise; what is more is sampled one batch after the other."""


class HfEngine:
    """An engine on one device: CUDA where there is one, else CPU.

    Args:
        rollout: The rollout role of the layout.
        model_path: Local folder or Hugging Face name of the initial weights.
        lengths: Token limits of the layout, which say whether prompts have images.
        index: Number of this engine.

    Raises:
        ValueError: The layout asks for tensor parallelism, or passes arguments on to vLLM.
    """

    def __init__(self, rollout: Rollout, model_path: str, lengths: Lengths, index: int) -> None:
        if rollout.tensor_parallel != 1:
            raise ValueError(
                f"roles.rollout.engine=hf runs on one GPU, but tensor_parallel is {rollout.tensor_parallel}: "
                "set it to 1, or the engine to vllm"
            )
        if rollout.engine_args:
            raise ValueError("roles.rollout.engine_args are vLLM's arguments, but roles.rollout.engine=hf")
        self._index, self._model_path = index, model_path
        self._limit = rollout.max_concurrency or MAX_SEQUENCES
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = model_class(model_path).from_pretrained(model_path, dtype=DTYPES[rollout.precision])
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._routers = Routers(model) if rollout.router_replay else None
        self._recording: Recording | None = None
        self._receiver: WeightReceiver | None = None
        self._waiting: list[Request] = []
        self._reader = ImageReader(model_path, lengths.images) if lengths.images else None

    def stream(
        self,
        requests: Sequence[Request],
        low: int,  # noqa: ARG002
        weight_version: Callable[[], int],
    ) -> Streamed:
        """Sample as many of the prompts under way as it can work on at once, to the end of the longest."""
        self._waiting += requests
        if not self._waiting:
            return Streamed()
        first = self._waiting[0].sampling
        alike = [request for request in self._waiting if _are_alike(request.sampling, first)]
        taken = alike[: max(1, self._limit // first.samples_per_prompt)]
        began = time.monotonic()
        groups, steps = self._generate(taken, weight_version)
        span_s = time.monotonic() - began
        keys = {request.key for request in taken}
        self._waiting = [request for request in self._waiting if request.key not in keys]
        tokens = sum(len(one.token_ids) for group in groups for one in group)
        answers = {request.key: group for request, group in zip(taken, groups, strict=True)}
        left = sum(request.sampling.samples_per_prompt for request in self._waiting)
        return Streamed(answers, left, busy_slot_s=span_s * tokens / max(1, steps), span_s=span_s)

    def abandon(self) -> None:
        """Forget what is under way."""
        self._waiting = []

    def _generate(
        self, requests: Sequence[Request], weight_version: Callable[[], int]
    ) -> tuple[list[list[Completion]], int]:
        """The samples of each of some prompts that are sampled alike; and steps of decoding that they took."""
        limits = [request.sampling.max_tokens for request in requests]
        sampling, prompts = replace(requests[0].sampling, max_tokens=max(limits)), [one.prompt for one in requests]
        stops, cut = self._stops(sampling)
        groups: list[list[Completion]] = [[] for _ in requests]
        steps = 0
        for start, stop, samples in batches(len(prompts), sampling.samples_per_prompt, self._limit):
            part = replace(sampling, samples_per_prompt=samples)
            numbered = [
                (index, len(groups[index]) + number) for index in range(start, stop) for number in range(samples)
            ]
            seeds = [derive_seed(requests[index].sampling.seed, number) for index, number in numbered]
            rooms = [limits[index] for index, _ in numbered]
            given = [requests[index].sampling.forced for index, _ in numbered]
            recording = self._recording = Recording(self._routers, samples) if self._routers else None
            token_ids, log_probs, versions = self._sample(
                prompts[start:stop], part, seeds, rooms, cut, weight_version, forced_tokens(given)
            )
            steps += token_ids.shape[1]
            rows = zip(numbered, token_ids.tolist(), log_probs.tolist(), strict=True)
            for row, ((index, _), tokens, values) in enumerate(rows):
                length = min(cut.length(tokens), limits[index])
                groups[index].append(
                    Completion(
                        prompt_index=index,
                        token_ids=tuple(tokens[:length]),
                        log_probs=tuple(values[:length]),
                        finish_reason="stop" if stops.ends(tokens[:length]) else "length",
                        weight_version=versions[0],
                        newest_version=versions[length - 1],
                        routes=recording.of(row, len(tokens_of(prompts[index])), length) if recording else None,
                    )
                )
        return groups, steps

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
                # in place: tied weights, and whatever else holds the parameter, see the new values
                parameters[name].copy_(tensor)
        # Tied parameters have several names; one of them is enough.
        received = {id(parameters[meta.name]) for meta in manifest}
        stale = [name for name, parameter in parameters.items() if id(parameter) not in received]
        if stale:
            raise WeightTransferError(f"engine {self._index}: version {version} lacks {', '.join(stale[:5])}")

    def sleep(self) -> None:
        """Move the model to host memory, and give back what torch keeps of the card."""
        self._model.to("cpu")
        release_card()

    def wake(self, part: Part) -> None:
        """Move the model back with its weights; there is a cache only while it samples."""
        if part == "weights":
            self._model.to(self._device)

    @torch.inference_mode()
    def _sample(
        self,
        prompts: Sequence[EnginePrompt],
        sampling: SamplingSettings,
        seeds: Sequence[int],
        limits: Sequence[int],
        stops: Stops,
        version: Callable[[], int],
        forced: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Return sampled tokens (int64), their log-probabilities (float32), each [sequences, steps], and the versions.

        Rows go on after their stop token or limit; what follows means nothing. Where weights change on the way, the
        cache of what was read before stays as it is (PipelineRL, Piché et al. 2025): log-probabilities are still those
        of the distribution that was sampled from.
        """
        token_ids, mask, positions = left_pad([tokens_of(prompt) for prompt in prompts], sampling.max_tokens)
        prompt_tokens = token_ids.shape[1]
        # Without padding no mask is needed, and attention takes its faster causal path.
        padded = not bool(mask.all())
        token_ids, mask, positions = (tensor.to(self._device) for tensor in (token_ids, mask, positions))
        last = positions[:, -1:]
        images: dict[str, torch.Tensor] = {}
        if any(images_of(prompt) for prompt in prompts):
            images, positions, shift = self._images(prompts, token_ids, mask[:, :prompt_tokens])
            last = last + shift
        versions = [version()]
        output = self._forward(token_ids, mask[:, :prompt_tokens] if padded else None, positions, None, **images)
        cache = output.past_key_values
        cache.batch_repeat_interleave(sampling.samples_per_prompt)
        logits, mask, last = (
            tensor.repeat_interleave(sampling.samples_per_prompt, dim=0) for tensor in (output.logits, mask, last)
        )
        sampled: list[torch.Tensor] = []
        log_probs: list[torch.Tensor] = []
        ends = torch.tensor(stops.token_ids, dtype=torch.int64, device=self._device)
        done = torch.zeros(len(logits), 1, dtype=torch.bool, device=self._device)
        rooms = torch.tensor(limits, device=self._device).unsqueeze(-1)
        for step in range(1, sampling.max_tokens + 1):
            all_log_probs = torch.log_softmax(logits[:, -1].float() / (sampling.temperature or 1.0), dim=-1)
            if sampling.is_greedy:
                token = all_log_probs.argmax(dim=-1, keepdim=True)
            else:
                if sampling.is_truncated:
                    all_log_probs = truncated(all_log_probs, sampling)
                token = drawn(all_log_probs, uniform(seeds, step))
            if forced is not None:
                token = forced[:, step - 1 : step].to(self._device)
            sampled.append(token)
            log_probs.append(all_log_probs.gather(1, token))
            done |= torch.isin(token, ends) | (rooms <= step)
            if stops.has_texts:
                self._end_texts(stops, sampled, done)
            if step == sampling.max_tokens or bool(done.all()):
                break
            seen = mask[:, : prompt_tokens + step] if padded else None
            versions.append(version())
            output = self._forward(token, seen, last + rooms.clamp(max=step), cache)
            logits = output.logits
        return torch.cat(sampled, dim=1), torch.cat(log_probs, dim=1), versions

    def _images(
        self, prompts: Sequence[EnginePrompt], token_ids: torch.Tensor, mask: torch.Tensor
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        """The model's inputs for the images of left-padded ``prompts`` [P, T], and positions that heed them.

        Returns:
            The inputs; positions [3, P, T] in time, height and width; and [P, 1], how far the positions after a prompt
            are from counting its tokens: an image takes fewer positions than it has tokens.
        """
        if self._reader is None:
            raise ValueError("there are images in a run whose layout has none: set lengths.images")
        kinds = (token_ids == self._reader.token_id).long()
        patches, grids = self._reader.features([image for prompt in prompts for image in images_of(prompt)])
        inputs = {
            "pixel_values": torch.from_numpy(patches).to(self._device),
            "image_grid_thw": torch.from_numpy(grids).to(self._device),
        }
        found = self._model.model.get_rope_index(
            token_ids, kinds, image_grid_thw=inputs["image_grid_thw"], attention_mask=mask
        )
        return inputs, *found

    def _stops(self, sampling: SamplingSettings) -> tuple[Stops, Stops]:
        """What ends an answer; and what it is cut at, which is also a placeholder of images: no model can read on."""
        placeholder = () if self._reader is None else (self._reader.token_id,)
        texts, path = sampling.stop_texts, self._model_path
        return (
            Stops(sampling.stop_token_ids, texts, path),
            Stops((*sampling.stop_token_ids, *placeholder), texts, path),
        )

    @staticmethod
    def _end_texts(stops: Stops, sampled: list[torch.Tensor], done: torch.Tensor) -> None:
        """Set ``done`` [sequences, 1] where the last of the ``sampled`` tokens ended a sequence."""
        running = (~done[:, 0]).nonzero()[:, 0].tolist()
        tail = torch.cat(sampled[-stops.tail_tokens :], dim=1)[running].tolist()
        for row, tokens in zip(running, tail, strict=True):
            done[row] = stops.ends(tokens)

    def _forward(
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
        cache: Any,
        **images: torch.Tensor,
    ) -> Any:
        found = self._model(
            input_ids=token_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **images,
        )
        if self._recording:
            self._recording.note(len(token_ids))
        return found


def _are_alike(one: SamplingSettings, other: SamplingSettings) -> bool:
    """Whether samples of both can share a batch: they differ in nothing but seeds, limits and given tokens."""
    is_alike = replace(one, seed=0, max_tokens=1, forced=()) == replace(other, seed=0, max_tokens=1, forced=())
    return is_alike and bool(one.forced) == bool(other.forced)


def forced_tokens(given: Sequence[Sequence[int]]) -> torch.Tensor | None:
    """The tokens [sequences, steps] that completions consist of, padded at their ends; None where they are drawn."""
    if not any(given):
        return None
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(tokens) for tokens in given], batch_first=True)


def uniform(seeds: Sequence[int], step: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each sequence at a decoding step, by its seed alone: SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        state = np.asarray(seeds, np.uint64) + np.uint64(step) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    # 53 bits, as many as a double's mantissa has: more would round up to 1.0 now and then
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def drawn(log_probs: torch.Tensor, numbers: NDArray[np.float64]) -> torch.Tensor:
    """A token [B, 1] for each row of ``log_probs`` [B, V], by the inverse of its distribution at ``numbers`` [B]."""
    # not torch.multinomial: what it draws for a row depends on the rows before it
    # float64: near 1 a float32 sum moves in steps of 6e-8, and less likely tokens would never be drawn
    sums = log_probs.double().exp().cumsum(dim=-1)
    at = torch.from_numpy(numbers).to(sums.device).unsqueeze(-1) * sums[:, -1:]
    # right: a token of probability 0 must not be drawn where the number equals the sum before it
    return torch.searchsorted(sums, at, right=True).clamp(max=log_probs.shape[-1] - 1)


def truncated(log_probs: torch.Tensor, sampling: SamplingSettings) -> torch.Tensor:
    """``log_probs`` [B, V] of the tokens that may be drawn, adding up to 1 again; -inf for all others.

    In vLLM's order: ``min_p``, ``top_k``, then ``top_p`` of what these two leave (Holtzman et al. 2020). Of tokens as
    likely as the last that is kept by ``top_k``, all are kept.
    """
    never = float("-inf")
    kept = log_probs
    if sampling.min_p:
        kept = kept.masked_fill(kept < kept.amax(dim=-1, keepdim=True) + math.log(sampling.min_p), never)
    if 0 < sampling.top_k < kept.shape[-1]:
        kept = kept.masked_fill(kept < kept.topk(sampling.top_k, dim=-1).values[:, -1:], never)
    if sampling.top_p < 1:
        ordered, places = kept.sort(dim=-1)
        # least likely first: the token with which the others reach top_p stays
        unlikely = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        # as vLLM has it: one token is always left
        unlikely[:, -1] = False
        kept = kept.scatter(-1, places, ordered.masked_fill(unlikely, never))
    return kept.log_softmax(dim=-1)


def batches(num_prompts: int, samples_per_prompt: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Cut a call into batches of at most ``limit`` sequences: first prompt, end of the prompts, samples of each."""
    prompts = max(1, limit // samples_per_prompt)
    for start in range(0, num_prompts, prompts):
        for done in range(0, samples_per_prompt, limit):
            yield start, min(start + prompts, num_prompts), min(limit, samples_per_prompt - done)


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
    token_ids = np.zeros((len(prompts), longest), np.int64)
    mask = np.ones((len(prompts), longest + room_tokens), np.int64)
    for row, prompt in enumerate(prompts):
        token_ids[row, longest - len(prompt) :] = prompt
        mask[row, : longest - len(prompt)] = 0
    positions = (mask[:, :longest].cumsum(axis=1) - 1).clip(min=0)
    return torch.from_numpy(token_ids), torch.from_numpy(mask), torch.from_numpy(positions)
