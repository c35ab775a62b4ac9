"""The table of the shell's verbs: the parser, the completion and the cockpit's ``:`` all read it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct


class Verb(Struct, frozen=True):
    """One verb of the shell.

    Attributes:
        name: What is typed.
        help: A line of help.
        takes: What its first word names; empty where that is nothing that can be listed.
        use: Whether it only reads, changes something, or needs a terminal of its own because it asks or draws.
        changing: Options with which a verb that else only reads changes something.
        module: Of ``rltui.cli``, which does the verb; empty: it is called as the verb is.
    """

    name: str
    help: str
    takes: Literal["", "run", "cluster", "preset"] = ""
    use: Literal["reads", "changes", "terminal"] = "reads"
    changing: tuple[str, ...] = ()
    module: str = ""

    def changes(self, words: tuple[str, ...]) -> bool:
        """Whether the verb changes something when it is called with ``words``."""
        return self.use == "changes" or any(word.partition("=")[0] in self.changing for word in words)


VERBS_BY_AIM = {
    "to start a run, and to change one that waits": (
        Verb("launch", "check a layout and start a run of it", takes="preset", use="changes"),
        Verb("resubmit", "start a run again from its newest checkpoint", takes="run", use="changes"),
        Verb("adopt", "make a run of a job or process that rltui did not start", use="changes"),
        Verb("release-run", "forget an adopted run; its job goes on", takes="run", use="changes", module="job_change"),
        Verb("hold", "keep a pending Slurm job from starting", takes="run", use="changes", module="job_change"),
        Verb("release", "let a held Slurm job start", takes="run", use="changes", module="job_change"),
        Verb("update", "change the time limit or excluded nodes of a waiting Slurm job", takes="run", use="changes"),
        Verb("requeue", "queue a running Slurm job again under the same id", takes="run", use="changes"),
    ),
    "to see runs": (
        Verb("ps", "list runs"),
        Verb("show", "everything about one run", takes="run"),
        Verb("gpus", "every GPU of a run with its role and process", takes="run", changing=("--sample",)),
        Verb("actors", "Ray's actors of a run: state, node, restarts, why they died", takes="run"),
        Verb("queues", "queues of a run's trainer and of its scheduler", takes="run"),
        Verb("metrics", "the metrics of a run", takes="run"),
        Verb("events", "what happened to a run, and when", takes="run"),
        Verb("logs", "print or follow the log of a run", takes="run"),
        Verb("samples", "answers that a run trained on or was evaluated by, the worst or best first", takes="run"),
        Verb("config", "every setting of a run, and where each comes from", takes="run"),
        Verb("history", "where a run's time went: attempts, queues, goodput, what each loss cost", takes="run"),
        Verb("compare", "runs side by side: settings that differ, metrics at the same step", takes="run"),
        Verb("attach", "open the cockpit on one run", takes="run", use="terminal"),
        Verb("shell", "a shell on a node of a run, inside its job", takes="run", use="terminal"),
    ),
    "when something is wrong": (
        Verb("why", "say why a run died, or what went wrong in any log", takes="run"),
        Verb(
            "fix",
            "mend what ended or holds up a run, and start it again from its newest checkpoint",
            takes="run",
            use="changes",
        ),
        Verb("auto", "let a run go on by itself after faults that a new attempt mends", takes="run", use="changes"),
        Verb("cancel", "end a run", takes="run", use="changes"),
        Verb(
            "bundle", "all that is known of a run as one file to attach to a bug report, without secrets", takes="run"
        ),
        Verb("record", "a run as one file that `replay` shows again, without secrets", takes="run"),
        Verb("replay", "show a recorded run again, at any speed, without any cluster", use="terminal"),
    ),
    "to keep and to clear away": (
        Verb("export", "write a run's checkpoint as a Hugging Face folder", takes="run", use="changes"),
        Verb("wandb-sync", "upload what W&B kept offline of a run, by W&B's own sync", takes="run", use="terminal"),
        Verb("du", "what runs take of their disks, the largest first", takes="run"),
        Verb("archive", "put ended runs away as one file each, or bring them back", takes="run", use="changes"),
        Verb("rm", "take ended runs or their old checkpoints away", takes="run", use="changes"),
    ),
    "before anything is queued": (
        Verb("layouts", "list the presets"),
        Verb(
            "check",
            "say what cannot work in a layout (also: rltui --check FILE…)",
            takes="preset",
            changing=("--write",),
        ),
        Verb("draw", "draw who sits on which GPU", takes="preset"),
        Verb("mem", "estimate what each role takes of its GPUs, moment by moment", takes="preset"),
        Verb("plan", "propose the best layouts for a model and GPUs, or a better division of what stands"),
        Verb(
            "calibrate",
            "measure in a run what the cards reach, for plan's next predictions",
            takes="run",
            use="changes",
        ),
        Verb("render", "print the Slurm job script that a launch would submit", takes="preset"),
        Verb("diff", "say in which keys two layouts differ", takes="preset"),
        Verb(
            "import",
            "read another system's launch script into a layout, without running it",
            changing=("--output",),
            module="import_",
        ),
        Verb("schema", "print the JSON Schema of layouts, for editors"),
        Verb("explain", "tell the story behind a finding's code"),
    ),
    "clusters": (
        Verb(
            "clusters",
            "list the clusters, and say where each of their settings comes from",
            takes="cluster",
            changing=("--trust",),
        ),
        Verb("setup", "describe a cluster to rltui, which finds most of it out by itself", use="terminal"),
        Verb("doctor", "test every link to a cluster, and measure it", takes="cluster", changing=("--nodes",)),
        Verb(
            "selftest",
            "a job of ten minutes that tries whether a cluster's nodes carry a layout, and how fast they are",
            use="changes",
        ),
        Verb(
            "nodes",
            "partitions and nodes of a Slurm cluster, and which GPUs are free",
            takes="cluster",
            changing=("--forget",),
        ),
        Verb("queue", "the queue of a cluster: who holds what, your places, which GPUs are free", takes="cluster"),
        Verb("notify", "say who is told of a cluster's runs and how, or try it", changing=("--test",)),
    ),
    "rltui itself": (
        Verb("demo", "watch a tiny model learn on this machine", use="terminal"),
        Verb("help", "find the verb for what you want, in your own words: rltui help hang"),
        Verb("keys", "all keys of the cockpit, screen by screen"),
        Verb("journal", "what was done with runs from this machine, when, and what came of it"),
        Verb("info", "where rltui keeps its things and what is installed"),
        Verb("completion", "print shell completion for bash, zsh, fish or tcsh"),
    ),
}
"""What somebody wants to do → the verbs that do it."""

WORDS = {
    "launch": (
        "start run submit sbatch srun train sweep grid array script multi-node torchrun accelerate salloc "
        "verl slime trl openrlhf nemo-rl"
    ),
    "resubmit": "restart resume retry continue relaunch rerun checkpoint exclude bad node wandb id",
    "adopt": "attach running existing job pid import follow",
    "release-run": "unadopt forget detach adopted",
    "hold": "pause wait",
    "release": "unhold continue",
    "update": "extend time limit walltime change pending",
    "requeue": "preempt preempted same id",
    "ps": "list ls runs jobs status squeue sacct all overview dashboard",
    "show": "status detail describe info inspect scontrol",
    "gpus": "top nvidia-smi nvtop smi gpu utilization utilisation idle power temperature memory usage monitor",
    "actors": "ray dead workers ranks processes placement pending",
    "queues": "rollout queue engine vllm sglang kv cache tokens staleness pending lag",
    "metrics": "reward loss curve chart plot graph tensorboard wandb series",
    "events": "timeline what happened node lost stage",
    "logs": "log tail cat output stdout stderr grep search rank error",
    "samples": "rollouts answers responses completions generations text reward hacking",
    "config": "settings hyperparameters arguments parameters values provenance override",
    "history": "goodput time lost timeline overhead efficiency slow queue wait",
    "compare": "diff curves baseline side sweep experiments overlay plot png csv",
    "attach": "watch open cockpit tui",
    "shell": "ssh exec login node terminal bash interactive",
    "why": (
        "diagnose debug error crash crashed died failed failure oom out memory hang hung hangs "
        "stuck deadlock nccl timeout slow stall straggler rank killed cause root log traceback"
    ),
    "fix": "repair mend heal oom lower memory exclude bad node recover",
    "auto": "hands-off watchdog night restart automatic fault tolerance self-healing unattended preemption bad node",
    "cancel": "kill stop end scancel abort delete signal sigterm",
    "bundle": "issue report bug share py-spy stack stacks dump flight recorder evidence",
    "record": "save session share post-mortem",
    "replay": "play recording session post-mortem",
    "export": "convert huggingface hf save model checkpoint merge adapter weights safetensors",
    "wandb-sync": "offline upload weights biases",
    "du": "disk usage size space quota full",
    "archive": "tar pack backup move cold",
    "rm": "remove clean prune purge delete free space checkpoints",
    "layouts": "presets examples recipes templates configs",
    "check": "validate lint verify dry-run preflight test config errors ci junit sarif verl slime trl openrlhf nemo-rl",
    "draw": "placement picture gpus colocated which card map",
    "mem": "memory estimate calculator fit fits oom vram gib activation kv cache",
    "plan": (
        "suggest recommend auto tune tuning placement parallelism micro-batch throughput "
        "faster slow best gpus how many split optimize"
    ),
    "calibrate": "measure mfu bandwidth rates speed",
    "render": "sbatch script slurm job print template",
    "diff": "compare layouts changes",
    "import": "convert read verl slime trl openrlhf nemo-rl script from",
    "schema": "json editor yaml completion keys",
    "explain": "code meaning story docs error what",
    "clusters": "cluster add-cluster login profile profiles connection",
    "setup": "configure add cluster profile ssh host connect init first",
    "doctor": "connection ssh network latency links test slow link",
    "selftest": "benchmark nccl bandwidth test nodes health check hardware",
    "nodes": "sinfo partitions free gpus idle drained bad blacklist",
    "queue": "sprio squeue waiting pending position start free gpus who",
    "notify": "alert message slack mail email webhook desktop bell tell discord",
    "demo": "try tutorial example start first",
    "help": "apropos search find man how",
    "keys": "shortcuts hotkeys bindings keyboard cheat",
    "journal": "audit commands undo what did",
    "info": "version paths installed where files environment",
    "completion": "tab bash zsh fish tcsh shell",
}
"""Verb → what people ask for who want it, and what other tools call it."""

VERBS = tuple(chain.from_iterable(VERBS_BY_AIM.values()))


def verbs_for(words: Sequence[str]) -> tuple[Verb, ...]:
    """The verbs that do what somebody asks for in ``words`` of their own: those that most of them fit best."""
    lower = [word.lower() for word in words]
    asked = [
        part for word in lower for part in ([word] if word in WORDS else word.replace("_", "-").split("-")) if part
    ]
    fitting = {verb: sum(_likeness(word, (verb.name, *WORDS[verb.name].split())) for word in asked) for verb in VERBS}
    most = max(fitting.values())
    return tuple(verb for verb, likeness in fitting.items() if most and likeness == most)


def _likeness(asked: str, known: Sequence[str]) -> int:
    """2: the same; 1: one begins with the other, as ``hanging`` with ``hang``; "in" or "my" begins too many words."""
    if asked in known:
        return 2
    return int(
        any(
            len(short) > 2 and long.startswith(short)
            for word in known
            for short, long in (sorted((asked, word), key=len),)
        )
    )
