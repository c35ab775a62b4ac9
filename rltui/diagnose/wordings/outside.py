"""How they say it: The Hugging Face hub and W&B."""

from rltui.diagnose import outside_judges
from rltui.diagnose.signs import Sign, signs

_RETRIED = r"(?i)\bretry(?:ing)? (?:in|after|\d)|before retry|\[retry \d+/\d+\]|will retry|waiting [\d.]+ ?s"

SIGNS = (
    *signs(
        "hf_gated_auth",
        "gatedrepoerror",
        (
            "gated repo",
            r"(?i)cannot access gated repo|access(?:ing)? a gated repo|gated repo.{0,80}(?:401|403|token|log)",
        ),
        ("client error", r"(?i)40[13] Client Error.{0,300}(?:huggingface\.co|hf\.co|Request ID: Root|hf-mirror)"),
        ("is restricted", r"(?i)access to (?:model|dataset) \S+ is restricted"),
        ("repositorynotfounderror", ""),
        ("not a valid model identifier", ""),
        ("localtokennotfounderror", ""),
        ("repository not found for url", ""),
        ("invalid credentials in authorization header", ""),
        (
            "token",
            r"(?i)(?:huggingface|hugging face|hf).{0,80}(?:invalid|expired) (?:user )?(?:access )?token|invalid user "
            r"token",
        ),
        confidence=0.9,
        unless=r"(?i)wandb",
    ),
    *signs(
        "hf_offline_miss",
        ("localentrynotfounderror", ""),
        ("offlinemodeisenabled", ""),
        (
            "if you were trying to load it from",
            r"(?i)can't load .{0,160}if you were trying to load it from 'https://huggingface\.co",
        ),
        (
            "huggingface.co",
            r"(?i)couldn[’']?t connect to ['\"‘]?https?://huggingface\.co|couldn[’']?t reach .{0,80}huggingface",
        ),
        (
            "huggingface.co",
            r"(?i)HTTPSConnectionPool\(host=['\"‘]?\[?huggingface\.co.{0,300}(?:Max retries|timed out|unreachable|"
            r"resolve)",
        ),
        (
            "huggingface.co",
            r"(?i)(?:cannot|can't|failed to|unable to) (?:reach|connect to|resolve).{0,40}huggingface\.co|"
            r"huggingface\.co.{0,80}(?:offline mode is enabled|timed out|unreachable|Name or service not known)",
        ),
        ("couldn't find them in the cached files", ""),
        ("outgoing traffic has been disabled", ""),
        (
            "on the hub",
            r"(?i)couldn[’']?t (?:reach|find) ['\"].{1,120}on the Hub|couldn[’']?t find .{0,80}cache.{0,80}on the Hub",
        ),
        ("requested files in the", r"(?i)cannot find the requested files in the (?:disk|local) cache"),
        confidence=0.9,
        unless=_RETRIED,
    ),
    Sign(
        cause="hf_offline_miss",
        anchor="network is unreachable",
        check=outside_judges.read_unreachable,
    ),
    *signs(
        "hf_rate_limit",
        (
            "429",
            r"(?i)429 (?:Client )?(?:Error|Too Many Requests).{0,300}(?:huggingface\.co|hf\.co|hf-mirror|\bhub\b)",
            "client requests error",
        ),
        ("429", r"(?i)(?:HfHubHTTPError|huggingface_hub).{0,200}\b429\b", "hfhubhttperror huggingface"),
        (
            "rate limit",
            r"(?i)(?:huggingface|hugging face|hf|hub).{0,160}rate.?limit|we had to rate limit (?:you|your IP)",
        ),
        confidence=0.9,
        unless=_RETRIED + r"|HTTP Error 429 thrown|(?i:wandb)",
    ),
    Sign(
        cause="hf_rate_limit",
        anchor="429",
        words=("requests",),
        pattern=r"HTTPError: 429 Client Error: Too Many Requests",
        unless=r"(?i)wandb|http\S*(?<!huggingface\.co)/",
        confidence=0.7,
    ),
    *signs(
        "wandb_auth",
        ("api_key not configured", ""),
        ("no api key configured", ""),
        ("api key must be", ""),
        (
            "permission denied",
            r"(?i)wandb.{0,200}permission denied|permission denied \(<Response \[40[13]\]>\)|W&B.{0,120}permission "
            r"denied",
        ),
        ("wandb", r"(?i)permission denied: ['\"].{0,200}wandb"),
        (
            "wandb",
            r"(?i)wandb.{0,200}(?:\b40[13]\b|unauthorized|not logged in|invalid api key|AuthenticationError|do not "
            r"have permission|user is not logged in|could not find entity)",
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
    *signs(
        "wandb_network",
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
        (
            "wandb",
            r"(?i)(?:wandb|W&B).{0,80}(?:service|core|internal).{0,80}(?:failed to start|exited|crashed|not running|"
            r"did not start)|ServiceStart\w*Error|MailboxError|HandleAbandonedError",
        ),
        ("api.wandb.ai", r"(?i)api\.wandb\.ai.{0,200}(?:timed? ?out|refused|unreachable|max retries|resolve|reset)"),
        confidence=0.85,
        unless=r"(?i)error resolved|rate limit|init_timeout=|4\d\d encountered",
    ),
    Sign(cause="wandb_back", anchor="network error resolved"),
)
