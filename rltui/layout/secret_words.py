"""What a secret looks like, so that none is kept in a file that is shown, shared or sent."""

from __future__ import annotations

import re

SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|wandb_v\d_\w{20,}|\b[0-9a-f]{40}\b|AKIA[0-9A-Z]{16}|//[^/@\s]+:[^/@\s]+@"
    r"|hooks\.slack\.com/\w+/\w|discord(?:app)?\.com/api/webhooks/\w"
)
"""Tokens of Hugging Face, OpenAI, W&B (new and old) and AWS, URLs with a password in them, and chats' webhooks."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_?KEY)(?:$|_)"
)
_HARMLESS_NAME = re.compile(r"_(?:PATH|FILE|DIR|URL|MODE|CACHE|LIMIT|LENGTH)$|^TOKENIZERS?_")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: ``HF_TOKEN`` does, ``HF_TOKEN_PATH`` does not."""
    name = name.upper().replace("-", "_")
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)
