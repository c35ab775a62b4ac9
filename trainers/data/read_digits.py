"""The task ``builtin/read-digits``: an image of digits, to be read out."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from trainers.data.prompts import Prompt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.images import ImageReader

NAME = "builtin/read-digits"
BLANK = "builtin/read-digits-blank"
"""The same with empty images: a control, in which nobody can do better than guess."""
CELL = 8
"""Pixels of a digit's square cell; the tiny model of the task makes one token of it."""
HEIGHT, WIDTH = 7, 5
"""Pixels of a digit."""

_GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "01110 10001 00001 00110 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


class ReadDigits:
    """Images of independent random digits, endlessly many.

    Args:
        digits: Digits of an image.
        seed: Of the digits and of how they are drawn.
        encode: From text to token ids.
        reader: The model's image processor.
        blank: Whether the images are empty.
    """

    left_out = 0
    size = None

    def __init__(
        self, digits: int, seed: int, encode: Callable[[str], list[int]], reader: ImageReader, blank: bool = False
    ) -> None:
        self._digits, self._seed, self._encode, self._reader, self._blank = digits, seed, encode, reader, blank

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        source = random.Random(f"read-digits/{self._seed}/{index}")
        text = "".join(source.choices("0123456789", k=self._digits))
        pixels = draw_digits(text, source)
        image = encode_png(np.full_like(pixels, 128) if self._blank else pixels)
        said = self._reader.place + ">"
        return Prompt(self._reader.expand(self._encode(said), [image]), text, said, images=(image,))


def draw_digits(text: str, source: random.Random) -> NDArray[np.uint8]:
    """Digits in a row, each somewhere in its cell, light on dark: [CELL, CELL x digits, 3]."""
    ink, paper = source.randrange(150, 256), source.randrange(100)
    drawn = np.full((CELL, CELL * len(text)), paper, np.uint8)
    for place, digit in enumerate(text):
        glyph = np.array([[int(dot) for dot in line] for line in _GLYPHS[int(digit)].split()])
        left, top = CELL * place + source.randrange(CELL - WIDTH + 1), source.randrange(CELL - HEIGHT + 1)
        drawn[top : top + HEIGHT, left : left + WIDTH][glyph == 1] = ink
    return np.repeat(drawn[:, :, None], 3, axis=2)


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of ``pixels`` [height, width, 3]."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()
