"""The builtin model with eyes: a Qwen3-VL of 170 k parameters that knows the form of an answer, or how to read digits.

It is made where it is needed and cached, as the text model of ``trainers.data.tiny_qwen3``.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trainers.data.read_digits import CELL, draw_digits
from trainers.data.tiny_qwen3 import VOCABULARY as LETTERS
from trainers.data.tiny_qwen3 import BuiltinModel, new_tokenizer, seeded_on_one_thread

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
VOCABULARY = (*LETTERS, *VISION_TOKENS)
PLACE = "".join(VISION_TOKENS[i] for i in (0, 2, 1))
"""An image's place in a prompt."""
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}" + PLACE + "{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


@dataclass(frozen=True)
class TinyVisionSettings(BuiltinModel):
    """The model with eyes.

    Attributes:
        digits: Digits of an image.
        seed: Seed of the initial weights and of the warm-up's data.
        head_dim: 32 is the smallest that vLLM's attention for CPUs takes.
        patch_size: Pixels of a patch's side; four patches make one token.
        answers: What the warm-up teaches: ``random`` digits, which is the form only, or those of the image (``read``).
        warmup_steps: Optimizer steps of the warm-up.
        initializer_range: Deviation of the initial weights; with the usual 0.02, so small a model takes long to look
            at the image at all.
        version: To be raised when the making itself changes.
    """

    digits: int
    seed: int
    hidden_size: int = 64
    vision_hidden_size: int = 32
    num_layers: int = 2
    num_heads: int = 2
    head_dim: int = 32
    patch_size: int = CELL // 2
    max_positions: int = 512
    answers: Literal["random", "read"] = "random"
    warmup_steps: int = 40
    warmup_batch: int = 128
    warmup_learning_rate: float = 3e-3
    initializer_range: float = 0.1
    version: int = 1

    def make(self, folder: Path, progress: Callable[[str, float], None]) -> None:
        """Make it, and warm it up."""
        _save_processor(self, folder)
        with seeded_on_one_thread(self.seed):
            model = _new_model(self)
            _warm_up(model, self, _processor(self), progress)
        model.save_pretrained(folder)


def reader_settings(settings: TinyVisionSettings) -> TinyVisionSettings:
    """The same model, taught to read: 150 steps bring it to 99 % and more of right answers."""
    return replace(settings, answers="read", warmup_steps=150)


def _new_model(settings: TinyVisionSettings) -> Any:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": settings.hidden_size,
        "intermediate_size": 3 * settings.hidden_size,
        "num_hidden_layers": settings.num_layers,
        "num_attention_heads": settings.num_heads,
        "num_key_value_heads": 1,
        "head_dim": settings.head_dim,
        "max_position_embeddings": settings.max_positions,
        "initializer_range": settings.initializer_range,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [6, 5, 5],  # of the head's 16 frequencies: for time, height and width
            "mrope_interleaved": True,
        },
        "pad_token_id": VOCABULARY.index("<pad>"),
        "bos_token_id": VOCABULARY.index("<bos>"),
        "eos_token_id": VOCABULARY.index("<eos>"),
    }
    vision = {
        "depth": 1,
        "hidden_size": settings.vision_hidden_size,
        "intermediate_size": 2 * settings.vision_hidden_size,
        "num_heads": 1,
        "patch_size": settings.patch_size,
        "out_hidden_size": settings.hidden_size,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
        "initializer_range": settings.initializer_range,
    }
    names = ("vision_start", "vision_end", "image", "video")
    ids = {f"{name}_token_id": VOCABULARY.index(token) for name, token in zip(names, VISION_TOKENS, strict=True)}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
    config.eos_token_id = VOCABULARY.index("<eos>")
    return Qwen3VLForConditionalGeneration(config)


def _processor(settings: TinyVisionSettings) -> Any:
    from transformers import Qwen2VLImageProcessorPil

    size = {"shortest_edge": CELL**2, "longest_edge": 64 * CELL**2}
    half = [0.5, 0.5, 0.5]
    return Qwen2VLImageProcessorPil(patch_size=settings.patch_size, size=size, image_mean=half, image_std=half)


def _save_processor(settings: TinyVisionSettings, folder: Path) -> None:
    tokenizer = new_tokenizer(VOCABULARY, settings.max_positions, VISION_TOKENS)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    processor = _processor(settings)
    processor.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    described = json.loads(file.read_text(encoding="utf-8"))
    described |= {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen3VLProcessor"}
    file.write_text(json.dumps(described, indent=1), encoding="utf-8")


def _warm_up(model: Any, settings: TinyVisionSettings, processor: Any, progress: Callable[[str, float], None]) -> None:
    """Supervised steps on images answered as ``settings.answers`` says; the rate falls to 0 as a cosine."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.warmup_learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / 20) * (1 + math.cos(math.pi * step / max(1, settings.warmup_steps))) / 2,
    )
    source = random.Random(f"warm-up/{settings.seed}")
    what = "warming up the answer format" if settings.answers == "random" else "teaching the teacher to read"
    for step in range(settings.warmup_steps):
        progress(f"{what} {step}/{settings.warmup_steps}", step / settings.warmup_steps)
        token_ids, images = _examples(source, settings, processor)
        logits = model(
            input_ids=token_ids[:, :-1],
            mm_token_type_ids=(token_ids[:, :-1] == model.config.image_token_id).int(),
            use_cache=False,
            logits_to_keep=settings.digits + 1,
            **images,
        ).logits
        answers = token_ids[:, -settings.digits - 1 :]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _examples(source: random.Random, settings: TinyVisionSettings, processor: Any) -> tuple[Any, dict[str, Any]]:
    """Token ids of image, ``>`` and an answer, the right one or not, with the end token; and the images' patches."""
    import torch

    texts = ["".join(source.choices("0123456789", k=settings.digits)) for _ in range(settings.warmup_batch)]
    images = [draw_digits(text, source) for text in texts]
    start, end, image, _ = VISION_TOKENS
    rows = []
    for text in texts:
        answer = text if settings.answers == "read" else source.choices("0123456789", k=settings.digits)
        row = [start, *[image] * settings.digits, end, ">", *answer, "<eos>"]
        rows.append([VOCABULARY.index(token) for token in row])
    found = processor(images=images, return_tensors="pt", input_data_format="channels_last")
    return torch.tensor(np.array(rows)), {key: found[key] for key in ("pixel_values", "image_grid_thw")}
