"""A reward model: a sequence classifier with one output that scores answers and never changes, as a Ray actor class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainers.roles.frozen import FrozenRank
from trainers.roles.meter import measured

if TYPE_CHECKING:
    import torch

    from rltui.layout.roles import RewardModel as Role


class RewardModel(FrozenRank):
    """One replica of the reward model, or one of the ranks that divide its weights."""

    kind = "reward_model"

    @property
    def _role(self) -> Role:
        role = self._layout.roles.reward_model
        assert role is not None
        return role

    def _load_model(self, divided: dict[str, Any] | None) -> Any:
        return load_classifier(self._model_path, self._role.precision, self._role.context, divided)

    @measured("generate")
    def score(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """The model's output for each conversation, given as token ids, one at least.

        They pass in the order in which they come: who asks puts those of a length together, so that little is padded.
        Ranks that divide the weights must be asked together, each with as many.
        """
        import torch

        found: list[float] = []
        with torch.no_grad():
            for start in range(0, len(rows), self._role.micro_batch):
                found += classified(self._model, rows[start : start + self._role.micro_batch]).tolist()
        return found


def load_classifier(model_path: str, precision: str, context: int, divided: Mapping[str, Any] | None = None) -> Any:
    """The sequence classifier in a folder, on the card where there is one.

    Args:
        model_path: Folder of the model.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        context: Tokens of the longest conversation that it will be given.
        divided: DeepSpeed's configuration where ranks, all of which call this, divide the weights; None: one has all.

    Raises:
        ValueError: It is no classifier with one output, or cannot position ``context`` tokens.
    """
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from trainers.roles.card import own_threads
    from trainers.roles.forward import frozen
    from trainers.roles.zero import TORCH_DTYPES, loaded_in_shards

    config = AutoConfig.from_pretrained(model_path)
    if config.num_labels != 1:
        raise ValueError(f"{model_path} is no reward model: it has {config.num_labels} outputs, and one is a score")
    positions = getattr(config.get_text_config(), "max_position_embeddings", 0)
    if 0 < positions < context:
        raise ValueError(
            f"{model_path} has positions for {positions} tokens: set roles.reward_model.context={positions}"
        )
    if not torch.cuda.is_available():
        torch.set_num_threads(own_threads())
    with loaded_in_shards(divided):
        model, notes = AutoModelForSequenceClassification.from_pretrained(
            model_path, dtype=getattr(torch, TORCH_DTYPES[precision]), output_loading_info=True
        )
    if notes["missing_keys"]:  # transformers would draw them at random, and warn
        lacking = ", ".join(sorted(notes["missing_keys"])[:3])
        raise ValueError(f"{model_path} is no reward model: its weights lack {lacking}")
    return frozen(model, divided)


def classified(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """The output of a classifier for each row of token ids: float32 [B].

    Transformers read the score at the last token that is not the model's padding token. Models that name none are
    padded with a token that no row has: one that rows end with would move that place.
    """
    import torch

    text = getattr(model, "module", model).config.get_text_config()  # DeepSpeed's engine has a config of its own
    named = text.pad_token_id
    used = {token for row in rows for token in row}
    padding = named if named is not None else next(token for token in range(text.vocab_size) if token not in used)
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=model.device)
    text.pad_token_id = padding
    try:
        found: torch.Tensor = model(input_ids=ids, attention_mask=mask).logits
    finally:
        text.pad_token_id = named
    return found[:, 0].float()
