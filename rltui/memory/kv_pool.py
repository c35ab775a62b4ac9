"""How many tokens a KV cache of a given size holds, as vLLM divides it.

Layers keep every token, a window, or a state of fixed size. vLLM puts layers of one kind into groups of equal size,
gives every group pages of equal bytes, and lets all groups draw pages from one pool. What it prints as "GPU KV cache
size" is the number of full-length sequences that fit, times their length.
"""

from __future__ import annotations

from msgspec import Struct

from rltui.hardware.kv_cache import KvLayers

PADDING_RATIO = 1.5
"""Where the largest kind has fewer than this times the layers of the smallest, all groups get the larger size."""


class Pool(Struct, frozen=True):
    """Capacity of a KV cache.

    Attributes:
        tokens: Tokens, when every sequence has its full length.
        max_concurrency: Sequences of full length that fit at once.
    """

    tokens: int
    max_concurrency: float


def capacity(
    layers: KvLayers,
    pool_bytes: float,
    max_model_len: int,
    in_flight_tokens: int,
    block_tokens: int,
    linear_states: int = 1,
) -> Pool:
    """Divide ``pool_bytes`` among sequences of ``max_model_len`` tokens.

    Args:
        layers: What one GPU keeps for each sequence.
        pool_bytes: Bytes of the cache on one GPU.
        max_model_len: Longest sequence.
        in_flight_tokens: Tokens that one step may add; a window must hold them too.
        block_tokens: Tokens of one page.
        linear_states: States that a linear layer beside attention keeps of a sequence: one more where prefixes are
            kept, because the state at the last page's end is what another prompt would go on from.
    """
    if pool_bytes <= 0 or max_model_len < 1:
        return Pool(0, 0.0)
    kinds = _kinds(layers, max_model_len, in_flight_tokens, block_tokens, linear_states)
    if len(kinds) == 1:
        return _uniform(layers, pool_bytes, max_model_len, in_flight_tokens, block_tokens)
    block = _block_of(layers, block_tokens)
    page_bytes = layers.layer_token_bytes * block
    group = _group_size([count for count, _ in kinds])
    pages_per_sequence = sum(-(-count // group) * pages for count, pages in kinds)
    pages = int(pool_bytes // (page_bytes * group))
    concurrency = pages / pages_per_sequence
    return Pool(int(concurrency * max_model_len), concurrency)


def _uniform(layers: KvLayers, pool_bytes: float, max_model_len: int, in_flight_tokens: int, block: int) -> Pool:
    """All layers alike: every token takes the same bytes."""
    if not layers.full_layers and not layers.sliding_layers:
        sequences = pool_bytes / (layers.linear_layers * layers.linear_state_bytes)
        return Pool(int(sequences * max_model_len), sequences)
    blocks = int(pool_bytes // (layers.token_bytes * block))
    if layers.sliding_layers:
        needed = _window_pages(layers.window, max_model_len, in_flight_tokens, block)
        return Pool(int(blocks / needed * max_model_len), blocks / needed)
    return Pool(blocks * block, blocks / -(-max_model_len // block))


def _kinds(
    layers: KvLayers, max_model_len: int, in_flight: int, block_tokens: int, linear_states: int
) -> list[tuple[int, int]]:
    """Layers of each kind with the pages that one sequence needs in one of them.

    Pages have equal bytes: layers that take less for a token put more tokens into one.
    """
    block = _block_of(layers, block_tokens)
    full_block = block * max(1, layers.layer_token_bytes // max(1, layers.full_token_bytes))
    kinds = [
        (layers.full_layers, -(-max_model_len // full_block)),
        (layers.sliding_layers, _window_pages(layers.window, max_model_len, in_flight, block)),
        (layers.linear_layers, linear_states),
    ]
    return [kind for kind in kinds if kind[0]]


def _window_pages(window: int, max_model_len: int, in_flight: int, block: int) -> int:
    """Pages of a window: the tokens it sees, those of one step, and one page because it starts inside a page."""
    return -(-min(window - 1 + in_flight, max_model_len) // block) + 1


def _block_of(layers: KvLayers, block_tokens: int) -> int:
    """Tokens of a page; beside linear layers a page must be as large as one of their states."""
    if not layers.linear_layers or not layers.layer_token_bytes:
        return block_tokens
    needed = -(-layers.linear_state_bytes // layers.layer_token_bytes)
    return -(-needed // block_tokens) * block_tokens


def _group_size(counts: list[int]) -> int:
    smallest, largest = min(counts), max(counts)
    return largest if largest < smallest * PADDING_RATIO else smallest
