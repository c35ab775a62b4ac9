"""From ``data.train`` or ``data.eval`` of a layout to the task that hands out prompts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from rltui.layout.settings import prompts_per_block, sources
from trainers.data import read_digits, sort_digits
from trainers.data.chat import Renderer
from trainers.data.files import is_file_name, read_hub, read_rows
from trainers.data.gym import PREFIX, GymTask
from trainers.data.images import image_reader
from trainers.data.mixture import Mixture
from trainers.data.prompts import Prompt
from trainers.data.row_images import IMAGE_KEYS, row_images

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.codec import Codec
    from trainers.data.images import ImageReader
    from trainers.data.prompts import Task

PROMPT_KEYS = ("messages", "prompt", "question", "problem", "text")
ANSWER_KEYS = ("answer", "solution", "ground_truth", "target")
TEST_KEYS = ("tests", "test_list", "test_cases")


EVALUATION_SEED = 5_081_990_231
"""Of the prompts of evaluations: no seed that one would give a run, and the same in all runs, so that they compare."""


def make_task(layout: Layout, codec: Codec, tools: Sequence[dict[str, Any]] = ()) -> Task:
    """The task, or the mixture of tasks, that the layout trains on.

    ``tools`` are an environment's, as chat templates take them.

    Raises:
        ValueError: There is no such task, a package that it needs is missing, or no row of it can be used.
    """
    seed = layout.train.seed
    if not layout.data.mixture:
        return _make(layout, codec, layout.data.train, layout.data.split, seed, tools)
    tasks = {
        name: _make(structs.replace(layout, data=data), codec, data.train, data.split, seed, tools)
        for name, _, data in sources(layout.data)
    }
    return Mixture(tasks, prompts_per_block(layout.data), seed)


def make_evaluation_task(layout: Layout, codec: Codec, tools: Sequence[dict[str, Any]] = ()) -> Task:
    """The task that the layout evaluates on; the run's seed has no part in it. ``tools`` as for ``make_task``.

    Raises:
        ValueError: As for ``make_task``.
    """
    return _make(layout, codec, layout.data.eval, layout.data.eval_split, EVALUATION_SEED, tools)


def _make(layout: Layout, codec: Codec, name: str, split: str, seed: int, tools: Sequence[dict[str, Any]] = ()) -> Task:
    data = layout.data
    if name == sort_digits.NAME:
        return sort_digits.SortDigits(data.digits, seed, codec.encode)
    reader = image_reader(layout, codec.model_path)
    if name in (read_digits.NAME, read_digits.BLANK):
        if reader is None:
            raise ValueError(f"the prompts of {name} are images: set lengths.images")
        return read_digits.ReadDigits(data.digits, seed, codec.encode, reader, blank=name == read_digits.BLANK)
    if name.startswith("builtin/"):
        names = (sort_digits.NAME, read_digits.NAME, read_digits.BLANK)
        raise ValueError(f"there is no builtin task {name!r}; there are: {', '.join(names)}")
    renderer = Renderer(codec, data.chat, data.system, reader, tools)
    if name.startswith(PREFIX):
        return GymTask(name, data.options, seed, renderer, layout.lengths.prompt)
    rows = read_rows(name) if is_file_name(name) else read_hub(name, data.subset, split)
    keys = RowKeys(rows, name, data.prompt_key, data.answer_key, data.tests_key, data.image_key)
    pictures = Pictures(reader, keys, Path(name).expanduser().parent, layout.lengths.images) if reader else None
    return RowTask(rows, keys, renderer, layout.lengths.prompt, seed, pictures)


class RowKeys:
    """Which keys of a dataset's rows hold what: the layout's, or the first usual ones that the first row has.

    Raises:
        ValueError: The rows have no such key, or none that could be the prompt.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], name: str, prompt: str, answer: str, tests: str, image: str = ""
    ) -> None:
        if not rows:
            raise ValueError(f"{name} has no rows")
        first = rows[0]
        self.prompt = _key(first, name, prompt, PROMPT_KEYS)
        self.answer = _key(first, name, answer, ANSWER_KEYS)
        self.tests = _key(first, name, tests, TEST_KEYS)
        self.image = _key(first, name, image, IMAGE_KEYS)
        for number, row in enumerate(rows, 1):
            if self.prompt and self.prompt not in row:
                raise ValueError(f"row {number} of {name} has no key {self.prompt!r}")
        if not self.prompt:
            raise ValueError(f"{name} has the keys {', '.join(first)}: name the one of the prompt as data.prompt_key")


