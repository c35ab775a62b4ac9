"""What a program is started with, settings and data that it cannot use; and native code that ends it by a signal."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.raised_in import PARTS
from rltui.diagnose.shells import LINE_OF_SCRIPT, SEGFAULT, SEGFAULT_WORDS
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import BAD_TERMINATION, BY_SIGNAL, ENDED_WITH, ENDING_WORDS, Hit, Reading, Wording, worded

_CRASHES = r"(?:SEGV|ILL|FPE|BUS)"
_READS_ROWS = (
    "dataset",
    "reward_manager",
    "reward_score",
    "reward_fn",
    "rm_hub",
    "data_source",
    "_build_messages",
    "collat",
)
_FRAMES_ABOVE = 6


def read_missing_column(hit: Hit) -> Reading | None:
    """A key that is missing is a column of the data where what reads rows or judges answers looked for it."""
    above = " ".join(line.text.lower() for line in hit.context.before(_FRAMES_ABOVE))
    if "os.environ[" in above:
        return None
    return Reading(0.7) if 'file "' in above and any(name in above for name in _READS_ROWS) else None


def crashed(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A crash while the interpreter goes down, after the last step, takes nothing along."""
    done = all_matches.of("training_done")
    return None if done and matches and done[0].order < matches[0].order else surest(matches)


def read_its_source(fields: Fields) -> tuple[Remedy, ...]:
    """What to do first about an exception, by the part of the run that raised it."""
    part = PARTS[fields.get("part", "program")]
    return (Remedy(id="read-its-source", summary=part.next_step, safe="never"),)


