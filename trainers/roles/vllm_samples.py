"""The samples of one call to a vLLM engine, which go on where new weights come in the midst of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from trainers.roles.engine import Completion, SamplingSettings, derive_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trainers.data.stops import Stops


class VllmSamples:
    """Samples of some prompts, each a request of its own.

    Args:
        engine: vLLM's ``LLMEngine``, which has nothing else to do.
        prompts: vLLM's form of each prompt, a dict.
        sampling: How to sample.
        stops: What ends a sample.
        placeholder: Tokens that cut one: no model can read on.
        salt: Of the weights that are there, see ``renew``.

    Attributes:
        seen: Token ids of each prompt as vLLM read it, by its number; there when its samples are.
    """

    def __init__(
        self,
        engine: Any,
        prompts: Sequence[dict[str, Any]],
        sampling: SamplingSettings,
        stops: Stops,
        placeholder: Sequence[int],
        salt: str,
    ) -> None:
        self._engine, self._prompts, self._sampling, self._salt = engine, prompts, sampling, salt
        self._stops, self._placeholder = stops, placeholder
        numbers = range(sampling.samples_per_prompt)
        self._samples = [Sample(prompt, number) for prompt in range(len(prompts)) for number in numbers]
        self._running = {sample.name: sample for sample in self._samples}
        self.seen: dict[int, Sequence[int]] = {}

    def run(self, give_way: Callable[[], Any]) -> list[Completion]:
        """Sample all; all of the first prompt first.

        Args:
            give_way: Called before each step of the engine; new weights may come while it lasts.
        """
        try:
            self._add(self._samples)
            while self._running:
                give_way()
                self.step()
        finally:
            self._engine.abort_request(list(self._running))
        return [sample.completion(self._stops) for sample in self._samples]

    def step(self) -> None:
        """Let the engine make one step, and keep what it sampled."""
        for output in self._engine.step():
            sample = self._running.get(output.request_id)
            if sample is None:
                continue  # it was ended by a text while vLLM computed one more token
            ended = sample.take(output.outputs[0], self._stops)
            if ended and not output.finished:
                self._engine.abort_request([sample.name])
            if ended or output.finished:
                del self._running[sample.name]
                self.seen[sample.prompt_index] = output.prompt_token_ids

    def renew(self, salt: str) -> None:
        """Begin anew what has no token yet, since other weights came: the old may have read parts of its prompt.

        What has tokens goes on. Its KV cache stays that of the old weights, and is in nobody else's way: vLLM lets
        requests share blocks of equal tokens only where their salts are equal.

        Args:
            salt: Names the weights that came; no other weights of this engine had it.
        """
        self._salt = salt
        untold = [sample for sample in self._running.values() if not sample.token_ids]
        self._engine.abort_request([sample.name for sample in untold])
        self._add(untold)

    def _add(self, samples: Iterable[Sample]) -> None:
        rendered: dict[int, Any] = {}
        for sample in samples:
            index = sample.prompt_index
            if index not in rendered:
                prompt = {**self._prompts[index], "cache_salt": self._salt}
                (rendered[index],) = self._engine.renderer.render_cmpl([prompt])
            self._engine.add_request(sample.name, rendered[index], self._parameters(sample))

    def _parameters(self, sample: Sample) -> Any:
        return SamplingParams(
            temperature=self._sampling.temperature,
            max_tokens=self._sampling.max_tokens,
            # Only our stop tokens end a sample, or a placeholder of images, as in the other engine.
            stop_token_ids=[*self._stops.token_ids, *self._placeholder],
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            # Without one, samples would depend on what ran before.
            seed=derive_seed(self._sampling.seed, sample.prompt_index) + sample.number,
            # We hear of a sample's first token, and of all others at its end; of each where one may end a text.
            output_kind=RequestOutputKind.DELTA,
            stream_interval=1 if self._stops.has_texts else self._sampling.max_tokens,
        )


@dataclass
class Sample:
    """One sample on its way.

    Attributes:
        prompt_index: Which prompt it completes.
        number: Which of that prompt's samples it is.
        token_ids: What vLLM told of so far.
        log_probs: Of these.
        versions: Of the weights that sampled it, oldest first; empty before its end.
    """

    prompt_index: int
    number: int
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of its request."""
        return f"{self.prompt_index}.{self.number}"

    def take(self, output: Any, stops: Stops) -> bool:
        """Append what is new in vLLM's ``CompletionOutput``, up to a text that ends it; returns whether one does."""
        self.versions = [int(span.version) for span in output.weight_versions or ()] or self.versions
        for token, candidates in zip(output.token_ids, output.logprobs, strict=True):
            self.token_ids.append(token)
            self.log_probs.append(candidates[token].logprob)
            if stops.has_texts and stops.ends(self.token_ids):
                return True
        return False

    def completion(self, stops: Stops) -> Completion:
        """The sample, at its end."""
        return Completion(
            prompt_index=self.prompt_index,
            token_ids=tuple(self.token_ids),
            log_probs=tuple(self.log_probs),
            finish_reason="stop" if stops.ends(self.token_ids) else "length",
            weight_version=self.versions[0],
            newest_version=self.versions[-1],
        )
