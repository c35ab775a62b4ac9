"""What a run needs from outside: models and data from the Hugging Face hub, tracking by W&B."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause
from rltui.diagnose.matches import Match, Matches, Verdict, surest, unless_followed_by
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_RETRIED = (
    r"(?i)\bretry(?:ing)? (?:in|after|\d|\(Retry\(total=[1-9])|before retry|\[retry \d+/\d+\]|will retry|"
    r"waiting [\d.]+ ?s"
)


def read_unreachable(hit: Hit) -> Reading | None:
    """A node without a route says so of any host; the lines around it tell that the hub was meant."""
    if "NCCL" in hit.context.line.text:
        return None
    around = hit.context.around(25, 10)
    return Reading(0.8) if re.search(r"huggingface|hf_hub|transformers/utils/hub|datasets/load", around) else None


def read_hub_request(hit: Hit) -> Reading | None:
    """The hub's client says of every failed request that it failed, and in the next line whether it tries again."""
    after = [line.text for line in hit.context.after(4)]
    return None if any(re.search(r"\bRetrying in [\d.]+ ?s", text) for text in after) else Reading(0.85)


def wandb_network(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """Retry loops that ended well do not count."""
    return surest(unless_followed_by(matches, all_matches.of("wandb_back")))


CAUSES = (
    Cause(
        id="hf_gated_auth",
        tier="root",
        title="The Hugging Face hub refused access: gated, private or misspelt, or no valid token",
        tell="401 or 403, GatedRepoError, RepositoryNotFoundError (which private repositories show too).",
        wordings=worded(
            "gatedrepoerror",
            (
                "gated repo",
                r"(?i)cannot access gated repo|access(?:ing)? a gated repo|gated repo.{0,80}(?:401|403|token|log)",
            ),
            ("client error", r"(?i)40[13] Client Error.{0,300}(?:huggingface\.co|hf\.co|Request ID: Root|hf-mirror)"),
            ("is restricted", r"(?i)access to (?:model|dataset) \S+ is restricted"),
            ("repositorynotfounderror", ""),
            ("exist on the hub or cannot be accessed", ""),
            ("not a valid model identifier", ""),
            ("localtokennotfounderror", ""),
            ("is a gated repository", ""),
            ("hfhubhttperror", r"HfHubHTTPError: 40[13]\b"),
            ("", r"(?i)(?:xet|CAS service|hf\.co).{0,200}\((?:401 Unauthorized|403 Forbidden)\)", "xet cas hf"),
            ("repository not found for url", ""),
            ("invalid credentials in authorization header", ""),
            (
                "token",
                r"(?i)(?:huggingface|hugging face|hf).{0,80}(?:invalid|expired) (?:user )?(?:access )?token|invalid "
                r"user "
                r"token",
            ),
            confidence=0.9,
            unless=r"(?i)wandb",
        ),
        explains=frozenset({"hf_offline_miss"}),
        remedies=(
            Remedy(
                id="give-token",
                summary="Ask for access on the model's page, and give a valid token through a file that only you "
                "can read.",
                commands=("huggingface-cli whoami", "export HF_TOKEN_PATH=<file>"),
                safe="confirm",
            ),
        ),
        wrong=("Retrying.", "The token on the command line: every user of the node can read it there."),
        sources=("https://huggingface.co/docs/hub/models-gated",),
    ),
    Cause(
        id="hf_offline_miss",
        tier="root",
        title="A model or data set is not in the cache, and the node has no way to the hub",
        tell="LocalEntryNotFoundError, 'couldn't connect', offline mode: compute nodes often have no internet.",
        wordings=(
            *worded(
                ("localentrynotfounderror", ""),
                ("offlinemodeisenabled", ""),
                (
                    "if you were trying to load it from",
                    # a path that begins so is a folder of one's own, and none of the hub's names
                    r"(?i)can't load (?!.{0,80} (?:of|for) '(?:[/.~]|[a-z]:\\)).{0,160}"
                    r"if you were trying to load it from 'https://huggingface\.co",
                ),
                (
                    "huggingface.co",
                    r"(?i)couldn[’']?t connect to ['\"‘]?https?://huggingface\.co|couldn[’']?t reach "
                    r".{0,80}huggingface",
                ),
                (
                    "huggingface.co",
                    r"(?i)HTTPSConnectionPool\(host=['\"‘]?\[?huggingface\.co.{0,300}(?:Max retries|timed out|"
                    r"unreachable|"
                    r"resolve)",
                ),
                (
                    "huggingface.co",
                    r"(?i)(?:cannot|can't|failed to|unable to) (?:reach|connect to|resolve).{0,40}huggingface\.co|"
                    r"huggingface\.co.{0,80}(?:offline mode is enabled|timed out|unreachable|Name or service not "
                    r"known)",
                ),
                ("couldn't find them in the cached files", ""),
                ("files in the cached path", r"(?i)we cannot find the requested files in the cached path"),
                ("is incomplete", r"cached snapshot for \S+ .{0,200}is incomplete"),
                ("no matching entry was found in the local cache", ""),
                ("cached tree listing found", r"No cached tree listing found"),
                ("outgoing traffic has been disabled", ""),
                (
                    "on the hub",
                    r"(?i)couldn[’']?t (?:reach|find) ['\"].{1,120}on the Hub|couldn[’']?t find .{0,80}cache.{0,80}on "
                    r"the Hub",
                ),
                ("requested files in the", r"(?i)cannot find the requested files in the (?:disk|local) cache"),
                confidence=0.9,
                # the hub's client resumes a download that broke off, and raises another error when it gives up
                unless=_RETRIED + r"|thrown while requesting|error while downloading from",
            ),
            *worded(
                "cas service error",
                ("xethub", r"(?i)(?:error sending request|failed|timed? ?out|dns error).{0,120}xethub\.hf\.co"),
                confidence=0.9,
                unless=_RETRIED + r"|\b(?:401|403|429)\b",  # causes of their own
            ),
            *worded(
                (
                    "download",
                    r"(?i)\b(?:fail\w*|error|unable|could ?n[o']t)\b.{0,40}\bdownload(?:ing|ed)?\b.{0,200}"
                    r"\b(?:SSL|TLS|certificate|proxy|tunnel|resolv\w+|connect\w*|unreachable|timed? ?out)\b",
                    "download downloading downloaded",
                ),
                confidence=0.7,
                unless=_RETRIED + r"|\b(?:401|403|429)\b|(?i:error while downloading)",
            ),
            Wording(
                anchor="thrown while requesting",
                pattern=r"(?:huggingface\.co|hf\.co).{0,300}thrown while requesting",
                check=read_hub_request,
            ),
            Wording(
                anchor="network is unreachable",
                check=read_unreachable,
            ),
            Wording(
                anchor="connecttimeout",
                pattern=r"(?:httpx|httpcore|requests\.exceptions)\.ConnectTimeout",
                unless=_RETRIED + r"|wandb",
                check=read_unreachable,
            ),
            Wording(
                anchor="name resolution",
                pattern=r"(?i)(?:ConnectError|ConnectionError|gaierror).{0,80}failure in name resolution",
                check=read_unreachable,
            ),
        ),
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
        recovery="restart",
        title="The Hugging Face hub refuses for now: asked too often, or it is down",
        tell="429, or 500 to 504. Usually all ranks ask for the same files at once. A wait and a retry by the library "
        "is no failure.",
        wordings=(
            *worded(
                (
                    "429",
                    r"(?i)429 (?:Client )?(?:Error|Too Many Requests).{0,300}(?:huggingface\.co|hf\.co|hf-mirror|"
                    r"\bhub\b)",
                    "client requests error",
                ),
                ("429", r"(?i)(?:HfHubHTTPError|huggingface_hub).{0,200}\b429\b", "hfhubhttperror huggingface"),
                ("server error", r"HfHubHTTPError: 50[0234] Server Error", "hfhubhttperror"),
                (
                    "server error",
                    r"\b50[0234] Server Error: .{0,60} for url: https://(?:\S+\.)?(?:huggingface\.co|hf\.co)/",
                    "server",
                ),
                (
                    "429",
                    r"429 (?:Client Error: )?Too Many Requests\)? for url:? \(?https://(?:\S+\.)?(?:huggingface|"
                    r"hf)\.co",
                    "requests",
                ),
                (
                    "",
                    r"(?i)(?:huggingface|hugging face|\bhf\b|\bhub\b).{0,160}rate[ _-]?limit(?:ed|s)?\b(?! remaining)|"
                    r"we had to rate limit (?:you|your IP)",
                    "limit limited limits ratelimit ratelimited ratelimits",
                ),
                confidence=0.9,
                unless=_RETRIED
                + r"|HTTP Error 429 thrown|(?i:wandb|unauthenticated|not authenticated|higher rate limit|may be rate)",
            ),
            # the hub says when to come again, its client only that it gave up
            Wording(
                anchor="429",
                words=("requests",),
                pattern=r"429 Too Many Requests: you have reached your '\w+' rate limit",
            ),
            Wording(
                anchor="429",
                words=("requests",),
                pattern=r"HTTPError: 429 Client Error: Too Many Requests",
                unless=r"(?i)wandb|http\S*(?<!huggingface\.co)/",
                confidence=0.7,
            ),
        ),
        explains=frozenset({"hf_offline_miss"}),
        remedies=(
            Remedy(
                id="one-rank-downloads",
                summary="Fill the cache once before the run, and go offline on all ranks.",
                commands=("huggingface-cli download <model>", "export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1"),
                safe="auto",
            ),
        ),
        wrong=("More retries on every rank: that is what caused it.",),
        sources=("allenai/OLMo#550", "huggingface/kernels#640"),
    ),
    Cause(
        id="wandb_auth",
        tier="aside",
        title="W&B refused: no key, a wrong one, no right to the project, or its folder is not writable",
        tell="'api_key not configured', 401 or 403, or permission errors in its configuration folder.",
        wordings=worded(
            ("api_key not configured", ""),
            ("no api key configured", ""),
            ("no authentication configured", r"No authentication configured\. Use `wandb"),
            ("find w&b api key", r"Can't find W&B API key"),
            ("not currently logged in", r"not currently logged in to Weights & Biases"),
            ("api key must be", ""),
            (
                "permission denied",
                r"(?i)wandb.{0,200}permission denied|permission denied \(<Response \[40[13]\]>\)|W&B.{0,120}permission "
                r"denied",
            ),
            ("wandb", r"(?i)permission denied: ['\"].{0,200}wandb"),
            (
                "wandb",
                r"(?i)wandb.{0,200}(?:unauthorized|not logged in|failed to authenticate|authentication failed|"
                r"invalid api key|AuthenticationError|do not "
                r"have permission|user is not logged in|could not find entity)",
            ),
            (
                "wandb",
                r"(?i)wandb.{0,200}(?:\b(?:errors?|response|http|status)\b.{0,40}\b40[13]\b|"
                r"\b40[13]\b.{0,40}\b(?:error|"
                r"response|forbidden|status)\b)",
                "error errors response http status forbidden",
            ),
            ("api key you provided", r"(?i)api key you provided is (?:either )?(?:invalid|missing)"),
            ("requested resource", r"(?i)do not have permission to access the requested resource"),
            (
                "upsertbucket",
                r"(?i)(?:permission denied|not found|40[134]).{0,120}upsertBucket|upsertBucket.{0,160}(?:permission "
                r"denied|not found|40[134])",
            ),
            confidence=0.9,
            unless=r"(?i)W&B API key is configured|Currently logged in",
        ),
        explains=frozenset({"wandb_network"}),
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
        sources=("https://docs.wandb.ai/guides/track/environment-variables",),
    ),
    Cause(
        id="wandb_network",
        tier="aside",
        title="W&B's server cannot be reached from the node",
        tell="Network errors with retry loops, or an initialization that times out. 'Network error resolved' ends it.",
        wordings=worded(
            ("entering retry loop", r"(?i)network error.{0,80}entering retry loop"),
            (
                "wandb",
                r"(?i)wandb.{0,200}(?:network error|timed out|timeout|connection (?:refused|reset|error)|unreachable|"
                r"failed to establish|max retries exceeded|name resolution)",
            ),
            ("run initialization has timed out", ""),
            (
                "w&b",
                r"(?i)W&B (?:API|server|service|backend).{0,120}(?:unreachable|timed out|not (?:responding|available)|"
                r"could not (?:be reached|connect))",
            ),
            ("communicating with wandb process", ""),
            ("communicate with backend after", ""),
            (
                "calling w&b api",
                r"(?i)error while calling W&B API:.{0,120}(?:\b50[0-4]\b|deadline exceeded|timed? ?out|connection)",
            ),
            (
                "wandb",
                r"(?i)(?:wandb|W&B).{0,80}(?:service|core|internal).{0,80}(?:failed to start|exited|crashed|not "
                r"running|"
                r"did not start)",
            ),
            (
                "",
                "",
                "servicestartprocesserror servicestarttimeouterror mailboxerror mailboxclosederror "
                "handleabandonederror",
            ),
            (
                "service process is",
                r"WandbApiFailedError: Failed to .{1,80}: the service process is (?:busy|not running)",
            ),
            ("failed to connect to service on", r"(?i)wandb.{0,80}Failed to connect to service on (?:port|socket)"),
            (
                "api.wandb.ai",
                r"(?i)api\.wandb\.ai.{0,200}(?:timed? ?out|refused|unreachable|max retries|resolve|"
                r"reset)",
            ),
            confidence=0.85,
            unless=r"(?i)error resolved|rate limit|^(?!.*has timed out).*init_timeout=|"
            r"4\d\d encountered|initiated by the public",
        ),
        weigh=wandb_network,
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
        sources=("https://docs.wandb.ai/guides/track/environment-variables", "wandb/wandb#1185"),
    ),
)

STATES = {
    "wandb_back": (Wording(anchor="network error resolved"),),
}
