"""From a prompt as it stands in a dataset to the text and the tokens that a model expects."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.data.codec import Codec
    from trainers.data.images import ImageReader

IMAGE_WORD = "<image>"
"""An image's place in the text of many datasets."""
ANSWER_PLACE = "⟦answer⟧"
"""Stands for an answer where only what a chat template writes after it is wanted."""


class Renderer:
    """Writes prompts in the model's own form.

    Args:
        codec: The model's tokenizer.
        chat: Whether a plain text is said to the model by a user, through its chat template. Messages always are.
        system: What the system says first, where messages have no system; only in chats.
        reader: The model's image processor; None where prompts have no images.
        tools: JSON schemas of functions that the model may call, for its chat template.
        options: Further variables of that template.
    """

    def __init__(
        self,
        codec: Codec,
        chat: bool,
        system: str,
        reader: ImageReader | None = None,
        tools: Sequence[dict[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._codec, self._chat, self._system, self._reader = codec, chat, system, reader
        self._variables = {**(options or {}), **({"tools": list(tools)} if tools else {})}
        self._template: Any = None

    def with_tools(self, tools: Sequence[dict[str, Any]]) -> Renderer:
        """The same for a chat with these tools, and no others."""
        found = copy.copy(self)
        found._variables = {name: value for name, value in self._variables.items() if name != "tools"}
        found._variables |= {"tools": list(tools)} if tools else {}
        return found

    def messages(self, prompt: str | Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """A prompt that is written in the model's chat template, as messages; none where it is plain text."""
        if isinstance(prompt, str):
            return ({"role": "user", "content": prompt},) if self._chat else ()
        return tuple(prompt)

    def text(self, prompt: str | Sequence[dict[str, Any]], num_images: int = 0) -> str:
        """The prompt as the model reads it, the start of its own turn included.

        Args:
            prompt: A text, in which ``<image>`` is an image's place, or messages.
            num_images: Images of the prompt. Where it has no places for them, they come first.

        Raises:
            ValueError: The model has no chat template, or the prompt is neither a text nor a list of messages.
        """
        if isinstance(prompt, str):
            if not self._chat:
                return self._with_places(prompt, num_images)
            prompt = [{"role": "user", "content": prompt}]
        if not isinstance(prompt, (list, tuple)) or not all(isinstance(said, dict) for said in prompt):
            raise ValueError(f"a prompt is neither a text nor a list of messages: {str(prompt)[:100]}")
        messages = with_image_parts(prompt, num_images) if num_images else list(prompt)
        if self._system and messages and messages[0].get("role") != "system":
            messages.insert(0, {"role": "system", "content": self._system})
        return self._applied(messages)

    def following(self, messages: Sequence[dict[str, Any]], is_chat: bool, last_token: int) -> tuple[int, ...]:
        """Token ids of what is said after an answer that ended with ``last_token``, the start of the next one included.

        Outside chats it is the messages' text.

        Raises:
            ValueError: The chat template does not take these messages.
        """
        if not is_chat:
            return self.tokens("".join(str(said["content"]) for said in messages))
        before = [{"role": "user", "content": ""}, {"role": "assistant", "content": ANSWER_PLACE}]
        written = self._applied([*before, *messages])
        _, place, rest = written.rpartition(ANSWER_PLACE)
        if not place:
            raise ValueError("the model's chat template leaves out what the assistant said: no turns can follow it")
        token_ids = self.tokens(rest)
        # the template ends the assistant's turn with the token that the answer has already ended with
        stops = self._codec.stop_token_ids
        return token_ids[1:] if last_token in stops and token_ids and token_ids[0] in stops else token_ids

    def conversation(self, messages: Sequence[dict[str, Any]]) -> str:
        """What was said, answers included, as the model reads it; nothing is to follow.

        Raises:
            ValueError: The model has no chat template, or it does not take these messages.
        """
        system = [{"role": "system", "content": self._system}] if self._system else []
        is_said = bool(messages) and messages[0].get("role") == "system"
        return self._applied([*([] if is_said else system), *messages], answers=False)

    def _applied(self, messages: Sequence[dict[str, Any]], *, answers: bool = True) -> str:
        from jinja2 import TemplateError

        try:
            found: str = self._tokenizer().apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=answers, **self._variables
            )
        except TemplateError as error:
            raise ValueError(f"the model's chat template does not take these messages: {error}") from error
        return found

    def _with_places(self, text: str, num_images: int) -> str:
        """``text`` with the model's own words for the places of its images."""
        if not num_images or self._reader is None:
            return text
        if IMAGE_WORD not in text and self._reader.place not in text:
            text = IMAGE_WORD * num_images + text
        return text.replace(IMAGE_WORD, self._reader.place)

    def tokens(self, text: str, images: Sequence[bytes] = ()) -> tuple[int, ...]:
        """Token ids of a text that ``text`` returned: the template has written all special tokens out.

        Raises:
            ValueError: The text has not as many places for images as there are ``images``.
        """
        token_ids = self._codec.encode(text)
        return tuple(token_ids) if self._reader is None else self._reader.expand(token_ids, images)

    def _tokenizer(self) -> Any:
        if self._template is None:
            from transformers import AutoTokenizer

            folder = self._codec.model_path
            self._template = AutoTokenizer.from_pretrained(folder)
            if not self._template.chat_template:
                raise ValueError(
                    f"the model in {folder} has no chat template; take its instruct version, or prompts of plain text"
                )
        return self._template


def with_image_parts(messages: Sequence[dict[str, Any]], num_images: int) -> list[dict[str, Any]]:
    """Messages in which images stand as parts, as chat templates want them: for each ``<image>`` of a text.

    Where no message has a place for an image, the images come first in what the user says first.
    """
    spread = [_in_parts(said) for said in messages]
    if not any(part.get("type") == "image" for said in spread for part in _parts(said)):
        first = next((said for said in spread if said.get("role") == "user"), None)
        if first is not None:
            first["content"] = [{"type": "image"}] * num_images + list(_parts(first))
    return spread


def _in_parts(said: dict[str, Any]) -> dict[str, Any]:
    """A message with its text, if it has places for images, in parts."""
    return {**said, "content": [piece for part in _parts(said) for piece in _split(part)]}


def _parts(said: dict[str, Any]) -> list[dict[str, Any]]:
    content = said.get("content") or ""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _split(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A part of text in pieces, with images in place of ``<image>``; other parts as they are."""
    if part.get("type") != "text":
        yield {"type": "image"} if str(part.get("type", "")).startswith("image") else part
        return
    for number, text in enumerate(str(part.get("text", "")).split(IMAGE_WORD)):
        if number:
            yield {"type": "image"}
        if text:
            yield {"type": "text", "text": text}
