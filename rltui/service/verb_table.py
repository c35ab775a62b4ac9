"""The table of the shell's verbs: the parser, the completion and the cockpit's ``:`` all read it."""

from __future__ import annotations

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


VERBS = (
    Verb("launch", "check a layout and start a run of it", takes="preset", use="changes"),
    Verb("ps", "list runs"),
    Verb("show", "everything about one run", takes="run"),
    Verb("gpus", "every GPU of a run with its role and process", takes="run", changing=("--sample",)),
    Verb("actors", "Ray's actors of a run: state, node, restarts, why they died", takes="run"),
    Verb("queues", "queues of a run's trainer and of its scheduler", takes="run"),
    Verb("metrics", "the metrics of a run", takes="run"),
    Verb("events", "what happened to a run, and when", takes="run"),
    Verb("history", "where a run's time went: attempts, queues, goodput, what each loss cost", takes="run"),
    Verb("compare", "runs side by side: settings that differ, metrics at the same step", takes="run"),
    Verb("samples", "answers that a run trained on or was evaluated by, the worst or best first", takes="run"),
    Verb("config", "every setting of a run, and where each comes from", takes="run"),
    Verb("logs", "print or follow the log of a run", takes="run"),
    Verb("why", "say why a run died, or what went wrong in any log", takes="run"),
    Verb("bundle", "all that is known of a run as one file to attach to a bug report, without secrets", takes="run"),
    Verb("record", "a run as one file that `replay` shows again, without secrets", takes="run"),
    Verb("replay", "show a recorded run again, at any speed, without any cluster", use="terminal"),
    Verb(
        "fix",
        "mend what ended or holds up a run, and start it again from its newest checkpoint",
        takes="run",
        use="changes",
    ),
    Verb("auto", "let a run go on by itself after faults that a new attempt mends", takes="run", use="changes"),
    Verb("export", "write a run's checkpoint as a Hugging Face folder", takes="run", use="changes"),
    Verb("wandb-sync", "upload what W&B kept offline of a run, by W&B's own sync", takes="run", use="terminal"),
    Verb("attach", "open the cockpit on one run", takes="run", use="terminal"),
    Verb("shell", "a shell on a node of a run, inside its job", takes="run", use="terminal"),
    Verb("adopt", "make a run of a job or process that rltui did not start", use="changes"),
    Verb("release-run", "forget an adopted run; its job goes on", takes="run", use="changes", module="job_change"),
    Verb("cancel", "end a run", takes="run", use="changes"),
    Verb("du", "what runs take of their disks, the largest first", takes="run"),
    Verb("archive", "put ended runs away as one file each, or bring them back", takes="run", use="changes"),
    Verb("rm", "take ended runs or their old checkpoints away", takes="run", use="changes"),
    Verb("resubmit", "start a run again from its newest checkpoint", takes="run", use="changes"),
    Verb("requeue", "queue a running Slurm job again under the same id", takes="run", use="changes"),
    Verb("hold", "keep a pending Slurm job from starting", takes="run", use="changes", module="job_change"),
    Verb("release", "let a held Slurm job start", takes="run", use="changes", module="job_change"),
    Verb("update", "change the time limit or excluded nodes of a waiting Slurm job", takes="run", use="changes"),
    Verb(
        "check", "say what cannot work in a layout (also: rltui --check FILE…)", takes="preset", changing=("--write",)
    ),
    Verb("draw", "draw who sits on which GPU", takes="preset"),
    Verb("mem", "estimate what each role takes of its GPUs, moment by moment", takes="preset"),
    Verb("plan", "propose the best layouts for a model and GPUs, or a better division of what stands"),
    Verb("calibrate", "measure in a run what the cards reach, for plan's next predictions", takes="run", use="changes"),
    Verb(
        "nodes",
        "partitions and nodes of a Slurm cluster, and which GPUs are free",
        takes="cluster",
        changing=("--forget",),
    ),
    Verb("queue", "the queue of a cluster: who holds what, your places, which GPUs are free", takes="cluster"),
    Verb("render", "print the Slurm job script that a launch would submit", takes="preset"),
    Verb("layouts", "list the presets"),
    Verb("diff", "say in which keys two layouts differ", takes="preset"),
    Verb(
        "import",
        "read another system's launch script into a layout, without running it",
        changing=("--output",),
        module="import_",
    ),
    Verb("explain", "tell the story behind a finding's code"),
    Verb("schema", "print the JSON Schema of layouts, for editors"),
    Verb(
        "clusters",
        "list the clusters, and say where each of their settings comes from",
        takes="cluster",
        changing=("--trust",),
    ),
    Verb("setup", "describe a cluster to rltui, which finds most of it out by itself", use="terminal"),
    Verb("notify", "say who is told of a cluster's runs and how, or try it", changing=("--test",)),
    Verb("doctor", "test every link to a cluster, and measure it", takes="cluster", changing=("--nodes",)),
    Verb(
        "selftest",
        "a job of ten minutes that tries whether a cluster's nodes carry a layout, and how fast they are",
        use="changes",
    ),
    Verb("demo", "watch a tiny model learn on this machine", use="terminal"),
    Verb("journal", "what was done with runs from this machine, when, and what came of it"),
    Verb("keys", "all keys of the cockpit, screen by screen"),
    Verb("info", "where rltui keeps its things and what is installed"),
    Verb("completion", "print shell completion for bash, zsh or tcsh"),
)
