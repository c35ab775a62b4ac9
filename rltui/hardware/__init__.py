"""Model architectures and GPUs: tables as data, and the arithmetic that follows from them.

Nothing here knows layouts: what goes in is a model's shape or a card's name, what comes out are exact parameter counts,
bytes of KV cache, FLOPs and the card's figures. Unknown names give None and the nearest known ones, never a guess.
"""