CAUSES = (
    Cause(
        id="program_failed",
        tier="root",
        title="An error ended the program",
        detail="{failure}, raised in {place}",
        tell="The first exception that nothing caught, where it is of no kind that is known here. It stands with its "
        "frames and the part of the run that raised it: rewards, data, engine, learner, settings.",
        remedies=read_its_source,
        wrong=("Reading the last exception: what follows the first one only passes it on.",),
        collect=("the frames of the first exception, and the source line of the innermost of your own",),
        sources=("rltui/diagnose/general.py",),
    ),
    Cause(
        id="settings_rejected",
        tier="root",
        title="The program refuses its own settings",
        detail="{setting}",
        tell="The error comes before anything is loaded, from Hydra, OmegaConf, argparse or a parser of YAML or TOML, "
        "and names the key or the place. Often the script is of another version than the program.",
        wordings=(
            *worded(
                ("is not in struct", r"(?i)\bkey '(?P<setting>[^']+)' is not in struct"),
                (
                    "could not override",
                    r"Could not (?:override|append to config|delete from config)\W.{0,3}'?(?P<setting>[\w.@/+-]+)",
                ),
                # weights in half precision, and a scaler that keeps such weights in single precision
                ("attempting to unscale fp16 gradients", ""),
                ("target module", r"(?i)\btarget module (?P<setting>\w[\w.]*).{0,200} (?:is|are) not supported\b"),
                ("missing mandatory value", r"(?i)MissingMandatoryValue|missing mandatory value:? (?P<setting>\S+)"),
                ("omegaconf.errors", r"omegaconf\.errors\.\w+(?:$|: (?P<setting>.{1,80}))", "omegaconf"),
                (  # what a class that Hydra only calls has raised, it passes on
                    "hydra.errors",
                    r"hydra\.errors\.\w+(?:$|: (?!Error (?:calling|in call to|instantiating))(?P<setting>.{1,80}))",
                    "hydra",
                ),
                ("interpolation key", r"(?i)interpolation key '(?P<setting>[^']+)' not found"),
                ("mismatched input", r"(?:mismatched|extraneous) input '.{1,20}' expecting"),
                ("could not", r"^In '[^']+': Could not \w+ '(?P<setting>[^']+)'"),
                ("cannot find primary config", r"Cannot find primary config '(?P<setting>[^']+)'"),
                (  # argparse
                    "error: ",
                    r"(?<!^conda: )(?<!^mamba: )\berror: (?:(?:unrecognized arguments|the following arguments are "
                    r"required): |argument "
                    r"(?=[\w/, -]+: (?:invalid|expected|ignored|not allowed|conflicting)))(?P<setting>[^\s:]+)",
                    "arguments argument",
                ),
                ("unrecognized options", r"(?i)(?:unrecognized|unknown|unparsed) options?:? (?P<setting>-\S+)"),
                (
                    "are not used by the hfargumentparser",
                    r"Some (?:specified arguments|keys) are not used by the HfArgumentParser",
                ),
                # click, which torchtune, axolotl, Ray and many others have their command lines from
                (
                    "error: ",
                    r"^Error: (?:No such (?:command|option)|Invalid value for|Missing (?:option|argument|parameter)|"
                    r"Got unexpected extra arguments?):? ?\W?(?P<setting>[\w/.-]+)",
                ),
                ("required options", r"(?i)required options?:? (?P<setting>-\S+)"),
                confidence=0.9,
            ),
            *worded(
                ("yaml", r"yaml\.(?:scanner|parser|constructor|composer)\.\w*Error", "yaml"),
                ("tomldecodeerror", ""),
                ("error locating target", r"Error locating target '(?P<setting>[^']+)'"),
                (
                    "validation error",
                    r"\d+ validation errors? for "
                    r"(?P<setting>(?:RL|Trainer|Orchestrator|Inference)\w*|\w+Arg(?:ument)?s\b)",
                    "validation",
                ),
                confidence=0.7,
            ),
        ),
        remedies=(
            Remedy(
                id="mend-setting",
                summary="Correct the key that the error names, by the documentation of the installed version; rltui "
                "check reads the script before it is queued.",
                commands=("rltui check <script>",),
                safe="never",
            ),
        ),
        wrong=("Adding + before a key that the program does not know: it is accepted then, and nobody reads it.",),
        collect=("the version that is installed, and the one that the script was written for",),
        sources=("verl-project/verl#331", "https://hydra.cc/docs/advanced/override_grammar/basic/"),
    ),
    Cause(
        id="data_unfit",
        tier="root",
        title="The data has not the form that the program expects",
        detail="no {column}",
        tell="A KeyError in what reads rows or judges answers, or an error of Arrow or datasets about columns and "
        "types. It comes at the first row, or at the first of another file.",
        wordings=(
            Wording(
                anchor="keyerror: ", pattern=r"KeyError: ['\"](?P<column>[\w .-]+)['\"]?$", check=read_missing_column
            ),
            *worded(
                ("casterror", r"\bCastError: "),
                ("datasetgenerationerror", ""),
                ("no training batches", ""),
                ("column names don't match", ""),
                ("current columns in the dataset", r"KeyError: .{0,4}Column (?P<column>\S+) not in the dataset"),
                # a prompt that was cut through its pictures, or a row that names more or fewer than it has
                ("tokens do not match", r"(?i)(?:image|video|audio) features and \w+ tokens do not match"),
                ("multimodal tokens to", r"multimodal tokens to \d+ placeholders"),
                ("equal size", r"RuntimeError: stack expects each tensor to be equal size"),
                ("arrowinvalid", r"\bArrowInvalid\b"),
                ("arrowtypeerror", r"\bArrowTypeError\b"),
                ("parquet magic bytes not found", ""),
                ("no columns in the dataset match the model", ""),
                confidence=0.85,
            ),
        ),
        remedies=(
            Remedy(
                id="look-at-a-row",
                summary="Look at a row of each file, and name its columns in the settings or write the files anew.",
                commands=("python -c \"import pandas; print(pandas.read_parquet('<file>').iloc[0])\"",),
                safe="never",
            ),
        ),
        wrong=("Catching the error and going on: a reward that is missing becomes zero.",),
        collect=("the columns of each file, and the keys that the program names for prompt and answer",),
        sources=("verl-project/verl#758", "PRIME-RL/TTRL#20"),
    ),
    Cause(
        id="process_crashed",
        tier="effect",
        recovery="restart",
        title="Native code crashed a process",
        detail="by {signal}",
        tell="SIGSEGV, SIGILL, SIGFPE, a broken heap or a failed check, with a native stack but no Python exception. "
        "It comes of a library, a driver or the memory of the node. -9 is no crash: somebody killed it.",
        weigh=crashed,
        wordings=(
            *worded(
                (
                    "fault",
                    r"(?P<signal>Segmentation fault(?! or )|segmentation fault(?= +\(core dumped)|[Ss]egfault)"
                    r"(?!.* in worker\.)",
                    "segmentation segfault",
                ),
                ("", rf"{LINE_OF_SCRIPT}\d+ (?P<signal>{SEGFAULT})", SEGFAULT_WORDS),
                ("killed by signal", r"\bkilled by signal: (?P<signal>Illegal instruction|Floating point exc|Aborted)"),
                # of the interpreter itself; what it says before it runs at all is of its environment
                (
                    "fatal python error",
                    r"Fatal Python error: (?!Aborted|Bus error|Segm|init|config|Py_Init)(?P<signal>\w[\w ]{0,60})",
                ),
                ("core dumped", r"(?P<signal>Illegal instruction|Floating point exception)\s+\(core dumped\)"),
                ("caught signal", r"Caught signal (?:11|4|8) \((?P<signal>[^:)]+)"),
                # a process of Ray ends itself so where it does not reach the head
                (
                    "check failed",
                    r"\.(?:cc|cpp|cu|h):\d+[:\]] +Check failed: (?!.{0,160}\b(?:GCS|[Cc]onnection \w+)\b)",
                ),
                confidence=0.8,
            ),
            # whoever saw it end: Python, torchrun, Ray, a shell, srun
            *worded(
                (
                    "sig",
                    rf"(?i)^(?=.*\b(?:signals?|received|died|killed|interrupted|terminated|caught|crash\w*)\b)"
                    rf".*?\b(?P<signal>SIG{_CRASHES})\b",
                    "sigsegv sigill sigfpe sigbus",
                ),
                ("", rf"(?i){ENDED_WITH}(?P<signal>-(?:11|8|4)|139|136|132)\b", ENDING_WORDS),
                ("signal", rf"(?i){BY_SIGNAL}(?P<signal>11|8|4)\b"),
                confidence=0.8,
                unless=r"(?i)potential root causes|\bcauses(?: include)?:|unexpected error|handler|ignor|"
                r"\(PID: \d+\) died with",  # an engine's client, of a process of the engine,
            ),
            *worded(
                ("double free or corruption", r"(?P<signal>double free or corruption)"),
                ("corrupted", r"^(?P<signal>corrupted (?:size vs\. prev_size|double-linked list))"),
                (  # what glibc says of a broken heap, and by which of its functions it noticed
                    "(): ",
                    r"\b(?:malloc|free|realloc|calloc|munmap_chunk|malloc_consolidate)\(\): "
                    r"(?P<signal>(?:corrupted|invalid|unaligned|unsorted|double|memory corruption|mismatch)[\w ()]*)",
                    "malloc free realloc calloc munmap consolidate",
                ),
                ("stack smashing detected", r"(?P<signal>stack smashing detected)"),
                confidence=0.8,
            ),
            # an abort is mostly somebody's answer to an error that stands above it
            *worded(
                ("exitcode", r"\(exitcode: (?P<signal>-6)\)"),
                ("failed", r"\bfailed\b.{0,300}(?<!error) code (?P<signal>-6)\b"),
                ("signal", r"^signal (?P<signal>6) \(Aborted\)"),
                ("exit code", rf"{BAD_TERMINATION}(?P<signal>11|8|6|4)$"),
                confidence=0.45,
            ),
            Wording(anchor="fatal python error", pattern=r"Fatal Python error: (?P<signal>Aborted)", confidence=0.45),
        ),
        remedies=(
            Remedy(
                id="resubmit-once",
                summary="Go on from the checkpoint once; the same place twice is a library, not chance.",
                commands=("rltui resubmit <run>",),
                safe="confirm",
            ),
            Remedy(
                id="native-stack",
                summary="Have the stack written where it happens, and hold the versions of torch, CUDA, NCCL and the "
                "engine against those that its makers tested.",
                commands=("export PYTHONFAULTHANDLER=1", "ulimit -c unlimited"),
                safe="never",
            ),
        ),
        wrong=("More memory: a process that runs out of it is killed by -9, not by a segmentation fault.",),
        collect=("the native stack above the line", "dmesg of that node: segfault at, Xid, machine check"),
        explains=frozenset({"ray_actor_died", "engine_core_died"}),
        sources=("ray-project/ray#51527", "https://docs.python.org/3/library/faulthandler.html"),
    ),
)
