"""What a secret looks like, so that none is kept in a file that is shown, shared or sent."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|wandb_v\d_\w{20,}|\b(?<!/snapshots/)[0-9a-f]{40}\b|AKIA[0-9A-Z]{16}"
    r"|//[^/@:\s]+:[^/@\s]+@|hooks\.slack\.com/\w+/\w|discord(?:app)?\.com/api/webhooks/\w"
)
"""Tokens of Hugging Face, OpenAI, W&B (new and old) and AWS, URLs with a password in them, and chats' webhooks.

Old ones of W&B have 40 digits, as the revisions by which Hugging Face's cache calls a model's folder."""

SHORTEST_SECRET = 8
"""Shorter values that are known to be secret stand in too many other words to be looked for."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_?KEY)(?:$|_)"
)
_HARMLESS_NAME = re.compile(r"_(?:PATH|FILE|DIR|URL|MODE|CACHE|LIMIT|LENGTH|VARIABLE)$|^TOKENIZERS?_")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: ``HF_TOKEN`` does, ``HF_TOKEN_PATH`` does not."""
    name = name.upper().replace("-", "_")
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)


MASK = "[masked]"

# a name is looked for where a word begins alone: at each of its letters, a word of 100,000 would take minutes
_ASSIGNED = re.compile(
    r"""(?<![A-Za-z0-9_-])[0-9-]*([A-Za-z_][A-Za-z0-9_-]*)(\\?["']?\s*[=:]\s*)"""
    r"""(?!(?:\d{1,6}|null|None|true|false)\b)"""
)
_VALUE = re.compile(r"""(\\?["'])(?:(?!\1).)*\1|[^\s"',;\\{\[]+""")
_OPTION = re.compile(r"(?<![A-Za-z0-9_-])-+([A-Za-z][A-Za-z0-9_-]*)([ =]+)")
_WORD = re.compile(r"()\S+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9+/=._~-]{8,}")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def masked(text: str, known: Iterable[str] = ()) -> str:
    """``text`` with a mask in place of everything that looks like a secret or is given to something so named.

    Args:
        text: Anything that is to be shown, shared or sent.
        known: Secrets that are known, such as a run's own tokens.
    """
    for secret in known:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    return SECRET_VALUE.sub(MASK, _without(_ASSIGNED, _VALUE, _without(_OPTION, _WORD, text)))


def _without(given: re.Pattern[str], value: re.Pattern[str], text: str) -> str:
    """``text`` without values of secret names; those of others may hold such, as in ``--export=HF_TOKEN=…``.

    Args:
        given: A name, and what stands between it and its value.
        value: An opening quote, or nothing, and the rest of the value: looked for behind secret names only, as it may
            reach to the end of the text.
        text: What is masked.
    """
    kept, at = [], 0
    while (found := given.search(text, at)) is not None:
        kept.append(text[at : found.end()])
        at = found.end()
        secret = value.match(text, at) if is_secret_name(found[1]) else None
        if secret is not None:
            quote = secret[1] or ""
            kept.append(f"{quote}{MASK}{quote}")
            at = secret.end()
    return "".join([*kept, text[at:]])
