"""A finished run's model for others: pushed to the Hugging Face hub. Nothing here fails the run: its steps are done."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Checkpoint

TOKEN = "HF_TOKEN"
"""Variable of the cluster's env_file that holds the hub's token; a login that is saved somewhere is not used."""


def push(folder: Path, checkpoint: Checkpoint, run: str, deadline_s: float) -> str:
    """Push an exported model to ``checkpoint.push_to_hub``; what came of it, in words.

    Args:
        folder: The model.
        checkpoint: Where to, and whether all may see it. A repository that is there stays as visible as it is.
        run: The run's name, for the commit's message.
        deadline_s: Most seconds that it may take; it is left alone then.
    """
    name, token = checkpoint.push_to_hub, os.environ.get(TOKEN, "")
    trouble = f"the model was not pushed to {name}"
    if os.environ.get("RLTUI_OFFLINE"):
        return f"{trouble}: this cluster's nodes have no internet; it is in {folder}"
    if not token:
        return f"{trouble}: there is no {TOKEN}; a line of the cluster's env_file sets it"
    found: list[str] = []

    def work() -> None:
        try:
            found.append(_push(folder, name, token, f"{run}, {folder.name}", private=not checkpoint.push_public))
        except Exception as error:  # noqa: BLE001 (the outermost edge of this thread: the run has done its steps)
            found.append(f"{trouble}: {type(error).__name__}: {error}".replace(token, "…"))

    thread = threading.Thread(target=work, name="push", daemon=True)
    thread.start()
    thread.join(deadline_s)
    return found[0] if found else f"{trouble} within deadlines.push_s = {deadline_s:g} s; it is in {folder}"


def _push(folder: Path, name: str, token: str, message: str, *, private: bool) -> str:
    from huggingface_hub import HfApi

    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, token=token)
    hub.create_repo(name, private=private, exist_ok=True)
    commit = hub.upload_folder(repo_id=name, folder_path=str(folder), commit_message=message)
    return f"the model is at {commit.commit_url}"
