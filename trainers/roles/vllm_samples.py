"""The samples that a vLLM engine has under way, which go on where new weights come in the midst of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from trainers.data.prompts import tokens_of
from trainers.roles.completions import Completion, Streamed, derive_seed
from trainers.roles.vllm_counters import VllmCounters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.stops import Stops
    from trainers.roles.completions import Request

STREAM_S = 0.25
"""A call returns after so long at the latest, for the prompts that came meanwhile."""


class VllmSamples:
    """Samples of prompts that are under way, each a request of its own.

    Args:
        engine: vLLM's ``LLMEngine``, which has nothing else to do.
        slots: Samples that it works on at once; the others wait in it.
        placeholder: Tokens that cut a sample: no model can read on.
        check: Called with a prompt's tokens and those that vLLM read, where it may read others.
        counters: What ``engine`` records into, if anything is to be told of it.
    """

    def __init__(
        self,
        engine: Any,
        slots: int,
        placeholder: Sequence[int] = (),
        check: Callable[[Sequence[int], Sequence[int]], None] | None = None,
        counters: VllmCounters | None = None,
    ) -> None:
        self._engine, self._slots, self._placeholder, self._check = engine, slots, placeholder, check
        self._counters = counters or VllmCounters()
        self._groups: dict[int, list[Sample]] = {}
        self._running: dict[str, Sample] = {}
        self._version = 0

    @property
    def are_under_way(self) -> bool:
        """Whether any sample has not come to its end."""
        return bool(self._running)

    def add(self, request: Request, prompt: dict[str, Any], stops: Stops, salt: str) -> None:
        """Take in the samples of one more prompt.

        Args:
            request: What is asked.
            prompt: vLLM's form of its prompt.
            stops: What ends a sample.
            salt: Of the weights that are there, see ``renew``.
        """
        numbers = range(request.sampling.samples_per_prompt)
        self._groups[request.key] = [Sample(request, number, prompt, stops) for number in numbers]
        self._begin(self._groups[request.key], salt)

    def run(self, low: int, give_way: Callable[[], int]) -> Streamed:
        """Sample until some is done; see ``trainers.roles.engine.Engine.stream``.

        Args:
            low: Samples under way at which it returns, 0: when any prompt is done.
            give_way: Called before each step of the engine; new weights may come while it lasts. Returns the version of
                those that are there then.
        """
        found, ends_at = Streamed(), time.monotonic() + STREAM_S
        while self._running:
            self._version = give_way()
            began, present = time.monotonic(), len(self._running)
            self.step()
            now = time.monotonic()
            # in a step that frees slots, those that wait for one may not be told of as waiting any more
            waits = min(present, max(0, present - self._slots, self._counters.waiting))
            found.span_s += now - began
            found.busy_slot_s += (present - waits) * (now - began)
            found.waited_s += waits * (now - began)
            found.cache_share = max(found.cache_share, self._counters.cache_share)
            enough = len(self._running) <= low if low else any(self._are_done(key) for key in self._groups)
            if enough or now >= ends_at:
                break
        for key in [key for key in self._groups if self._are_done(key)]:
            found.answers[key] = [sample.completion() for sample in self._groups.pop(key)]
        found.left, found.preempted = len(self._running), self._counters.take_preempted()
        return found

    def step(self) -> None:
        """Let the engine make one step, and keep what it sampled."""
        for output in self._engine.step():
            sample = self._running.get(output.request_id)
            if sample is None:
                continue  # it was ended by a text while vLLM computed one more token
            ended = sample.take(output, self._version)
            if ended and not output.finished:
                self._engine.abort_request([sample.name])
            if ended or output.finished:
                del self._running[sample.name]
                if self._check is not None:
                    self._check(tokens_of(sample.request.prompt), output.prompt_token_ids)

    def renew(self, salt: str) -> None:
        """Begin anew what has no token yet, since other weights came: the old may have read parts of its prompt.

        What has tokens goes on. Its KV cache stays that of the old weights, and is in nobody else's way: vLLM lets
        requests share blocks of equal tokens only where their salts are equal.

        Args:
            salt: Names the weights that came; no other weights of this engine had it.
        """
        untold = [sample for sample in self._running.values() if not sample.token_ids]
        self._engine.abort_request([sample.name for sample in untold])
        self._begin(untold, salt)

    def abandon(self) -> None:
        """Have vLLM give up all samples, and forget them: their prompts are asked anew."""
        self._engine.abort_request(list(self._running))
        self._running.clear()
        self._groups.clear()

    def _are_done(self, key: int) -> bool:
        return not any(sample.name in self._running for sample in self._groups[key])

    def _begin(self, samples: Iterable[Sample], salt: str) -> None:
        rendered: dict[int, Any] = {}
        for sample in samples:
            key = sample.request.key
            # the images of a prompt are processed once, not once a sample
            if key not in rendered:
                (rendered[key],) = self._engine.renderer.render_cmpl([{**sample.prompt, "cache_salt": salt}])
            self._running[sample.name] = sample
            self._engine.add_request(sample.name, rendered[key], self._parameters(sample))

    def _parameters(self, sample: Sample) -> Any:
        sampling, stops = sample.request.sampling, sample.stops
        if sampling.forced:  # a prefill of prompt and completion says it all, but vLLM samples one token at least
            return SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, logprobs=0, detokenize=False)
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            max_tokens=sampling.max_tokens,
            # Only our stop tokens end a sample, or a placeholder of images, as in the other engine.
            stop_token_ids=[*stops.token_ids, *self._placeholder],
            ignore_eos=True,
            # 0: that of the sampled token alone; None would be none at all
            logprobs=0,
            detokenize=False,
            # Without one, samples would depend on what ran before.
            seed=derive_seed(sampling.seed, sample.number),
            # We hear of a sample's first token, and of all others at its end; of each where one may end a text.
            output_kind=RequestOutputKind.DELTA,
            stream_interval=1 if stops.has_texts else sampling.max_tokens,
        )


@dataclass
class Sample:
    """One sample on its way.

    Attributes:
        request: What is asked.
        number: Which of that prompt's samples it is.
        prompt: vLLM's form of the prompt.
        stops: What ends it.
        token_ids: What vLLM told of so far.
        log_probs: Of these.
        versions: Of the weights that sampled it, oldest first; one may come again.
        routes: Of all its tokens but the last, where vLLM was asked for them; they come at its end.
    """

    request: Request
    number: int
    prompt: dict[str, Any]
    stops: Stops
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    routes: NDArray[np.integer[Any]] | None = None

    @property
    def name(self) -> str:
        """Id of its request at vLLM: prompt's key and number of the sample."""
        return f"{self.request.key}.{self.number}"

    def take(self, answer: Any, version: int) -> bool:
        """Append what is new in vLLM's ``RequestOutput``, up to a text that ends it; returns whether one does.

        Args:
            answer: What vLLM says.
            version: Of the weights that are there.
        """
        output = answer.outputs[0]
        # vLLM tells versions as it ends a request, and one that a text ends was aborted
        told = [int(span.version) for span in output.weight_versions or ()]
        self.versions = told or [*self.versions, *([version] if output.token_ids else [])]
        if (routes := output.routed_experts) is not None:
            # torch computes with no 16 bits that are unsigned
            self.routes = routes if routes.dtype == np.uint8 else routes.astype(np.int16)
        forced = self.request.sampling.forced
        if forced:
            self.token_ids = list(forced)
            # from the end: the first token of a prompt has none, as nothing predicts it
            pairs = zip(forced, answer.prompt_logprobs[-len(forced) :], strict=True)
            self.log_probs = [candidates[token].logprob for token, candidates in pairs]
            return False
        for token, candidates in zip(output.token_ids, output.logprobs, strict=True):
            self.token_ids.append(token)
            self.log_probs.append(candidates[token].logprob)
            if self.stops.has_texts and self.stops.ends(self.token_ids):
                return True
        return False

    def completion(self) -> Completion:
        """The sample, at its end."""
        return Completion(
            prompt_index=0,
            token_ids=tuple(self.token_ids),
            log_probs=tuple(self.log_probs),
            finish_reason="stop" if self.stops.ends(self.token_ids) else "length",
            weight_version=self.versions[0],
            newest_version=self.versions[-1],
            routes=self.routes,
        )
