"""One sample of an agent: chats with the policy, kept as the very tokens that were sampled.

A request whose messages begin with those of an earlier one and its answer goes on behind that one's tokens; nothing
that was sampled is ever made into tokens again. Any other request begins a new sequence, with all that it says as its
prompt. So each sampled token is trained once, after exactly what the policy had read when it sampled it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.environments.outcome import Outcome
from trainers.environments.tools import split_tool_calls
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.sampling import SamplingSettings
from trainers.turns import Turns

TOO_LONG = "context_length_exceeded"
"""What OpenAI calls it where a chat has no room for an answer: clients know it."""
OVER = "episode_over"
REFUSED = {"stop": "set train.stop", "response_format": "ask for it in words", "functions": "name tools"}
"""What a request may not say, because the answer would not be what it wants; how tokens are drawn, the layout says."""


class RefusedError(Exception):
    """A request that is not answered.

    Args:
        status: HTTP's.
        message: What is wrong with it.
        code: OpenAI's word for it.
    """

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Limits:
    """What an episode may take.

    Attributes:
        turns: Answers.
        prompt_tokens: Of what begins a sequence.
    """

    turns: int
    prompt_tokens: int


@dataclass(eq=False)
class _Chat:
    """One sequence, and the messages that it is made of; None while an answer to it is under way."""

    tools: Sequence[dict[str, Any]]
    turns: Turns
    messages: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Reply:
    """The policy's answer to a request.

    Attributes:
        message: As chats have it.
        turn: What was sampled.
        prompt_tokens: What the policy had read.
    """

    message: dict[str, Any]
    turn: Completion
    prompt_tokens: int

    @property
    def finish_reason(self) -> Literal["stop", "length", "tool_calls"]:
        """In the words of chat completions."""
        return "tool_calls" if "tool_calls" in self.message else self.turn.finish_reason


class Episode:
    """Answers an agent's requests and keeps what they are trained as; safe to call from several threads.

    Args:
        number: Of the sample.
        is_chat: Whether messages are written in the model's chat template, else as the texts that they are.
        sampling: How; its seed is the prompt's, its limit that of a sequence.
        limits: What it may take.
        codec: The model's tokenizer.
        renderer: Writes messages.
        sample: Has an engine go on.
    """

    def __init__(
        self,
        number: int,
        is_chat: bool,
        sampling: SamplingSettings,
        limits: Limits,
        codec: Codec,
        renderer: Renderer,
        sample: Callable[[list[int], SamplingSettings], Completion],
    ) -> None:
        self._number, self._is_chat, self._sampling, self._limits = number, is_chat, sampling, limits
        self._codec, self._renderer, self._sample = codec, renderer, sample
        self._chats: list[_Chat] = []
        self._turns, self._is_cut, self._is_over = 0, False, False
        self._lock = threading.Lock()

    def answer(self, request: Mapping[str, Any]) -> Reply:
        """The policy's answer to a request for a chat completion.

        Raises:
            RefusedError: It cannot be answered.
        """
        messages, tools = checked(request), list(request.get("tools") or ())
        most = request.get("max_completion_tokens") or request.get("max_tokens") or self._sampling.max_tokens
        with self._lock, _refused_as_such():
            if self._is_over or self._turns >= self._limits.turns:
                why = "its time is over" if self._is_over else f"it has had {self._turns} answers: data.max_turns"
                raise RefusedError(400, f"the episode is over: {why}", OVER)
            chat = self._continued(messages, tools) or self._begun(messages, tools)
            self._turns, self._is_cut = self._turns + 1, False
            seed = derive_seed(self._sampling.seed, self._number, self._turns)
            chat.messages = None
        room = min(chat.turns.room, int(most))
        read = chat.turns.token_ids
        turn = self._sample(read, replace(self._sampling, seed=seed, samples_per_prompt=1, max_tokens=max(1, room)))
        message = self._message(turn, bool(tools) and request.get("tool_choice") != "none")
        with self._lock:
            if not self._is_over:  # what it was asked for is fixed by now, and this came too late for it
                chat.turns.answer(turn)
                chat.messages = [*messages, message]
        return Reply(message, turn, len(read))

    def over(self, place: int, reward: float, *, failed: bool) -> Completion:
        """The whole sample, which hears no further request.

        Args:
            place: Number of its prompt.
            reward: What it earned.
            failed: Whether its agent failed.
        """
        with self._lock:
            self._is_over = True
            sequences = [_sequence(chat.turns, place) for chat in self._chats if chat.turns.said is not None]
        outcome = Outcome(0.0 if failed else reward, self._turns, failed)
        if not sequences:
            return Completion(place, (), (), "stop", -1, outcome=outcome)
        *earlier, last = sequences
        reason = "length" if self._is_cut else last.finish_reason
        return replace(last, finish_reason=reason, outcome=outcome, earlier=tuple(earlier))

    @property
    def is_cut(self) -> bool:
        """Whether the last request found no room for an answer."""
        return self._is_cut

    @property
    def has_answers(self) -> bool:
        """Whether the policy has answered anything."""
        with self._lock:
            return any(chat.turns.said is not None for chat in self._chats)

    def _continued(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> _Chat | None:
        """The sequence that ``messages`` go on with, which has heard what is new in them; None: there is none."""
        found = next((chat for chat in reversed(self._chats) if _goes_on(chat, messages, tools)), None)
        if found is None:
            return None
        assert found.messages is not None
        last_token, room = found.turns.token_ids[-1], found.turns.room
        new = [_for_template(said) for said in messages[len(found.messages) :]]
        is_long = self._is_longer(sum(len(said["content"]) for said in new), room)
        token_ids = () if is_long else self._renderer.with_tools(tools).following(new, self._is_chat, last_token)
        if is_long or len(token_ids) >= room:
            self._is_cut = True
            limit = found.turns.limit
            raise RefusedError(400, f"the chat leaves no room for an answer: lengths.response is {limit}", TOO_LONG)
        found.turns.hear(token_ids)
        return found

    def _begun(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> _Chat:
        """A new sequence, which begins with ``messages``."""
        renderer = self._renderer.with_tools(tools)
        said = [_for_template(one) for one in messages]
        text = renderer.text(said) if self._is_chat else "".join(one["content"] for one in said)
        limit = self._limits.prompt_tokens
        is_long = self._is_longer(len(text), limit)
        token_ids = () if is_long else renderer.tokens(text)
        if is_long or not 0 < len(token_ids) <= limit:
            self._is_cut = is_long or bool(token_ids)
            size = f"{len(text)} characters" if is_long else f"{len(token_ids)} tokens"
            raise RefusedError(400, f"the chat has {size}, and lengths.prompt is {limit}", TOO_LONG)
        chat = _Chat(tools, Turns(token_ids, self._sampling.max_tokens))
        self._chats.append(chat)
        return chat

    def _is_longer(self, characters: int, tokens: int) -> bool:
        """Whether so many characters are more tokens, whatever they say: making them into tokens costs memory."""
        return characters > tokens * self._codec.longest_token

    def _message(self, turn: Completion, reads_calls: bool) -> dict[str, Any]:
        """What was sampled, as a message."""
        text = self._codec.decode(turn.token_ids)
        said, calls = split_tool_calls(text) if reads_calls else (text, [])
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{self._turns}_{number}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for number, call in enumerate(calls)
            ]
        return message


@contextlib.contextmanager
def _refused_as_such() -> Iterator[None]:
    """Nothing fails in here but by what a request says: templates and tokenizers raise all there is."""
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(400, f"the request cannot be read: {type(error).__name__}: {error}"[:300]) from error


def _sequence(turns: Turns, place: int) -> Completion:
    """A sequence as it is trained; what was heard and never answered ends no sequence."""
    whole = turns.whole(prompt_index=place, prompt_ids=tuple(turns.prompt_ids))
    if turns.mask[-1]:
        return whole
    end = len(turns.mask) - turns.mask[::-1].index(True)
    mask = () if all(turns.mask[:end]) else turns.mask[:end]
    return replace(whole, token_ids=whole.token_ids[:end], log_probs=whole.log_probs[:end], response_mask=mask)


@_refused_as_such()
def checked(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request, their contents as texts.

    Raises:
        RefusedError: The policy cannot answer it.
    """
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(said, dict) for said in messages):
        raise RefusedError(400, "messages must be a list of messages")
    if not all(isinstance(tool, dict) for tool in request.get("tools") or ()):
        raise RefusedError(400, "tools must be a list of tools")
    if not isinstance(request.get("stream_options") or {}, dict):
        raise RefusedError(400, "stream_options must be an object")
    for name, instead in REFUSED.items():
        if request.get(name):
            raise RefusedError(400, f"{name} is not supported: {instead}", "unsupported_parameter")
    if request.get("n") not in (None, 1):
        raise RefusedError(400, "n is not supported: a request has one answer", "unsupported_parameter")
    most = request.get("max_completion_tokens") or request.get("max_tokens") or 1
    if not isinstance(most, int) or most < 1:
        raise RefusedError(400, "max_tokens must be a positive number")
    return [{**said, "content": _text(said.get("content"))} for said in messages]


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise RefusedError(400, "a message holds something else than text", "unsupported_parameter")
    return "".join(part["text"] for part in parts)


def _goes_on(chat: _Chat, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> bool:
    before = chat.messages
    if before is None or len(messages) <= len(before) or list(tools) != list(chat.tools):
        return False
    return all(_essence(one) == _essence(other) for one, other in zip(before, messages, strict=False))


def _essence(said: dict[str, Any]) -> Any:
    """What two messages must share to be the same: clients add empty fields, and write arguments in their own way."""
    if said.get("role") != "assistant":
        return {name: value for name, value in said.items() if value not in (None, "", [], {})}
    calls = [(call["name"], call["arguments"]) for call in _calls(said)]
    return said["content"], calls


def _calls(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Name and arguments of the calls of a message, the arguments read."""
    found = []
    for call in said.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError):
                arguments = json.loads(arguments)
        found.append({"name": function.get("name"), "arguments": arguments})
    return found


def _for_template(said: dict[str, Any]) -> dict[str, Any]:
    """A message as chat templates take it: they want arguments of calls read."""
    if not said.get("tool_calls"):
        return {name: value for name, value in said.items() if value is not None}
    return {**said, "tool_calls": [{"type": "function", "function": call} for call in _calls(said)]}
