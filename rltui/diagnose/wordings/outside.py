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
        ("is a gated repository", ""),
        ("hfhubhttperror", r"HfHubHTTPError: 40[13]\b"),
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
        ("files in the cached path", r"(?i)we cannot find the requested files in the cached path"),
        ("is incomplete", r"cached snapshot for \S+ .{0,200}is incomplete"),
        ("no matching entry was found in the local cache", ""),
        ("cached tree listing found", r"No cached tree listing found"),
        ("outgoing traffic has been disabled", ""),
        (
            "on the hub",
            r"(?i)couldn[’']?t (?:reach|find) ['\"].{1,120}on the Hub|couldn[’']?t find .{0,80}cache.{0,80}on the Hub",
        ),
        ("requested files in the", r"(?i)cannot find the requested files in the (?:disk|local) cache"),
        confidence=0.9,
        # the hub's client resumes a download that broke off, and raises another error when it gives up
        unless=_RETRIED + r"|thrown while requesting|error while downloading from",
    ),
    Sign(
        cause="hf_offline_miss",
        anchor="thrown while requesting",
        pattern=r"(?:huggingface\.co|hf\.co).{0,300}thrown while requesting",
        check=outside_judges.read_hub_request,
    ),
    Sign(
        cause="hf_offline_miss",
        anchor="network is unreachable",
        check=outside_judges.read_unreachable,
    ),
    Sign(
        cause="hf_offline_miss",
        anchor="connecttimeout",
        pattern=r"(?:httpx|httpcore|requests\.exceptions)\.ConnectTimeout",
        unless=_RETRIED + r"|wandb",
        check=outside_judges.read_unreachable,
    ),
    Sign(
        cause="hf_offline_miss",
        anchor="name resolution",
        pattern=r"(?i)(?:ConnectError|ConnectionError|gaierror).{0,80}failure in name resolution",
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
            "429",
            r"429 (?:Client Error: )?Too Many Requests\)? for url:? \(?https://(?:\S+\.)?(?:huggingface|hf)\.co",
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
    Sign(
        cause="hf_rate_limit",
        anchor="429",
        words=("requests",),
        pattern=r"429 Too Many Requests: you have reached your '\w+' rate limit",
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
            r"(?i)wandb.{0,200}(?:\b(?:errors?|response|http|status)\b.{0,40}\b40[13]\b|\b40[13]\b.{0,40}\b(?:error|"
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
        ("communicate with backend after", ""),
        (
            "calling w&b api",
            r"(?i)error while calling W&B API:.{0,120}(?:\b50[0-4]\b|deadline exceeded|timed? ?out|connection)",
        ),
        (
            "wandb",
            r"(?i)(?:wandb|W&B).{0,80}(?:service|core|internal).{0,80}(?:failed to start|exited|crashed|not running|"
            r"did not start)",
        ),
        (
            "",
            "",
            "servicestartprocesserror servicestarttimeouterror mailboxerror mailboxclosederror handleabandonederror",
        ),
        ("failed to connect to service on", r"(?i)wandb.{0,80}Failed to connect to service on (?:port|socket)"),
        ("api.wandb.ai", r"(?i)api\.wandb\.ai.{0,200}(?:timed? ?out|refused|unreachable|max retries|resolve|reset)"),
        confidence=0.85,
        unless=r"(?i)error resolved|rate limit|^(?!.*has timed out).*init_timeout=|"
        r"4\d\d encountered|initiated by the public",
    ),
    Sign(cause="wandb_back", anchor="network error resolved"),
)
