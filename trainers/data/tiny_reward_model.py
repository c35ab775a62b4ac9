"""The builtin reward model: a classifier of the tiny model's size that tells sorted digits from others."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.data.sort_digits import random_digits
from trainers.data.tiny_qwen3 import (
    VOCABULARY,
    TinySettings,
    new_tokenizer,
    seeded_on_one_thread,
    tiny_config,
)

PAD = VOCABULARY.index("<pad>")


@dataclass(frozen=True)
class TinyRewardSettings(TinySettings):
    """The reward model.

    After 300 steps it is right about 19 of 20 answers of which most are nearly right.
    """

    outputs: int = 1
    num_heads: int = 4
    num_key_value_heads: int = 4
    warmup_steps: int = 300
    warmup_batch: int = 128
    warmup_learning_rate: float = 3e-3

    def make(self, folder: Path, progress: Callable[[str, float], None]) -> None:
        """Make it, and teach it."""
        from tokenizers.processors import TemplateProcessing
        from transformers import Qwen3ForSequenceClassification

        config = tiny_config(self)
        config.num_labels = self.outputs
        with seeded_on_one_thread(self.seed):
            model = Qwen3ForSequenceClassification(config)
            _teach(model, self, progress)
        model.save_pretrained(folder)
        tokenizer = new_tokenizer(VOCABULARY, self.max_positions)
        ended = TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", VOCABULARY.index("<eos>"))])
        tokenizer.backend_tokenizer.post_processor = ended  # an answer that goes on is another one than one that ends
        tokenizer.save_pretrained(folder)


def _teach(model: Any, settings: TinyRewardSettings, progress: Callable[[str, float], None]) -> None:
    """Supervised steps; that digits are asked about one by one, too, makes a third of the steps enough."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.warmup_learning_rate)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, settings.warmup_steps)
    source = random.Random(f"reward-model/{settings.seed}")
    for step in range(settings.warmup_steps):
        progress(f"teaching the reward model {step}/{settings.warmup_steps}", step / settings.warmup_steps)
        examples = [_example(source, settings.digits, number) for number in range(settings.warmup_batch)]
        ids, labels = (torch.tensor(each) for each in zip(*examples, strict=True))
        hidden = model.model(input_ids=ids, attention_mask=ids.ne(PAD), use_cache=False).last_hidden_state
        asked = labels >= 0
        scores = model.score(hidden[:, settings.digits + 1 :])[..., 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores[asked], labels[asked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()


def _example(source: random.Random, digits: int, number: int) -> tuple[list[int], list[float]]:
    """Token ids of ``352>``, an answer to it and the end token, and labels for all behind the question.

    Up to each digit the answer is right (1) or not (0), at the end token it is the whole of the right one or not, and
    padding has -1. Of eight answers two are right, two have one digit changed, one is too short or too long, one has
    digits in order that are not the question's, and two have the question's digits in any order.
    """
    text = random_digits(source, digits)
    right = sorted(text)
    answer = source.sample(text, digits) if number % 2 else list(right)
    if number % 4 == 0:
        answer[source.randrange(digits)] = source.choice("0123456789")
    if number % 8 == 3:
        answer = sorted(source.choices(source.choice((text, "0123456789")), k=digits))
    if number % 8 == 1:
        answer = source.choice((right[: source.randrange(digits)], [*right, source.choice("0123456789")]))
    labels = [float(answer[:count] == right[:count]) for count in range(1, len(answer) + 1)]
    ids = [VOCABULARY.index(token) for token in (*text, ">", *answer, "<eos>")]
    missing = digits + 1 - len(answer)
    return ids + [PAD] * missing, [*labels, float(answer == right), *[-1.0] * missing]
