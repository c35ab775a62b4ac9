"""The images of a dataset's row, in the forms in which datasets hold them."""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGE_KEYS = ("images", "image")
PATH_MAX = 4096
"""A longer text is no path."""
_DATA_URL = "data:"


def row_images(row: Mapping[str, Any], image_key: str, prompt_key: str, folder: Path) -> tuple[bytes, ...]:
    """The image files of a row: those under ``image_key``, else those within its messages.

    Args:
        row: The row.
        image_key: Key of one image or a list of them; empty: the row has none of its own.
        prompt_key: Key of the prompt, which may be messages with parts such as ``{"type": "image", "image": …}``.
        folder: Where paths of files begin.

    Raises:
        ValueError: An image is not there, or in no known form.
    """
    held = row.get(image_key) if image_key else None
    if held is None:
        held = _within(row.get(prompt_key))
    found = held if isinstance(held, (list, tuple)) else [held]
    return tuple(image_file(image, folder) for image in found)


def image_file(image: Any, folder: Path) -> bytes:
    """The bytes of an image's file.

    Args:
        image: A path, a ``data:`` URL, base64, bytes, an object with ``bytes`` or ``path`` as Hugging Face datasets
            store images, or an image of Pillow.
        folder: Where paths begin.

    Raises:
        ValueError: It is not there, or none of these.
    """
    if isinstance(image, (bytes, bytearray)):
        return bytes(image)
    if isinstance(image, dict):
        inner = image.get("bytes") or image.get("path") or image.get("url")
        return image_file(inner, folder)
    if isinstance(image, str):
        return _from_text(image, folder)
    if hasattr(image, "save"):  # an image of Pillow, which the hub's datasets decode to
        file = io.BytesIO()
        image.save(file, format="PNG")
        return file.getvalue()
    raise ValueError(f"an image is neither a path, base64 nor bytes, but {str(image)[:60]!r}")


def _from_text(text: str, folder: Path) -> bytes:
    if text.startswith(_DATA_URL):
        return _decode(text.partition(",")[2], text)
    if text.startswith(("http://", "https://")):
        raise ValueError(f"the image {text} is on the web: nodes may not reach it, so download it beside the dataset")
    file = folder / Path(text[:PATH_MAX].removeprefix("file://")).expanduser()
    if len(text) < PATH_MAX and os.path.isfile(file):  # noqa: PTH113  # pathlib raises for a name of 256 characters
        return file.read_bytes()
    return _decode(text, str(file))


def _decode(text: str, whole: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"an image is neither a file that is there nor base64: {whole[:200]}") from error


def _within(prompt: Any) -> Sequence[Any]:
    """What the image parts of messages hold."""
    if not isinstance(prompt, (list, tuple)):
        return []
    parts = [part for said in prompt if isinstance(said, dict) for part in _listed(said.get("content"))]
    return [_held(part) for part in parts if str(part.get("type", "")).startswith("image")]


def _listed(content: Any) -> list[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, (list, tuple)) else []


def _held(part: Mapping[str, Any]) -> Any:
    """The image of ``{"type": "image", "image": …}`` or of OpenAI's ``{"type": "image_url", "image_url": …}``."""
    return next((part[key] for key in ("image", "image_url", "path", "url", "bytes") if part.get(key)), None)
