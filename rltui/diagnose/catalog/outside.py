"""What a run needs from outside: models and data from the Hugging Face hub, tracking by W&B."""

from __future__ import annotations

from rltui.diagnose import outside_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Change, Remedy

CAUSES = (
    Cause(
        id="hf_gated_auth",
        tier="root",
        title="The Hugging Face hub refused access: gated, private or misspelt, or no valid token",
        tell="401 or 403, GatedRepoError, RepositoryNotFoundError (which private repositories show too).",
        remedies=(
            Remedy(
                id="give-token",
                summary="Ask for access on the model's page, and give a valid token through a file that only you can "
                "read.",
                commands=("huggingface-cli whoami", "export HF_TOKEN_PATH=<file>"),
                safe="confirm",
            ),
        ),
        wrong=("Retrying.", "The token on the command line: every user of the node can read it there."),
        explains=frozenset({"hf_offline_miss"}),
        sources=("https://huggingface.co/docs/hub/models-gated",),
    ),
    Cause(
        id="hf_offline_miss",
        tier="root",
        title="A model or data set is not in the cache, and the node has no way to the hub",
        tell="LocalEntryNotFoundError, 'couldn't connect', offline mode: compute nodes often have no internet.",
        remedies=(
            Remedy(
                id="prefetch",
                summary="Download it on the login node, and run with the cache and in offline mode.",
                commands=("huggingface-cli download <model>", "export HF_HOME=<shared cache> HF_HUB_OFFLINE=1"),
                safe="auto",
            ),
        ),
        wrong=("Longer timeouts where the node has no route at all.",),
        sources=("https://huggingface.co/docs/transformers/installation#offline-mode",),
    ),
    Cause(
        id="hf_rate_limit",
        tier="root",
        title="The Hugging Face hub limits how often you may ask",
        tell="429. Usually all ranks ask for the same files at once. A wait and a retry by the library is no failure.",
        remedies=(
            Remedy(
                id="one-rank-downloads",
                summary="Fill the cache once before the run, and go offline on all ranks.",
                commands=("huggingface-cli download <model>", "export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1"),
                safe="auto",
            ),
        ),
        wrong=("More retries on every rank: that is what caused it.",),
        explains=frozenset({"hf_offline_miss"}),
        sources=("allenai/OLMo#550", "huggingface/kernels#640"),
    ),
    Cause(
        id="wandb_auth",
        tier="aside",
        title="W&B refused: no key, a wrong one, no right to the project, or its folder is not writable",
        tell="'api_key not configured', 401 or 403, or permission errors in its configuration folder.",
        remedies=(
            Remedy(
                id="wandb-offline",
                summary="Track offline and sync later from the login node; never stop training for it.",
                changes=(Change("tracking.wandb", "set", "offline"),),
                commands=("export WANDB_MODE=offline", "wandb sync <run folder>"),
                safe="auto",
            ),
        ),
        wrong=("The key in the script or on the command line.",),
        explains=frozenset({"wandb_network"}),
        sources=("https://docs.wandb.ai/guides/track/environment-variables",),
    ),
    Cause(
        id="wandb_network",
        tier="aside",
        title="W&B's server cannot be reached from the node",
        tell="Network errors with retry loops, or an initialization that times out. 'Network error resolved' ends it.",
        remedies=(
            Remedy(
                id="wandb-offline",
                summary="Track offline and sync later from the login node; never stop training for it.",
                changes=(Change("tracking.wandb", "set", "offline"),),
                commands=("export WANDB_MODE=offline", "wandb sync <run folder>"),
                safe="auto",
            ),
        ),
        wrong=("A longer init_timeout on a node without internet.",),
        judge=outside_judges.wandb_network,
        sources=("https://docs.wandb.ai/guides/track/environment-variables", "wandb/wandb#1185"),
    ),
)
