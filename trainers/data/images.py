"""Images of prompts: from files as a dataset holds them to the patches and the placeholder tokens of a model.

Images travel between roles as the bytes of their files: patches in float32 take ten to a hundred times as much, and
each role makes them for one micro-batch at a time.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from rltui.layout.schema import Layout
    from trainers.data.batch import Rows

REMEMBERED = 32
"""Images whose patches are kept: the samples of one prompt come one after the other."""


class ImageReader:
    """The image processor of a model of the Qwen-VL family: one placeholder token for each square of merged patches.

    Args:
        model_path: Folder of the model.
        longest: Most tokens of the images of one prompt; 0: without bound. Larger images are made smaller.

    Attributes:
        token_id: The placeholder in prompts, ``config.image_token_id``.
        place: An image's place in a prompt, as text: the placeholder between the tokens that begin and end an image.

    Raises:
        ValueError: The model has no image processor, or not one of that kind.
    """

    def __init__(self, model_path: str, longest: int = 0) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.model_path = model_path
        config = AutoConfig.from_pretrained(model_path)
        token_id = getattr(config, "image_token_id", None)
        try:
            self._processor: Any = _load_processor(model_path)
        except (OSError, ValueError) as error:
            raise ValueError(f"the model in {model_path} takes no images: {error}") from error
        if token_id is None or not hasattr(self._processor, "get_number_of_image_patches"):
            raise ValueError(
                f"the model in {model_path} is not of the Qwen-VL family: its prompts have no image_token_id, or its "
                "image processor does not merge patches"
            )
        self.token_id = int(token_id)
        around = (getattr(config, f"vision_{name}_token_id", None) for name in ("start", "end"))
        first, last = (() if token is None else (token,) for token in around)
        tokens = AutoTokenizer.from_pretrained(model_path).convert_ids_to_tokens([*first, self.token_id, *last])
        self.place = "".join(tokens)
        self._merged = int(self._processor.merge_size) ** 2
        if longest:
            self._bound(longest)
        self._remembered = lru_cache(REMEMBERED)(self._patches)

    def _bound(self, longest: int) -> None:
        """Let an image of its own have at most ``longest`` tokens."""
        size, side = dict(self._processor.size), int(self._processor.patch_size)
        # what Qwen-VL's processor calls edges are areas, in pixels
        most = longest * self._merged * side * side
        size["longest_edge"] = min(int(size["longest_edge"]), most)
        size["shortest_edge"] = min(int(size["shortest_edge"]), most)
        self._processor.size = type(self._processor.size)(**size)

    def settings(self) -> dict[str, Any]:
        """All that decides what patches and tokens an image becomes."""
        keys = ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std", "rescale_factor")
        found = {key: getattr(self._processor, key, None) for key in keys}
        return found | {"size": dict(self._processor.size), "image_token_id": self.token_id}

    def tokens_of(self, image: bytes) -> int:
        """Placeholder tokens of an image.

        Raises:
            ValueError: It is no image that Pillow knows.
        """
        width, height = open_image(image, whole=False).size
        return int(self._processor.get_number_of_image_patches(height, width)) // self._merged

    def expand(self, token_ids: Sequence[int], images: Sequence[bytes]) -> tuple[int, ...]:
        """``token_ids``, with the one placeholder of each image repeated as often as the image has tokens.

        Raises:
            ValueError: There are not as many placeholders as images.
        """
        found = sum(token == self.token_id for token in token_ids)
        if found != len(images):
            raise ValueError(f"a prompt has {len(images)} images and {found} places ({self.place}) for them")
        left = iter(images)
        expanded: list[int] = []
        for token in token_ids:
            expanded += [token] * (self.tokens_of(next(left)) if token == self.token_id else 1)
        return tuple(expanded)

    def features(self, images: Sequence[bytes]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Patches [N, D] of all images, one after the other, and their grids [images, 3]: time, height, width."""
        patches, grids = zip(*(self._remembered(image) for image in images), strict=True)
        return np.concatenate(patches), np.stack(grids)

    def _patches(self, image: bytes) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        found = self._processor(images=[open_image(image)], return_tensors="np")
        return np.asarray(found["pixel_values"], np.float32), np.asarray(found["image_grid_thw"], np.int64)[0]


def _load_processor(model_path: str) -> Any:
    from transformers import AutoImageProcessor
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()  # else it warns where torchvision, which it can do without, is missing
    try:
        return AutoImageProcessor.from_pretrained(model_path)
    finally:
        logging.set_verbosity(before)


def image_reader(layout: Layout, model_path: str) -> ImageReader | None:
    """The image processor of a model; None where the layout's prompts have no images."""
    return ImageReader(model_path, layout.lengths.images) if layout.lengths.images else None


def image_inputs(rows: Rows, reader: ImageReader | None, device: torch.device) -> dict[str, torch.Tensor]:
    """What a model of the Qwen-VL family is called with for the images of ``rows``; empty where there are none.

    Returns:
        ``pixel_values`` [N, D] and ``image_grid_thw`` [images, 3] of all rows, one after the other, and
        ``mm_token_type_ids`` [B, P + R], 1 on placeholders, of which the model makes its three-dimensional positions.

    Raises:
        ValueError: Not every row has an image, so that ranks would not run the vision tower as often as each other.
    """
    import torch

    if rows.images is None:
        return {}
    if reader is None:
        raise ValueError("there are images in a run whose layout has none: set lengths.images")
    if rows.packs:
        raise ValueError("prompts with images cannot run in packed rows: set lengths.pack=0")
    if not all(rows.images):
        raise ValueError("a prompt has no image, and others have: leave it out of the dataset")
    prompt_columns = rows.token_ids.shape[1] - rows.response_mask.shape[1]
    places = rows.token_ids == reader.token_id
    places[:, prompt_columns:] = False  # a placeholder that was sampled stands for no image
    patches, grids = reader.features([image for images in rows.images for image in images])
    return {
        "pixel_values": torch.tensor(patches, device=device),
        "image_grid_thw": torch.tensor(grids, device=device),
        "mm_token_type_ids": torch.tensor(places.astype(np.int64), device=device),
    }


def collapse(token_ids: Sequence[int], token_id: int) -> list[int]:
    """``token_ids`` with each run of placeholders as one: what engines take that find the places themselves."""
    before = [None, *token_ids[:-1]]
    return [token for token, last in zip(token_ids, before, strict=True) if token != token_id or last != token_id]


def open_image(image: bytes, whole: bool = True) -> Any:
    """The image of a file, in RGB; not ``whole``: as it is, of which only the head has been read.

    Raises:
        ValueError: Pillow cannot read it.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ValueError("reading images takes Pillow, which is not installed: pip install pillow") from error
    try:
        opened = Image.open(io.BytesIO(image))
        return opened.convert("RGB") if whole else opened
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"an image of {len(image)} bytes cannot be read: {error}") from error


def check_same_images(learner_path: str, other_path: str, kind: str) -> None:
    """Check that another role's model cuts images into the learner's patches and tokens.

    Raises:
        ValueError: It does not; the setting is named.
    """
    if learner_path == other_path:
        return
    own, other = (ImageReader(path).settings() for path in (learner_path, other_path))
    for key, value in own.items():
        if _plain(other[key]) != _plain(value):
            raise ValueError(
                f"the {kind} sees images otherwise than the learner: {key} is {value} in {learner_path} and "
                f"{other[key]} in {other_path}; choose models of one family"
            )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
