"""Inference engines at work, and what they are asked: prompts, templates, sandboxes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

# Servers and clients have the word in their names.
_SANDBOXES = "sandbox sandboxes sandboxfusion microsandbox opensandbox sandboxserver sandboxclient"
_SCORING_PATH = (
    r"\b(?:run_?code|code[/_](?:run|exec\w*)|exec(?:ute)?(?:_code)?|(?:get_|compute_)?(?:rewards?|score)|envs?)\b"
)
_ENGINE_PATH = (
    r"/(?:generate|v1/(?:chat/)?completions|health(?:_generate)?|(?:update|init)_\w*(?:weights?|param|communicator)\w*|"
    r"(?:pause|resume|release|flush|abort)_\w+|sleep|wake_up|reset_prefix_cache)\b"
)
_ENGINE_FRAME = ("vllm", "sglang", "rollout", "engine")
_NOT_UP = (
    r"(?i)\b(?:servers?|engines?|router)\b.{0,40}"
    r"\bnot (?:yet )?(?:be )?(?:up|ready|available|healthy|running|reach\w+)\b"
)
_WAITS = 3
_LINES_TO_TRACEBACK = 4
_FRAMES_ABOVE = 30


def read_missed_engine(hit: Hit) -> Reading | None:
    """Who still wanted something of the engine runs into an exception right after; who was done does not."""
    after = (line.text for line in hit.context.after(_LINES_TO_TRACEBACK))
    return Reading(0.65) if any(text.startswith("Traceback (most recent call last)") for text in after) else None


def read_endless_wait(hit: Hit) -> Reading | None:
    """Who waits says so again and again: a log that ends in it waited in vain, or goes on waiting."""
    around = [*hit.context.before(_WAITS), *hit.context.after(_WAITS)]
    waits = sum(re.search(_NOT_UP, line.text) is not None for line in around if line.text.strip())
    is_last = all(re.search(_NOT_UP, line.text) for line in hit.context.after(_WAITS) if line.text.strip())
    return Reading(0.5) if is_last and waits >= _WAITS else None


def read_lost_engine(hit: Hit) -> Reading | None:
    """A connection that broke off: only the frames above say to whom it was."""
    above = " ".join(line.text.lower() for line in hit.context.before(_FRAMES_ABOVE) if 'file "' in line.text.lower())
    return Reading(0.7) if any(name in above for name in _ENGINE_FRAME) else None


def engine_core_died(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """The client that waits for a dead engine reports it; the exit line alone is how an offline script ends.

    vLLM's client prints "died unexpectedly" whenever the engine process goes before the client does, and at the end of
    an offline script it does. What tells a death in the middle is somebody who missed the engine.
    """
    exits = all_matches.of("engine_exit_line")
    if not matches:
        done = all_matches.of("engine_work_done")
        missed = all_matches.of("failed_end")
        if not exits or not missed or (done and done[-1].order > exits[0].order):
            return None
        return Verdict(confidence=0.65, matches=tuple(exits))
    return surest([*matches, *exits])


def prompt_too_long(fields: Fields) -> tuple[Remedy, ...]:
    """Filter prompts, or make room for one more token than the longest."""
    prompt = fields.get("prompt", "")
    wanted = f"at least {int(prompt) + 1}" if prompt else "at least one token more than the longest prompt"
    return (
        Remedy(id="filter-prompts", summary="Filter out prompts over the limit before training.", safe="auto"),
        Remedy(
            id="raise-context",
            summary=f"Raise max_model_len to {wanted}, if the model's context allows.",
            safe="confirm",
        ),
    )


CAUSES = (
    Cause(
        id="engine_prompt_too_long",
        tier="root",
        title="A prompt does not fit into the engine's context",
        detail="{prompt} tokens, limit {limit}",
        tell="The engine or its server names both numbers; in vLLM's V1 a prompt of exactly the limit fails too.",
        wordings=worded(
            (
                "longer than the maximum model length",
                r"(?:length (?:of )?(?P<prompt>\d+)\)?.{0,120} |)(?:is )?longer than the maximum model length of "
                r"(?P<limit>\d+)",
            ),
            (
                "maximum context length is",
                r"maximum context length is (?P<limit>\d+) tokens\.? However, you requested (?P<prompt>\d+)",
            ),
            (
                "maximum context length is",
                r"maximum context length is (?P<limit>\d+) tokens\.? However, your prompt contains (?:at least "
                r")?(?P<prompt>\d+)",
            ),
            ("maximum context length is", r"maximum context length is (?P<limit>\d+) tokens"),
            (  # of an image or a video
                "item with length",
                r"item with length (?P<prompt>\d+), which exceeds the pre-allocated encoder cache size (?P<limit>\d+)",
            ),
            (
                "",
                r"(?i)\b(?:prompts?|inputs?)\b[^.]{0,80}\b(?:too long|longer than|exceeds)\b.{0,60}"
                r"\b(?:limit|(?:maximum|allowed|model|context|max_\w+)\b.{0,20}\blen(?:gth)?)\b",
                "prompt prompts input inputs",
            ),
            (
                "",
                r"(?i)\b(?:prompts?|inputs?|requests?)\b.{0,20}?(?P<prompt>\d+) tokens?\b.{0,40}?\bcontext (?:window|"
                r"size)\b\D{0,8}(?P<limit>\d+)",
                "prompt prompts input inputs request requests",
            ),
            (
                "too long",
                r"(?i)prompt \((?:total length )?(?P<prompt>\d+)(?: tokens)?\) is too long(?: (?:and exceeds limit of|"
                r"to "
                r"fit into the model \(context length) (?P<limit>\d+))?",
            ),
            (
                "longer than the model's context length",
                r"(?<!\d)(?P<prompt>\d{1,9}) tokens\) is longer than the model's context length \((?P<limit>\d+)",
            ),
            (
                "the maximum allowed length",
                r"(?i)length \((?P<prompt>\d+) tokens\) exceeds .*length \((?P<limit>\d+)",
            ),
            (
                "exceeds the model's max",
                r"(?i)(?:prompt|input|sequence|tokens?|count).{0,80}exceeds the model's max(?:imum context length of "
                r"(?P<limit>\d+) tokens\. You requested a total of (?P<prompt>\d+))?",
                "exceeds",
            ),
            ("prompt length", r"(?i)prompt length (?P<prompt>\d+) is longer than (?:max_\w+ )?(?P<limit>\d+)"),
            ("is larger than max_length", r"sequence_length=(?P<prompt>\d+) is larger than max_length=(?P<limit>\d+)"),
            ("max_tokens must be at least 1", r"max_tokens must be at least 1, got -?\d+"),
            (
                "maximum context length",
                r"Input length \((?P<prompt>\d+)\) exceeds model's maximum context length \((?P<limit>\d+)",
            ),
            (
                "max_model_len",
                r"prompt (?:has|of|with) (?P<prompt>\d+) tokens.{0,80}(?:more than|exceeds) max_\w+\D+(?P<limit>\d+)",
            ),
        ),
        remedies=prompt_too_long,
        wrong=("Truncating the end of the prompt silently: the question may be lost.",),
        sources=("EleutherAI/lm-evaluation-harness#2880",),
    ),
    Cause(
        id="engine_core_died",
        tier="wrapper",
        recovery="restart",
        title="The engine's process died; this line only passes it on",
        tell="EngineDeadError, 'Engine core initialization failed' and the like come from the side that waits. "
        "The cause is the first ERROR of the engine process itself; where there is none, think of a kill: host "
        "memory, SIGKILL, driver. The same words after the script's last output are the normal end of an offline "
        "script.",
        wordings=(
            *worded(
                "engine core initialization failed",
                ("enginedeaderror", "", "enginedeaderror mqenginedeaderror asyncenginedeaderror"),
                ("enginecore", r"EngineCore (?:encountered|hit|failed|has encountered)"),
                "background loop has errored already",
                "engine background task failed",
                ("background loop", r"Background loop is (?:stopped|not running)"),
                ("died unexpectedly", r"(?:Worker ?[Pp]roc|VllmWorker)\b.*died unexpectedly"),
                ("workerproc", r"WorkerProc (?:initialization failed|failed to start|hit an exception)"),
                ("engine loop", r"(?i)engine loop (?:is not running|has died)"),
                "scheduler hit an exception",
                ("is dead", r"(?i)rank \d+ scheduler is dead|scheduler process is dead"),
                ("sigquit", r"(?i)sigquit.{0,120}child"),
                ("engine process failed to start", ""),
                ("fatal signal from worker processes", ""),
                ("engine core process", r"Engine core process \S+ (?:died|failed)"),
                ("engine core processes", r"Engine core processes \S+ (?:died|failed)"),
                ("process", r"(?i)(?:engine|server|scheduler) process (?:has )?(?:died|terminated unexpectedly)"),
                ("please see the error messages above", r"Initialization failed\. Please see the error messages above"),
                (
                    "please check the stack trace above",
                    r"Worker failed with error .{1,300}, please check the stack trace above",
                ),
                ("childprocesserror", r"ChildProcessError: worker died"),
                ("died with exit code", r"Process \S+ \(PID: \d+\) died with exit code [1-9-]"),
                ("rpc call to", r"RPC call to \w+ timed out"),
                ("engine core processes to start", r"Timed out waiting for (?:new )?engine core processes to start"),
                ("process failed to report zmq", ""),
                # vLLM's watcher of its workers, which is silent where they end as meant
                ("died", r"\bWorker \S+ pid \d+ died, exit code: "),
                "killing local vllm worker processes",
                ("engine process", r"Engine process \(pid \d+\) died"),
                ("mqllmengine is already dead", ""),
                ("timed out waiting for engines to", ""),
                confidence=0.7,
            ),
            Wording(
                anchor="died unexpectedly",
                pattern=r"Engine core proc(?:ess)? \S+ died unexpectedly",
                check=read_missed_engine,
            ),
        ),
        weigh=engine_core_died,
        remedies=(
            Remedy(
                id="restart-once",
                summary="Restart once from the newest checkpoint, and only if nothing above names a cause.",
                safe="confirm",
            ),
        ),
        wrong=("Restarting again and again: what killed it is still there.",),
        collect=(
            "the first ERROR line of the EngineCore or worker process, above this one",
            "dmesg of that node: kernel kills and Xid events",
            "the exit code or signal of the engine process",
        ),
        sources=("vllm-project/vllm#23176", "vllm-project/vllm#32468"),
    ),
    Cause(
        id="engine_unreachable",
        tier="wrapper",
        recovery="restart",
        title="The engine's server does not answer",
        tell="Whoever asks it says so: connection refused, 503, no answer to a health check. Its own log has the "
        "cause: it died, it hangs, or it is still loading.",
        wordings=(
            *worded(
                (
                    "for url",
                    r"(?:50[234] Server Error|Server error '50[234]).{0,40} for url:? '?https?://\S+?" + _ENGINE_PATH,
                    "url",
                ),
                (  # who waits for a server that starts tries it as well
                    "max retries exceeded with url",
                    r"(?i)^(?!.{0,40}\bnot (?:yet )?ready\b).*max retries exceeded with url: \S*?" + _ENGINE_PATH,
                ),
                ("server can't be reached", r"(?i)vllm server can't be reached at"),
                (  # routers in front of engines
                    "",
                    r"(?i)\bno (?:available|healthy) (?:\w+ )?(?:workers?|servers?|replicas?|backends?|engines?)\b",
                    "available healthy",
                ),
                ("get a response from detokenizer", r"Server couldn't get a response from detokenizer"),
                ("health check failed", r"(?i)health check failed for (?:rollout )?engine"),
                ("inference server is not ready", r"(?i)inference server is not ready after"),
                ("cannot connect to host", r"(?i)(?:rollout|engine|sglang|vllm|router).{0,200}cannot connect to host"),
                ("server launch failed", r"RuntimeError: server launch failed"),
                # a plain `vllm serve` has not the paths that TRL asks for
                ("request failed: ", r"^Exception: Request failed: [45]\d\d\b"),
                (
                    "after",
                    r"(?i)\b(?:failed|gave up|giving up) after \d+ (?:retries|attempts|tries)\b"
                    r".{0,600}" + _ENGINE_PATH,
                ),
                ("apiconnectionerror", r"(?:openai|litellm)\.(?:[\w.]+\.)?APIConnectionError"),
                confidence=0.75,
            ),
            Wording(anchor="remotedisconnected(", check=read_lost_engine, words=("remotedisconnected",)),
            Wording(
                anchor=" not ",
                words=("server", "servers", "engine", "engines", "router"),
                pattern=_NOT_UP,
                check=read_endless_wait,
            ),
        ),
        remedies=(
            Remedy(
                id="engine-log",
                summary="Read the server's own log at that time; restart it with the run, and give it longer where it "
                "was still loading.",
                commands=("rltui logs <run> --role engine",),
                safe="auto",
            ),
        ),
        wrong=("A longer time limit for each request: a server that is gone does not answer later.",),
        collect=("the server's own log", "whether its process lives and its port answers from the node that asks"),
        sources=("THUDM/slime#1391", "huggingface/trl#3622"),
    ),
    Cause(
        id="chat_template_missing",
        tier="root",
        title="The tokenizer has no chat template",
        tell="Base models and some quantised copies come without one; transformers dropped its default ones in 4.44.",
        wordings=worded(
            ("chat_template is not set", ""),
            "template error: template not found",
            (
                "chat template",
                r"(?i)default chat template is no longer allowed|does not (?:have|define|provide) a chat[ _]template",
            ),
            (
                "chat template",
                r"(?i)(?:no chat template (?:is )?(?:defined|found|set|specified|provided)|"
                r"chat template (?:is )?(?:missing|not found|not set))(?!\W{1,3}(?:chat api will|using\b|falling))",
            ),
            (
                "chat_template",
                r"(?i)chat_template['\"`]? (?:is )?(?:missing|not found|None\b|null\b)|must provide a chat[ _]template",
            ),
        ),
        remedies=(
            Remedy(
                id="set-chat-template",
                summary="Use the instruct model's tokenizer, or set tokenizer.chat_template (vLLM: --chat-template).",
                safe="confirm",
            ),
        ),
        wrong=("Another engine version: the template belongs to the model's files.",),
        sources=("huggingface/transformers#33246",),
    ),
    Cause(
        id="sandbox_down",
        tier="root",
        recovery="restart",
        title="The code-execution sandbox does not answer",
        tell="Connection refused or timeouts to the sandbox, its /run_code or the server of the rewards; rewards "
        "silently become zero meanwhile.",
        wordings=worded(
            (
                "sandbox",
                r"(?i)sandbox.{0,200}(?:connection refused|timed? ?out|unreachable|unavailable|did not start|failed to "
                r"start|max retries exceeded|is (?:down|not running)|not (?:reachable|responding|"
                r"healthy)|connect(?:ion)? (?:error|failed)|"
                r"(?:status|http|error|code|returned|got|failed)\D{0,12}\b50[234]\b|"
                r"\b50[234]:? (?:bad|service|gateway|server|error))",
                _SANDBOXES,
            ),
            (
                "sandbox",
                r"(?i)(?:failed to (?:start|connect to|reach|create)|cannot connect to|could not connect to|error "
                r"(?:starting|connecting)).{0,60}sandbox",
                _SANDBOXES,
            ),
            ("sandbox", r"(?i)failed to execute code.{0,120}sandbox service is running"),
            (
                "sandbox",
                r"(?i)sandbox (?:api )?(?:call|request|runtime) (?:has )?failed|"
                r"\bSandboxError\b",
                "sandbox sandboxerror",
            ),
            (
                "/run_code",
                r"(?i)(?:max retries exceeded|error|refused|timed out|failed|50[234]).{0,200}/run_code|"
                r"/run_code.{0,200}(?:refused|timed out|error)",
            ),
            # the words of Python's HTTP clients, which say it when they have given up, about a path that runs or scores
            (
                "max retries exceeded with url",
                r"(?i)max retries exceeded with url: /\S*?" + _SCORING_PATH,
            ),
            (
                "cannot connect to host",
                r"(?i)cannot connect to host [\w.-]*(?:reward|judge|sandbox|verif|grader|scor)[\w.-]*:\d",
            ),
            (
                "code execution",
                r"(?i)code execution (?:server|service|api|sandbox).{0,80}(?:refused|timed out|unreachable|unavailable|"
                r"failed)",
            ),
            (
                "judge",
                r"(?i)\b(?:code|math)[ _-]judge\b.{0,160}(?:not available|unavailable|refused|timed? ?out|max "
                r"retries|50[234])",
            ),
            # "sandbox/timeout_rate: 0.02" is a metric, and programs that run out of their own time are an answer
            unless=r"(?i)retry(?:ing)? (?:in|after)|\bretry \d+/\d+|\bstd(?:err|out)['\"]?[:=]|"
            r"sandbox[/_]\w+['\"]?\s?[:=]\s?[\d.]|"
            r"\d (?:programs?|submissions?|solutions?|tests?|test cases?|cases|samples?|rollouts?)\b.{0,20}\btimed? "
            r"?out",
        ),
        remedies=(
            Remedy(
                id="restart-sandbox",
                summary="Check the sandbox's health and restart it, at most three times; pause training while it "
                "is down.",
                safe="auto",
            ),
            Remedy(id="sandbox-concurrency", summary="Halve the number of concurrent executions.", safe="auto"),
        ),
        wrong=("Going on with zero rewards: the policy learns from noise.",),
        collect=("the sandbox server's own log", "whether its port answers from the node that asks"),
        sources=("https://github.com/bytedance/SandboxFusion",),
    ),
)

STATES = {
    "engine_exit_line": (
        Wording(
            anchor="died unexpectedly",
            pattern=r"Engine core proc(?:ess)? \S+ died unexpectedly",
        ),
    ),
    "engine_work_done": (Wording(anchor="processed prompts", pattern=r"Processed prompts: 100%"),),
}
