"""A published model's ``config.json``: from Hugging Face's cache on this machine, or through its client.

Nothing but this one small file is fetched, and nothing in it is executed.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from pathlib import Path

from rltui.errors import UsageError
from rltui.paths import is_file, with_home

PREFIX = "hf:"
CONFIG = "config.json"
_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")


def cached_config(repo: str) -> Path | None:
    """The ``config.json`` of the revision that ``main`` last was, as huggingface_hub lays out its cache; or None.

    Raises:
        UsageError: The name is none of a model.
    """
    if not _REPO.fullmatch(repo):
        raise UsageError(f"{repo[:100]!r} is not the name of a model.", "Write it as hf:ORG/NAME.")
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    folder = with_home(os.environ.get("HF_HUB_CACHE") or f"{home}/hub") / f"models--{repo.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return None
    path = folder / "snapshots" / revision / CONFIG
    return path if is_file(path) else None


def fetched_config(repo: str) -> Path:
    """The ``config.json`` of the model ``ORG/NAME``, fetched by the hub's client.

    Raises:
        UsageError: The client is not installed, or the file is not to be had.
    """
    try:
        client = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError(
            f"{repo} is not in this machine's cache, and huggingface_hub is not installed to fetch its {CONFIG}.",
            f"Download {CONFIG} yourself and name the file, or pip install huggingface_hub.",
        ) from error
    try:
        download = client.hf_hub_download  # what is behind the name is imported here, and sets its own level
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of every retry; the error says it all
        return Path(download(repo, CONFIG, etag_timeout=5))
    except Exception as error:  # the client's own, the network's and the proxy's: all mean that there is no file
        reason = str(error).strip().split("\n", 1)[0][:200] or type(error).__name__
        raise UsageError(
            f"The {CONFIG} of {repo} is not in this machine's cache and could not be fetched: {reason}",
            f"Offline, download {CONFIG} elsewhere and name the file; a gated model needs HF_TOKEN.",
        ) from error
