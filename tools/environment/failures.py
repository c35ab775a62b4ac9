"""From the output of pip and uv to one sentence and the next step."""

from __future__ import annotations

import re


class SetupError(Exception):
    """A set-up that cannot go on: what happened, and what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


RETRY = "Run the same command again; what was downloaded is kept."

# The first pattern that matches anywhere in the output decides, so the certain ones come before the common ones.
CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"No space left on device|os error 28|Disk quota exceeded|os error 122",
        "the disk is full",
        "Free some space (the folder of .venv and uv's cache both count), then run the same command again.",
    ),
    (
        r"Read-only file system|os error 30|Permission denied|os error 13",
        "the place is read-only or another user's",
        "Clone or copy the project into a folder of your own. uv's cache is moved with UV_CACHE_DIR.",
    ),
    (
        r"ensurepip is not\s+available|No module named '?(?:venv|ensurepip)\b",
        "this Python has no venv module",
        "Debian, Ubuntu: apt install python3-venv. Or name another Python: PYTHON=/path/to/python3.11.",
    ),
    (
        r"(?i)invalid peer certificate|CERTIFICATE_VERIFY_FAILED|UnknownIssuer",
        "the certificate of the package index is not trusted",
        "Behind a proxy that re-signs traffic, point SSL_CERT_FILE (and PIP_CERT) to its certificate file.",
    ),
    (
        r"\b40[137] (?:Client Error|Unauthorized|Forbidden)|Proxy Authentication Required",
        "the package index refuses access",
        "Check the index address and its credentials: pip config list.",
    ),
    (
        r"Hash mismatch|DO NOT MATCH THE HASHES",
        "a downloaded package is not the one that was pinned",
        "Do not use it. Look at the log for its name, and whether your package index alters packages.",
    ),
    (
        r"(?i)dns error|name resolution|Name or service not known|error sending request|Connection refused"
        r"|Max retries exceeded|NewConnectionError|ConnectTimeout|ReadTimeout|operation timed out"
        r"|Network is unreachable|ProxyError|error trying to connect|Could not connect",
        "the package index cannot be reached",
        f"Check network, proxy (HTTPS_PROXY) and index (pip config list). {RETRY}",
    ),
    (
        r"No solution found|ResolutionImpossible|No matching distribution found|no wheels? with a matching",
        "the pinned packages do not exist for this Python or machine in your package index",
        "Try another Python (PYTHON=python3.11), or compare your index with constraints/lock.txt.",
    ),
    (
        r"Failed to build|build backend returned an error",
        "a package could not be built from source",
        "The log names it and its compiler output.",
    ),
)


def explain(output: str) -> tuple[str, str]:
    """Return (cause, next step) for the output of a failed pip, uv or venv."""
    for pattern, cause, hint in CAUSES:
        if re.search(pattern, output):
            return cause, hint
    return "this step failed", RETRY
