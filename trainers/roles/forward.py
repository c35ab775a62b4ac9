"""A causal language model's forward pass over rows, the same for policy, reference and teacher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainers.data.batch import stack
from trainers.data.tensors import row_tensors
from trainers.losses import token_log_probs
from trainers.roles.attention import attention_for, prepare_for_packing
from trainers.roles.card import own_threads
from trainers.roles.head import call_with_head, head_log_probs, head_top_tokens
from trainers.roles.model_inputs import gather, response_inputs, response_tokens, scatter
from trainers.roles.shared_prompts import read_shared
from trainers.roles.vision import model_class
from trainers.roles.zero import TORCH_DTYPES, loaded_in_shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.batch import Rows
    from trainers.data.images import ImageReader
    from trainers.data.tensors import RowTensors


EVERYTHING = slice(None)

NEVER = -20.0
"""Log-probability of a candidate that the model has no token for: a teacher's embedding may have more rows."""


def load_frozen(model_path: str, precision: str, pack_tokens: int = 0, divided: Mapping[str, Any] | None = None) -> Any:
    """The causal language model in a folder, on the card where there is one, as it is: nothing of it is trained.

    Args:
        model_path: Folder of the model.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        pack_tokens: Tokens of a packed row; 0: rows are not packed.
        divided: DeepSpeed's configuration where ranks, all of which call this, divide the weights; None: one has all.

    Raises:
        ValueError: Rows are packed, and the model looks across samples.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # a bar in a log file is a long line of noise
    if not torch.cuda.is_available():
        torch.set_num_threads(own_threads())
    with loaded_in_shards(divided):
        model = model_class(model_path).from_pretrained(
            model_path,
            dtype=getattr(torch, TORCH_DTYPES[precision]),
            attn_implementation=attention_for(precision, pack_tokens),
        )
    model = frozen(model, divided)
    if pack_tokens:
        prepare_for_packing(model, lambda rows: response_scores(model, rows, 1.0).log_probs, model.device)
    return model


def frozen(model: Any, divided: Mapping[str, Any] | None = None) -> Any:
    """``model`` where it computes, on the card or as DeepSpeed's engine of ranks that divide it; it never changes."""
    model.requires_grad_(False)
    if divided:
        import deepspeed

        # without an optimizer DeepSpeed's ZeRO-3 only gathers weights and lets go of them (ZeRO-Inference)
        model = deepspeed.initialize(model=model, config=dict(divided))[0]
    else:
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
    model.eval()
    return model


@dataclass(frozen=True)
class Scores:
    """What a model says of the response columns of rows.

    Attributes:
        log_probs: [B, R], of the response tokens; differentiable.
        entropies: [B, R], in nats; differentiable where that was asked for.
        candidates: [B, R, K], of the tokens that were asked for besides; differentiable. None: there were none.
    """

    log_probs: torch.Tensor
    entropies: torch.Tensor
    candidates: torch.Tensor | None = None


def response_scores(
    model: Any,
    rows: RowTensors,
    temperature: float,
    candidates: torch.Tensor | None = None,
    *,
    chunked: bool = True,
    entropy_gradient: bool = False,
) -> Scores:
    """The scores of the response columns of ``rows`` at ``temperature``.

    Args:
        model: The model.
        rows: The rows.
        temperature: Divides the logits.
        candidates: [B, R, K] int64, further tokens to score in the place of each response token.
        chunked: Never hold the logits of all tokens; false is the plain computation, in float32 at once.
        entropy_gradient: Whether entropies are differentiable, for a loss that has them.
    """
    token_ids, unknown = response_tokens(rows).unsqueeze(-1), None
    if candidates is not None:
        vocabulary = getattr(model, "module", model).config.get_text_config().vocab_size
        # an index out of range breaks the process's CUDA context
        unknown, candidates = candidates >= vocabulary, candidates.clamp(max=vocabulary - 1)
        token_ids = torch.cat([token_ids, gather(candidates, rows)], dim=-1)
    found = _log_probs(model, rows, token_ids, temperature, chunked=chunked, entropy_gradient=entropy_gradient)
    entropies = found[..., -1] if entropy_gradient else found[..., -1].detach()
    return Scores(found[..., 0], entropies, None if unknown is None else found[..., 1:-1].masked_fill(unknown, NEVER))