def _key(row: Mapping[str, Any], name: str, given: str, usual: Sequence[str]) -> str:
    if given and given not in row:
        raise ValueError(f"{name} has no key {given!r}; its first row has: {', '.join(row)}")
    return given or next((key for key in usual if key in row), "")


class Pictures:
    """The images of rows, and whether there is room for them.

    Args:
        reader: The model's image processor.
        keys: Which keys hold what.
        folder: Where paths of files begin.
        longest: Most tokens of a prompt's images.
    """

    def __init__(self, reader: ImageReader, keys: RowKeys, folder: Path, longest: int) -> None:
        self._reader, self._keys, self._folder, self._longest = reader, keys, folder, longest

    def of(self, row: Mapping[str, Any]) -> tuple[bytes, ...]:
        """The files of a row's images.

        Raises:
            ValueError: It has none: ranks would not run the vision tower as often as each other.
        """
        found = row_images(row, self._keys.image, self._keys.prompt, self._folder)
        if not found:
            raise ValueError("there is no image, and with lengths.images each prompt must have one (data.image_key)")
        return found

    def fit(self, images: Sequence[bytes]) -> bool:
        """Whether they have few enough tokens."""
        return sum(self._reader.tokens_of(image) for image in images) <= self._longest


class RowTask:
    """Rows of a dataset, in an order of its own in every epoch.

    Args:
        rows: The dataset.
        keys: Which keys hold what.
        renderer: From a prompt to text and tokens.
        longest: Prompts with more tokens are left out.
        seed: Of the order.
        pictures: How rows hold images; None where they have none.

    Raises:
        ValueError: No row has a prompt that is short enough, or a row has no image where all must have one.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        keys: RowKeys,
        renderer: Renderer,
        longest: int,
        seed: int,
        pictures: Pictures | None = None,
    ) -> None:
        self._rows, self._keys, self._renderer, self._seed, self._pictures = rows, keys, renderer, seed, pictures
        measured = [self._measure(number, row) for number, row in enumerate(rows, 1)]
        lengths = [length for length, _ in measured]
        self._kept = [number for number, (length, fits) in enumerate(measured) if length <= longest and fits]
        self.left_out, self.size = len(rows) - len(self._kept), len(self._kept)
        if not self._kept:
            raise ValueError(
                f"all {len(rows)} prompts are longer than lengths.prompt = {longest} tokens"
                f"{' or their images than lengths.images' if pictures else ''}; the shortest has {min(lengths)}"
            )
        self._epoch, self._order = -1, self._kept

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        """Prompts number ``cursor`` to ``cursor + count - 1``; every epoch has each row once."""
        return [self._prompt(index) for index in range(cursor, cursor + count)]

    def _prompt(self, index: int) -> Prompt:
        epoch, place = divmod(index, len(self._kept))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, list(self._kept)
            random.Random(f"rows/{self._seed}/{epoch}").shuffle(self._order)
        number = self._order[place]
        row = self._rows[number]
        images = self._images(row)
        token_ids, text = self._tokens(row, images)
        answer = row.get(self._keys.answer)
        right = "" if answer is None else str(answer)
        said = self._renderer.messages(row[self._keys.prompt])
        return Prompt(
            token_ids,
            right,
            text,
            row=self._judged_by(row),
            images=images,
            messages=said,
            is_chat=bool(said),
            key=str(number),
        )

    def _measure(self, number: int, row: Mapping[str, Any]) -> tuple[int, bool]:
        """Tokens of a row's prompt, and whether there is room for its images."""
        try:
            images = self._images(row)
            fits = self._pictures is None or self._pictures.fit(images)
            return len(self._tokens(row, images)[0]), fits
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error

    def _images(self, row: Mapping[str, Any]) -> tuple[bytes, ...]:
        return () if self._pictures is None else self._pictures.of(row)

    def _tokens(self, row: Mapping[str, Any], images: tuple[bytes, ...]) -> tuple[tuple[int, ...], str]:
        text = self._renderer.text(row[self._keys.prompt], len(images))
        return self._renderer.tokens(text, images), text

    def _judged_by(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row, with its tests under one name."""
        return {**row, "tests": row.get(self._keys.tests)} if self._keys.tests else row
