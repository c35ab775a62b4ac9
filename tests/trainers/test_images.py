"""Images: from a dataset's row to placeholders and patches, and through the models that see them."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from rltui.layout.load import load_text
from trainers.data.batch import Sample, split
from trainers.data.codec import Codec
from trainers.data.images import ImageReader, check_same_images, collapse
from trainers.data.prompts import Prompt
from trainers.data.read_digits import ReadDigits, draw_digits, encode_png
from trainers.data.row_images import row_images
from trainers.data.tasks import make_task
from trainers.data.tensors import row_tensors
from trainers.data.tiny_qwen3_vl import PLACE, TinyVisionSettings
from trainers.roles.engine import EngineActor
from trainers.roles.forward import load_frozen, measure_log_probs, response_scores, scorer
from trainers.roles.hf_engine import HfEngine
from trainers.roles.model_inputs import response_inputs
from trainers.roles.sampling import SamplingSettings
from trainers.roles.vision import freeze_vision, with_images

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.prompts import Task

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SMALL, WIDE = (encode_png(draw_digits(text, random.Random(1))) for text in ("7", "1234"))
"""An image of one token and one of four."""


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = TinyVisionSettings(digits=2, seed=1, warmup_steps=1)
    return str(settings.ensure(tmp_path_factory.mktemp("models"), lambda *_: None))


@pytest.fixture(scope="module")
def reader(model_path: str) -> ImageReader:
    return ImageReader(model_path, longest=32)


def layout_of(*words: str) -> Layout:
    text = (ROOT / "layouts/local/opd-vision-tiny.yaml").read_text()
    return load_text(text, "tiny.yaml", ["lengths.prompt=40", "lengths.images=8", *words]).layout


def task(model_path: str, train: object, *words: str) -> Task:
    return make_task(layout_of(f"data.train={train}", *words), Codec(model_path))


def prompt(reader: ImageReader, model_path: str, text: str, *images: bytes) -> Prompt:
    said = text.replace("I", reader.place)
    return Prompt(reader.expand(Codec(model_path).encode(said), images), "", said, images=images)


def test_a_place_is_as_long_as_its_image_and_collapses_again(reader: ImageReader, model_path: str) -> None:
    written = Codec(model_path).encode(f"a{PLACE}b{PLACE}>")
    token_ids = reader.expand(written, [WIDE, SMALL])
    assert len(token_ids) == len(written) + 4 + 1 - 2
    patches, grids = reader.features([WIDE, SMALL])
    assert (grids.prod(axis=1) // 4).tolist() == [4, 1]
    assert len(patches) == 16 + 4
    assert collapse(token_ids, reader.token_id) == written
    with pytest.raises(ValueError, match="1 images and 2 places"):
        reader.expand(written, [WIDE])


def test_an_image_is_made_as_small_as_the_layout_allows(reader: ImageReader) -> None:
    huge = encode_png(np.zeros((300, 200, 3), np.uint8))
    assert 16 <= reader.tokens_of(huge) <= 32
    _, grids = reader.features([huge])
    assert reader.tokens_of(huge) == grids.prod() // 4


def test_all_forms_in_which_datasets_hold_images(tmp_path: Path) -> None:
    (tmp_path / "seven.png").write_bytes(SMALL)
    coded = base64.b64encode(SMALL).decode()
    said = [{"role": "user", "content": [{"type": "image", "image": "seven.png"}, {"type": "text", "text": "?"}]}]
    forms: list[Any] = ["seven.png", str(tmp_path / "seven.png"), coded, f"data:image/png;base64,{coded}", SMALL]
    forms += [{"bytes": SMALL, "path": None}, {"bytes": None, "path": "seven.png"}]
    dark = base64.b64encode(bytes(900)).decode()  # one text without a slash: no file system has such a name
    assert row_images({"image": dark}, "image", "messages", tmp_path) == (bytes(900),)
    for form in forms:
        assert row_images({"image": form}, "image", "messages", tmp_path) == (SMALL,), str(form)[:30]
        assert row_images({"images": [form, form]}, "images", "messages", tmp_path) == (SMALL, SMALL)
    assert row_images({"messages": said}, "", "messages", tmp_path) == (SMALL,)
    assert row_images({"messages": "no image"}, "", "messages", tmp_path) == ()
    [opened] = row_images({"image": Image.open(io.BytesIO(SMALL))}, "image", "", tmp_path)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(opened))), np.asarray(Image.open(io.BytesIO(SMALL))))
    with pytest.raises(ValueError, match=r"neither a file that is there nor base64: .*gone\.png"):
        row_images({"image": "gone.png"}, "image", "", tmp_path)
    with pytest.raises(ValueError, match="is on the web"):
        row_images({"image": "https://host/x.png"}, "image", "", tmp_path)


def test_rows_become_prompts_with_images_and_long_ones_are_left_out(model_path: str, tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(WIDE)
    parts = [{"type": "image"}, {"type": "text", "text": "how many"}]
    rows = [
        {"prompt": "read <image>now", "image": "wide.png", "answer": 1234},
        {"prompt": "no place named", "image": "wide.png", "answer": 1234},
        {"prompt": [{"role": "user", "content": parts}], "image": "wide.png", "answer": 4},
        {"prompt": [{"role": "user", "content": "<image>and<image>"}], "image": ["wide.png"] * 2, "answer": 8},
        {"prompt": "<image><image><image>", "image": ["wide.png"] * 3, "answer": "more image tokens than 8"},
        {"prompt": "x" * 50, "image": "wide.png", "answer": "more tokens than 40"},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    found = task(model_path, file)
    assert found.left_out == 2
    prompts = {p.text: p for p in found.prompts(0, 4)}
    assert set(prompts) == {
        f"read {PLACE}now",
        f"{PLACE}no place named",
        f"{PLACE}how many>",
        f"{PLACE}and{PLACE}>",
    }
    both = prompts[f"{PLACE}and{PLACE}>"]
    assert both.images == (WIDE, WIDE)
    assert sum(token == ImageReader(model_path).token_id for token in both.token_ids) == 8
    file.write_text("\n".join(json.dumps(row) for row in [*rows[:2], {"prompt": "blind", "image": None}]))
    with pytest.raises(ValueError, match="row 3: there is no image"):
        task(model_path, file)


def test_the_builtin_task_draws_the_same_image_again_and_an_empty_one_as_control(model_path: str) -> None:
    first, blank = (task(model_path, f"builtin/{name}") for name in ("read-digits", "read-digits-blank"))
    assert isinstance(first, ReadDigits)
    assert first.prompts(3, 2) == first.prompts(0, 5)[3:]
    assert len({p.images for p in first.prompts(0, 20)}) == 20
    assert len({p.images for p in blank.prompts(0, 20)}) == 1
    assert [p.answer for p in blank.prompts(0, 20)] == [p.answer for p in first.prompts(0, 20)]
    with pytest.raises(ValueError, match=r"set lengths\.images"):
        task(model_path, "builtin/read-digits", "lengths.images=0")


def test_models_that_cut_images_differently_are_refused_by_name(model_path: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model_path, other)
    described = json.loads((other / "preprocessor_config.json").read_text())
    (other / "preprocessor_config.json").write_text(json.dumps(described | {"patch_size": 8}))
    check_same_images(model_path, model_path, "teacher")
    with pytest.raises(ValueError, match="the teacher sees images otherwise than the learner: patch_size is 4 in"):
        check_same_images(model_path, str(other), "teacher")


def samples_of(reader: ImageReader, model_path: str) -> tuple[list[Prompt], list[Sample]]:
    """Prompts of 6 to 17 tokens with one or two images of several shapes, and what an engine answers to them."""
    tall = encode_png(np.random.default_rng(0).integers(0, 255, (25, 14, 3), np.uint8))
    prompts = [
        prompt(reader, model_path, "I>", WIDE),
        prompt(reader, model_path, "abIcdI>", tall, SMALL),
        prompt(reader, model_path, "Ia", SMALL),
    ]
    layout = layout_of("roles.rollout.engine=hf", "lengths.images=32")
    engine = EngineActor(layout.roles.rollout, model_path, layout.lengths, index=0)
    engine.load()
    settings = SamplingSettings(temperature=0.7, max_tokens=6, samples_per_prompt=3, stop_token_ids=(2,), seed=5)
    completions = engine.generate([p.request for p in prompts], settings)
    samples = [
        Sample(prompts[c.prompt_index].token_ids, c.token_ids, {"engine": c.log_probs}, prompts[c.prompt_index].images)
        for c in completions
    ]
    return prompts, samples


def test_engine_and_learner_agree_on_padded_prompts_with_images(reader: ImageReader, model_path: str) -> None:
    """Wrong positions, patches in another order or a padded row's image in another's place would move them by 0.1."""
    _, samples = samples_of(reader, model_path)
    model = load_frozen(model_path, "fp32")
    for parts in (1, 2):
        for rows in split(samples, parts):
            found = measure_log_probs(scorer(model, 0.7), rows, 2, CPU, reader)
            assert np.abs(found - rows.columns["engine"])[rows.response_mask].max() < 1e-4
    [rows] = split(samples, 1)
    swapped = replace(rows, images=rows.images[::-1].copy())  # type: ignore[index]
    with pytest.raises(ValueError, match="do not match"):
        measure_log_probs(scorer(model, 0.7), swapped, 1, CPU, reader)


def test_what_the_image_shows_decides_what_is_said(reader: ImageReader, model_path: str) -> None:
    _, samples = samples_of(reader, model_path)
    model = load_frozen(model_path, "fp32")
    [rows] = split([samples[0]], 1)
    dark = encode_png(np.zeros_like(draw_digits("1234", random.Random(1))))
    blank = replace(rows, images=np.array([[dark], None], dtype=object)[:1])
    found, other = (measure_log_probs(scorer(model, 0.7), r, 0, CPU, reader) for r in (rows, blank))
    assert np.abs(found - other)[rows.response_mask].max() > 1e-3


def test_a_placeholder_that_is_sampled_ends_the_sample_and_stands_for_no_image(
    reader: ImageReader, model_path: str
) -> None:
    ends = prompt(reader, model_path, "I>", WIDE)
    long = Sample(ends.token_ids, (5, 6, 7, 2), {}, ends.images)
    cut = Sample(ends.token_ids, (5, reader.token_id), {}, ends.images)
    [rows] = split([long, cut], 1)
    model = load_frozen(model_path, "fp32")
    [alone] = split([cut], 1)
    with torch.no_grad():
        both, one = (response_scores(model, row_tensors(r, CPU, reader), 1.0).log_probs for r in (rows, alone))
    assert torch.allclose(both[1, :2], one[0], atol=1e-5)
    engine = HfEngine(layout_of().roles.rollout, model_path, layout_of().lengths, index=0)
    _, cut = engine._stops(SamplingSettings(1.0, 6, 1, (2,), 5))
    assert [cut.length(ids) for ids in ([5, reader.token_id, 6, 2], [5, 2, reader.token_id], [5, 6])] == [2, 2, 2]


def test_rows_that_no_rank_could_run_are_refused(reader: ImageReader, model_path: str) -> None:
    seen = prompt(reader, model_path, "I>", WIDE)
    sample, blind = Sample(seen.token_ids, (5, 2), {}, seen.images), Sample((5, 6), (7, 2), {})
    [mixed] = split([sample, blind], 1)
    with pytest.raises(ValueError, match="a prompt has no image"):
        row_tensors(mixed, CPU, reader)
    [packed] = split([sample, sample], 1, pack_tokens=64)
    with pytest.raises(ValueError, match=r"set lengths\.pack=0"):
        row_tensors(packed, CPU, reader)
    with pytest.raises(ValueError, match=r"set lengths\.images"):
        row_tensors(mixed, CPU)
    [bare] = split([blind], 1)
    assert "position_ids" in response_inputs(row_tensors(bare, CPU))
    inputs = response_inputs(row_tensors(split([sample], 1)[0], CPU, reader))
    assert "position_ids" not in inputs  # the model makes them of the images' shapes
    assert with_images(inputs, {k: inputs[k] for k in ("pixel_values", "mm_token_type_ids")}).keys() >= {"input_ids"}


def test_a_frozen_tower_takes_no_gradient_and_the_rest_does(reader: ImageReader, model_path: str) -> None:
    model = load_frozen(model_path, "fp32").requires_grad_(True)
    freeze_vision(model)
    seen = prompt(reader, model_path, "I>", WIDE)
    rows = row_tensors(split([Sample(seen.token_ids, (5, 2), {}, seen.images)], 1)[0], CPU, reader)
    response_scores(model, rows, 1.0).log_probs.sum().backward()
    trained = {name.split(".")[1] for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert "language_model" in trained
    assert "visual" not in trained
    with pytest.raises(ValueError, match="has no vision tower"):
        freeze_vision(torch.nn.Linear(2, 2))


def test_new_weights_drop_what_the_old_tower_made_of_images() -> None:
    """A stand-in for vLLM, which takes images only with torchvision: its cache of images outlives weights by itself."""
    from unittest.mock import MagicMock

    from trainers.roles.vllm_engine import VllmEngine

    engine = VllmEngine.__new__(VllmEngine)
    engine._index, engine._llm, engine._images = 0, MagicMock(), MagicMock()
    engine._samples = MagicMock(are_under_way=False)
    engine.receive_weights([], version=1)
    names = [call[0] for call in engine._llm.method_calls]
    assert names.index("finish_weight_update") < names.index("llm_engine.reset_encoder_cache")
