"""What vLLM is told of images: it has an image processor of its own, which must make of them what ours makes."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.data.images import ImageReader, collapse, open_image

if TYPE_CHECKING:
    from rltui.layout.schema import Lengths

IMAGES_PER_PROMPT = 32
"""Most images of one prompt."""


class VllmImages:
    """Requests with images, and the arguments of ``vllm.LLM`` for them.

    Args:
        model_path: Folder of the model.
        lengths: Token limits of the layout.

    Raises:
        ModuleNotFoundError: torchvision is missing, without which vLLM does not load models with a vision tower.
    """

    def __init__(self, model_path: str, lengths: Lengths) -> None:
        if importlib.util.find_spec("torchvision") is None:
            raise ModuleNotFoundError(
                "vLLM takes images only where torchvision is installed: pip install torchvision, or set the role's "
                "engine=hf",
                name="torchvision",
            )
        self._reader = ImageReader(model_path, lengths.images)
        self._limit = min(IMAGES_PER_PROMPT, lengths.images)

    @property
    def token_id(self) -> int:
        """Id of the token that stands for an image in a prompt."""
        return self._reader.token_id

    def arguments(self) -> dict[str, Any]:
        """What ``vllm.LLM`` is told so that it reads images as the learner does."""
        return {
            "skip_tokenizer_init": False,  # its image processor works on text
            "limit_mm_per_prompt": {"image": self._limit, "video": 0},
            "mm_processor_kwargs": {"size": self._reader.settings()["size"]},
        }

    def request(self, token_ids: Sequence[int], images: Sequence[bytes]) -> dict[str, Any]:
        """A request of vLLM, which repeats the placeholders itself."""
        if not images:
            return {"prompt_token_ids": list(token_ids)}
        return {
            "prompt_token_ids": collapse(token_ids, self.token_id),
            "multi_modal_data": {"image": [open_image(image) for image in images]},
        }

    def check(self, token_ids: Sequence[int], seen: Sequence[int]) -> None:
        """Check that vLLM saw a prompt as the learner will.

        Raises:
            RuntimeError: It made other tokens of its images.
        """
        if list(token_ids) != list(seen):
            raise RuntimeError(
                f"vLLM made {len(seen)} tokens of a prompt with images that has {len(token_ids)}: its image processor "
                "is not the model's; set the role's engine=hf"
            )
