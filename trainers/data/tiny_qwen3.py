"""The builtin model: a Qwen3 of 105 k parameters that answers in the right form and knows nothing of sorting.

It is made where it is needed, in seconds, and cached. Its warm-up teaches a random permutation of the prompt's digits
and the end token, so that a first reward of about 1/6 is chance and every rise above it is reinforcement learning.
"""

from __future__ import annotations

import abc
import hashlib
import json
import random
import shutil
import string
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainers.data.sort_digits import random_digits

SPECIAL_TOKENS = ("<pad>", "<bos>", "<eos>", "<unk>")
VOCABULARY = (*SPECIAL_TOKENS, *string.digits, *string.ascii_letters, *string.punctuation, " ", "\n")
CONTENTS = "contents.json"
"""Written last: the SHA-256 of every other file of the model's folder."""


class BuiltinModel(abc.ABC):
    """A model that is made where it is needed: a dataclass of all that its weights depend on."""

    @abc.abstractmethod
    def make(self, folder: Path, progress: Callable[[str, float], None]) -> None:
        """Make it in a folder that is there; ``progress`` is called with a few words and the fraction done."""

    def digest(self) -> str:
        """The name of its folder in the cache: sixteen hexadecimal digits that differ where any setting does."""
        settings: Any = self
        return hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:16]

    def ensure(self, folder: Path, progress: Callable[[str, float], None]) -> Path:
        """Return the model's folder below ``folder``, making it where it is missing or torn."""
        target = folder / self.digest()
        if is_whole(target):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
        try:
            self.make(draft, progress)
            _publish(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return target


@dataclass(frozen=True)
class TinySettings(BuiltinModel):
    """The model of text.

    Attributes:
        digits: Digits of the task.
        seed: Seed of the initial weights and of the warm-up's data.
        head_dim: 32 is the smallest that vLLM's attention for CPUs takes.
        answers: What the warm-up teaches: the digits in a ``random`` order, which is the form only, or ``sorted``.
        warmup_steps: Optimizer steps of the warm-up.
        version: To be raised when the making itself changes.
    """

    digits: int
    seed: int
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 32
    max_positions: int = 512
    answers: Literal["random", "sorted"] = "random"
    warmup_steps: int = 100
    warmup_batch: int = 256
    warmup_learning_rate: float = 2e-3
    version: int = 1

    def make(self, folder: Path, progress: Callable[[str, float], None]) -> None:
        """Make it, and warm it up."""
        with seeded_on_one_thread(self.seed):
            model = _new_model(self)
            _warm_up(model, self, progress)
        model.save_pretrained(folder)
        new_tokenizer(VOCABULARY, self.max_positions).save_pretrained(folder)


def sorter_settings(settings: TinySettings) -> TinySettings:
    """The same model, taught to sort; 400 steps bring it to 99 % and more of right answers."""
    return replace(settings, answers="sorted", warmup_steps=400)


def is_whole(folder: Path) -> bool:
    """Whether every file of the model is there with the bytes it was written with."""
    try:
        contents: dict[str, str] = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        return bool(contents) and all(_digest(folder / name) == digest for name, digest in contents.items())
    except (OSError, ValueError, AttributeError):
        return False


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _publish(draft: Path, target: Path) -> None:
    """Rename ``draft`` to ``target``; where another process was first, its model stays."""
    files = sorted(file for file in draft.iterdir() if file.is_file())
    (draft / CONTENTS).write_text(json.dumps({file.name: _digest(file) for file in files}), encoding="utf-8")
    if target.exists() and not is_whole(target):
        torn = tempfile.mkdtemp(prefix=".torn-", dir=target.parent)
        target.replace(Path(torn) / target.name)
        shutil.rmtree(torn, ignore_errors=True)
    try:
        draft.rename(target)
    except OSError:
        if not is_whole(target):
            raise


@contextmanager
def seeded_on_one_thread(seed: int) -> Iterator[None]:
    """Inside, torch draws from ``seed`` and has one thread; outside it goes on as before."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread is faster on matrices as small as a builtin model's
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _new_model(settings: TinySettings) -> Any:
    from transformers import Qwen3ForCausalLM

    return Qwen3ForCausalLM(tiny_config(settings))


def tiny_config(settings: TinySettings) -> Any:
    """The configuration of a Qwen3 of that shape."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=settings.hidden_size,
        intermediate_size=3 * settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_key_value_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=settings.max_positions,
        tie_word_embeddings=True,
        pad_token_id=VOCABULARY.index("<pad>"),
        bos_token_id=VOCABULARY.index("<bos>"),
        eos_token_id=VOCABULARY.index("<eos>"),
    )


def new_tokenizer(vocabulary: Sequence[str], max_positions: int, special: Sequence[str] = ()) -> Any:
    """One token a character, and for each of the ``special`` ones of ``vocabulary`` besides."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_max_length=max_positions,
        additional_special_tokens=list(special),
    )


def _warm_up(model: Any, settings: TinySettings, progress: Callable[[str, float], None]) -> None:
    """Supervised steps on prompts answered with their digits in the order that ``settings.answers`` says."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.warmup_learning_rate)
    source = random.Random(f"warm-up/{settings.seed}")
    prompt_length = settings.digits + 1
    for step in range(settings.warmup_steps):
        what = "warming up the answer format" if settings.answers == "random" else "teaching the teacher to sort"
        progress(f"{what} {step}/{settings.warmup_steps}", step / settings.warmup_steps)
        rows = [_example(source, settings) for _ in range(settings.warmup_batch)]
        token_ids = torch.tensor(rows)
        logits = model(input_ids=token_ids[:, :-1], use_cache=False, logits_to_keep=settings.digits + 1).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), token_ids[:, prompt_length:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _example(source: random.Random, settings: TinySettings) -> list[int]:
    """Token ids of ``352>`` and of its digits in some order or in the right one, with the end token."""
    text = random_digits(source, settings.digits)
    answer = source.sample(text, settings.digits) if settings.answers == "random" else sorted(text)
    return [VOCABULARY.index(token) for token in (*text, ">", *answer, "<eos>")]