def _log_probs(
    model: Any,
    rows: RowTensors,
    token_ids: torch.Tensor,
    temperature: float,
    *,
    chunked: bool,
    entropy_gradient: bool,
) -> torch.Tensor:
    """[B, R, K + 1]: the log-probabilities of ``token_ids``, K at each position, and last the entropy."""

    def compute(hidden: torch.Tensor, weight: torch.Tensor, columns: slice = EVERYTHING) -> torch.Tensor:
        ids = token_ids[:, columns]
        return head_log_probs(hidden, weight, ids, temperature, entropy_gradient=entropy_gradient)

    if chunked and (shared := read_shared(model, rows, compute)) is not None:
        return shared
    inputs = response_inputs(rows)
    if chunked and (found := call_with_head(model, inputs, compute)) is not None:
        return scatter(found, rows)
    logits = model(**inputs).logits
    chunk = {} if chunked else {"chunk_elements": logits.numel()}
    log_probs, entropies = token_log_probs(logits, token_ids, temperature, entropy_gradient=entropy_gradient, **chunk)
    return scatter(torch.cat([log_probs, entropies.unsqueeze(-1)], dim=-1), rows)


def response_top_tokens(
    model: Any, rows: RowTensors, temperature: float, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-probabilities [B, R] of the response tokens of ``rows``, and the likeliest tokens in their place.

    Args:
        model: The model.
        rows: The rows.
        temperature: Divides the logits.
        count: Likeliest tokens, K; at most as many as the vocabulary has are found.

    Returns:
        Log-probabilities [B, R]; ids [B, R, K], likeliest first; their log-probabilities [B, R, K]. No gradients.
    """
    token_ids = response_tokens(rows)
    found: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def read(hidden: torch.Tensor, weight: torch.Tensor, columns: slice = EVERYTHING) -> torch.Tensor:
        found.append(head_top_tokens(hidden, weight, token_ids[:, columns], count, temperature))
        return found[-1][0]

    with torch.no_grad():
        if read_shared(model, rows, read) is not None:
            own, ids, values = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
            return own, ids, values
        inputs = response_inputs(rows)
        if call_with_head(model, inputs, read) is None:
            logits = model(**inputs).logits
            ids = logits.topk(min(count, logits.shape[-1]), dim=-1).indices  # softmax keeps the order
            both, _ = token_log_probs(logits, torch.cat([token_ids.unsqueeze(-1), ids], dim=-1), temperature)
            found.append((both[..., 0], ids, both[..., 1:]))
    own, ids, values = (scatter(part, rows) for part in found[-1])
    return own, ids, values


def scorer(model: Any, temperature: float = 1.0, *, chunked: bool = True) -> Callable[[RowTensors], Scores]:
    """What ``model`` says of rows, for ``measure_log_probs``; the arguments are those of ``response_scores``."""
    return functools.partial(response_scores, model, temperature=temperature, chunked=chunked)


def measure_log_probs(
    score: Callable[[RowTensors], Scores],
    rows: Rows,
    micro_batch: int,
    device: torch.device,
    reader: ImageReader | None = None,
) -> NDArray[np.float32]:
    """Log-probabilities [B, R] without gradient, ``micro_batch`` rows at a time (0: all at once)."""
    tensors = (row_tensors(part, device, reader) for part in rows.micro_batches(micro_batch))
    with torch.no_grad():
        found = [score(part).log_probs.float().cpu().numpy() for part in tensors]
    columns = rows.response_mask.shape[1]
    return stack(found, columns) if found else np.zeros(rows.response_mask.shape, np.float32)
