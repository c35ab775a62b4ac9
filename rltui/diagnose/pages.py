"""The page of all diagnoses, for the documentation: ``python -m rltui.diagnose.pages > docs/diagnoses.md``."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rltui.diagnose.cause import Cause
from rltui.diagnose.index import CAUSES

CASES = Path(__file__).parents[2] / "tests" / "truth" / "why_cases.txt"

TIERS = {
    "site": "Slurm, kernel and hardware: they end processes, whatever these were doing",
    "root": "Errors that end the process they happen in",
    "effect": "What other ranks see when one is gone: a cause only where nothing else is in view",
    "aside": "Beside the training: seldom what ended it",
    "wrapper": "Wrappers: somebody passes on that something died",
}

INTRODUCTION = """\
# Diagnoses

For people whose run died, or is slow.
What `rltui why` can find, by rank: a cause of an earlier group explains those of later ones. `rltui explain ID` tells
what helps, what does not, and where the knowledge is from. This page is written by
`python -m rltui.diagnose.pages > docs/diagnoses.md`.

`rltui why RUN` reads, besides all logs of the last attempt, what rltui knows of the run: its stages, pre-flight, end,
metrics, the samples of its GPUs, and the state of its Slurm job. `rltui why --log` has the logs only.
"""


ADDING = """\
## Adding a cause

1. One entry in the file of its family in `rltui/diagnose/causes/`: `id`, `tier`, `title`, how to `tell` it, its
   `wordings`, what helps (`remedies`), what does not (`wrong`), and where that is known from (`sources`). A wording
   is a literal anchor in lower case that every such line holds, and, where that is not enough, a pattern on the
   line; `check` looks at the lines around it, `unless` names lines that only look alike. `weigh` is for causes that
   depend on what else was seen. Before a wording, look at the table of `rltui/diagnose/kinds.py`: a row of it knows
   all errors of one kind; one of `kinds_by_place.py` all of one place, one of `answers.py` all with one answer. A new
   family is a new file, and its name in the two tuples of `rltui/diagnose/index.py`.
2. Its examples in the `CASES` of `tests/diagnose/cases_*.py`: logs that have it, and logs that only look as if they
   had. They stand there and not in the entry because every start of the command would have to read them.
3. This page: `python -m rltui.diagnose.pages > docs/diagnoses.md`, then `make test TESTS=tests/diagnose`.
"""

LIVE = """\
## Runs that go on

`rltui why RUN` on a live run also says what holds it up and what goes wrong silently. One word of it stands in
`rltui ps`, in the list of runs and on the overview. Words of lists come from the numbers of the last steps and, once a
minute, from the last half a minute of samples of the GPUs (of 64 nodes at most), and name the GPU: `throttled: GPU 3 of
node1`. `why` reads more of these, and what engines (vLLM, SGLang) say in the log. Metrics of other systems count by
the names that `rltui/onnode/metric_names.py` knows; a number that nobody says leads to no verdict. `rltui why --log`
says the same of a log in which nothing has failed, by the steps in its last two megabytes.

- Nothing is said before three steps besides the first in view. Medians count, so that a step that compiled, saved or
  evaluated is no measure of the others.
- Stalls and failures silence advice on speed: what looks like head-room may be their symptom.
- A silent failure is a warning, never a reason to end a run. Lengths and entropy count only where the reward did not
  rise with them. `why` compares with the attempt's first steps too, so it still says in the morning what went wrong at
  night; the word of a list goes once all the steps that the list reads are alike. The run's own process looks every
  ten minutes where its Python has msgspec: a silent failure is an event of the run (`symptom`), and told (`warned`).
- A change of the layout is offered with what is there and what should be (`Learner GPUs 3 → 5, engines 5 → 3`) and,
  where the phases allow the arithmetic, with the step that it makes: ideal scaling of what was measured, so a best
  case. It is shown only where memory, placement and rules find the changed layout sound, and where it saves a tenth of
  a step or more. Scripts of other systems get the words without a change.
- Engines and learners that share their cards take turns, and rest only while neither works: such a run is neither
  rollout-bound nor learner-bound by its idle times.

`tests/truth/slow.py` (part of `make truth`) measures this on real short runs of the tiny model on CPU, most with a
planted bottleneck (`record_slow.py` makes them), and on made-up series. The first word counts.

| planted | cases | right | said instead |
|---|---|---|---|
| nothing | 58 | 58 |  |
| learner-bound | 11 | 8 | nothing 3 |
| reward-bound | 9 | 9 |  |
| judge constant | 3 | 3 |  |
| straggler | 8 | 8 |  |
| rollout-bound | 11 | 11 |  |
| sync-bound | 8 | 8 |  |
| save overhead | 6 | 5 | nothing 1 |
| data-bound | 2 | 2 |  |
| eval overhead | 3 | 3 |  |
| teacher-bound | 3 | 3 |  |
| critic-bound | 4 | 4 |  |
| long tail | 5 | 5 |  |
| slowed | 2 | 2 |  |
| KL runs away | 2 | 2 |  |
| entropy falls | 2 | 2 |  |
| length grows | 2 | 2 |  |
| truncated | 2 | 2 |  |
| no signal | 2 | 2 |  |
| NaN | 2 | 2 |  |
| mismatch | 2 | 2 |  |
| stale weights | 2 | 2 |  |
| reward races | 2 | 2 |  |
| reward flat | 2 | 2 |  |
| KV-bound | 2 | 2 |  |
| throttled | 4 | 4 |  |

Of 54 cases that were seen while bounds were set 100 % get the right first word, of 47 that were held out (much milder
bottlenecks in other runs) 91 %: those that are missed are just below their bound. None of 58 healthy cases gets a word,
and none of 1,000 run-hours of healthy series (compilation, checkpoints, evaluations and slow steps included) does.
Series that are made up have only the noise that their maker thought of, and no run here had real GPUs: KV-bound,
throttled and slow GPUs were measured on made-up counters and samples alone.
"""

BENCHMARK = """\
## Benchmark

`tests/truth/why_cases.txt` holds <all> excerpts of public issue threads and commits, each with its class and source:
<failures> failures of <classes> classes, and <healthy> of healthy runs. They were labelled before the tool saw them.
`make truth` prints three figures: recall of the first cause (mean over classes), precision of it where it is sure
(confidence of 0.6 and more), and the share of healthy excerpts with an alarm. Whoever has a diagnosis of their own can
read the same file and print theirs. What it is worth on logs that it has never seen, is what it said at first sight:

| excerpts | when | right | precision | healthy alarms |
|---|---|---|---|---|
| first 101 | before the tuning of November 2026 | 65 of 75 | 98.5 % | 0 of 26 |
| first 101 | at first sight, after tuning on other logs | 69 of 75 | 100 % | 0 of 26 |
| 278 fresh ones | at first sight | 172 of 194 | 97.7 % | 0 of 63 |
| the half of these that was held back | after tuning on the other half alone | 90 of 99 | 98.9 % | 0 of 33 |
| 163 of what programs and engines say in their own words | at first sight | 69 of 126 | 66 of 71 | 4 of 37 |
| the half of these that was held back | after tuning on the other half alone | 47 of 62 | 38 of 40 | 3 of 20 |
| 12 more, searched for after that | at first sight | 9 of 10 | 8 of 9 | 0 of 2 |
| 129 of all systems, drawn into three parts | at first sight | 69 of 129 | 64 of 72 | 7 of 59 |
| the second part of these | after tuning on the first, with kinds of exceptions | 30 of 43 | 29 of 39 | 2 of 20 |
| the third part | after tuning on the first two | 35 of 43 | 33 of 38 | 1 of 19 |
| 84 more, as they stand in their threads, drawn into two halves | at first sight | 63 of 84 | 63 of 75 | 0 of 42 |
| the second half of these | after tuning on the first alone | 38 of 42 | 38 of 40 | 0 of 21 |
| 7 more, whose words are those of settings | after tuning on both halves | 4 of 7 | 4 of 7 | – |
| 70 of post-training systems, drawn into two halves | at first sight | 49 of 70 | 47 of 59 | 0 of 7 |
| the second half of these | after tuning on the first alone | 23 of 31 | 22 of 25 | 0 of 6 |
| 38 more, labelled after that | by the version before | 34 of 38 | 32 of 32 | 0 of 6 |
| the same 38 | at first sight, after tuning on both halves of the 70 | 37 of 38 | 35 of 35 | 0 of 6 |
| 42 more, most of them the last lines alone | at first sight, after all of that | 24 of 42 | 22 of 34 | 0 of 4 |
| 14 more, labelled after the misses of these were read | at first sight | 12 of 14 | 12 of 14 | 0 of 1 |
| 76 more of all systems, drawn into two halves by a hash | at first sight | 57 of 76 | 55 of 70 | 0 of 21 |
| the second half of these | after tuning on the first alone (38 of 39) | 29 of 37 | 27 of 32 | 0 of 9 |
| 15 more, labelled after that | at first sight | 13 of 15 | 12 of 13 | – |
| 88 more, most searched for by class, in two halves by a hash | at first sight | 69 of 88 | 66 of 71 | 1 of 20 |
| the second half of these | after tuning on the first alone (35 of 37) | 39 of 51 | 36 of 39 | 1 of 10 |
| 14 more, labelled after that | at first sight | 12 of 14 | 12 of 12 | 0 of 5 |
| 161 more, half of them in repositories, in two halves | by the version before | 125 of 161 | 114 of 139 | 1 of 4 |
| the first half of these | after tuning on it | 71 of 76 | 61 of 63 | 0 of 3 |
| the second half, by the version before | at first sight | 69 of 85 | 65 of 74 | 0 of 1 |
| the second half of these | after tuning on the first alone | 70 of 85 | 65 of 72 | 0 of 1 |
| both | after their misses were read | 147 of 161 | 131 of 137 | 0 of 4 |
| 19 more, labelled after that | at first sight | 18 of 19 | 18 of 19 | – |
| 113 more, most searched for by class, in two halves | by the version before | 95 of 113 | 92 of 102 | 1 of 27 |
| the first half of these | after tuning on it and on held-out sources | 41 of 44 | 41 of 41 | 0 of 13 |
| the second half, by the version before | at first sight | 60 of 69 | 57 of 61 | 0 of 14 |
| the second half of these | after tuning on the first and on held-out sources | 61 of 69 | 57 of 59 | 0 of 14 |
| 33 more, of repositories that no round has, most last lines | at first sight | 26 of 33 | 26 of 28 | – |
| 36 more, 29 of them of repositories that no round has | at first sight | 28 of 36 | 27 of 29 | 0 of 9 |
| 85 more, most searched for by class | at first sight, the last 16 after tuning on the rest | 68 of 85 | 67 of 71 | – |
| 44 more, of repositories that no round has | at first sight, after tuning on these | 31 of 44 | 31 of 39 | 0 of 11 |
| 57 more, of new repositories, half of them no post-training | at first sight | 44 of 56 | 41 of 43 | 0 of 1 |
| 20 more, three quarters of them no post-training | at first sight, after tuning on these | 9 of 20 | 6 of 9 | – |
| 7 more | at first sight, after tuning on both | 5 of 7 | 4 of 6 | – |
| 70 more, of other kinds of repositories (tools, workflows, simulations) | at first sight | 46 of 70 | 42 of 49 | – |
| 24 more of these kinds, labelled after that | by the version before | 14 of 24 | 14 of 16 | – |
| the same 24 | at first sight, after tuning on the 70 | 15 of 24 | 14 of 16 | – |
| 17 more, of installers, simulators and docker most | at first sight, after tuning on all | 5 of 17 | 5 of 9 | 1 of 2 |
| 45 more, of new repositories, searched for by symptom | by the version before | 26 of 45 | 24 of 29 | – |
| the same 45 | at first sight, after places and answers were read | 28 of 45 | 25 of 31 | – |
| 66 more, of what commits of new repositories mend, most last lines | by the version before | 53 of 66 | 41 of 44 | – |
| the same 66 | at first sight, after errors of other libraries were read | 53 of 66 | 41 of 45 | – |
| 51 more of these, half of them open between two classes | by both versions | 48 of 51 | 31 of 31 | – |
| 70 of threads that no round has, searched for by class | at first sight | 60 of 70 | 58 of 60 | 1 of 30 |
| 35 more, labelled after that | at first sight, after tuning on the 70 | 30 of 35 | 26 of 26 | 0 of 4 |
| 37 more, searched for by symptom, many worded as known ones | at first sight | 33 of 37 | 29 of 29 | 1 of 18 |
| 19 more of classes with few cases, searched for by their words | at first sight | 15 of 19 | 14 of 14 | – |
| 80 more, 38 of them from troubleshooting pages | at first sight | 51 of 80 | 50 of 60 | – |
| outputs of healthy runs as repositories show them | at first sight | – | – | 2 of 162 |
| runs that went on after a failure, most of them written | at first sight | – | – | 18 of 56 |
| 61 threads, and 82 outputs that 31 repositories show, drawn at random | at first sight | 54 of 61 | – | 3 of 82 |
| 56 threads and errors in notebooks, and 182 outputs of 52 repositories | at first sight | 38 of 56 | – | 6 of 182 |
| those in the file, each repository held out | without words only its cases support | 1,577 of 1,679 | 98.1 % | – |
| the <all> in the file | now, its misses read: no longer unseen | <failures> of <failures> | 100 % | 0 of <healthy> |

So of unseen failures nine of ten with usual words get the right cause and one of twenty a wrong one; of those in words
that no earlier round had (the 70: new systems, assertions of kernels, NVSHMEM) it is seven of ten and one of six, and
of last lines without their frames (the 42) six of ten. What it says then is seldom misleading: of the 12 wrong causes
of these 42, 10 were `program_failed` with the right line. Classes with few cases do worse. How sure it is, says how
often it is right: at first sight of 91, 43 of 44 causes of confidence 0.8 and more were right, 6 of 8 from 0.7, and 18
of 31 where no wording knows the error. Which of these can be trusted, shows `tests/truth/why_folds.py`: it asks each
repository's cases without the wordings and kinds that only they support. Before, 83.8 % were right so, and 84 of 862
sure causes wrong, 65 of them `program_failed`. An error of no known kind was the program's own in 66 of 85 cases where
its source line is in the log, and in 17 of 47 where it is not; so it has 0.62 with it, and 0.5 without, where the
exception itself is shown. Where no wording knows an error, its kind decides: the exception's class, what it speaks of,
its frames and source line (`rltui/diagnose/kinds.py`), and where no words tell, the place that raised it: the folders
of libraries keep what reads settings, files, models and servers apart (`kinds_by_place.py`). Of 5,008 errors, every
tenth that the sources of 29 libraries and frameworks can raise, 59 % were only an error of the program before, and 50 %
are now; but of 180 failures that the version before had not seen, places alone changed none. Of 195 errors of 23
other libraries, labelled by their source before they were asked, 125 were right and 68 surely wrong; after the errors
of 35 libraries (400 of 5,479) were read for what refusals of settings, kernels and versions have in common
(`kinds_of_settings.py`) 136 were right and 57 surely wrong at first sight, and 148 and 45 once their misses were
read. Of 129 messages of six frameworks that train 94 were right and 34 surely wrong at first sight, and 103 and 25 once
bounds of numbers, open variables and servers' own exceptions were read; of 80 of five others, labelled after that, 66
were right, with these rows and without. What systems answer is a
finite list, too (errors of the operating system, signals, who complains; `answers.py`): as guesses, and before they
were mended on what they got wrong, these lists took the 180 from 121 right to 133, wrong in 3 of 15
that they changed. What is of no kind is
`program_failed`, with the first exception that the run did not survive, the part of the run that raised it and a next
step. It is preferred to a cause that might
fit: settings are blamed only where they are named, with a value or the values that there are, or where what is made of
them refuses what it was told, and the innermost frame is
neither at work (forward, a step, generation) nor inside torch. Of the 7 logs with such words none got a wrong cause; 2
of the 3 misses were `program_failed` with the right line, 1 named the wrapper. Where the thread leaves two classes
open, both count as right (15 of the 84). 20 of the 37, 40 of the 59 and 18 of the last 30 healthy ones were written
from memory, and the failures of the 129 and a third of the last 91 were completed from titles, or as the program prints
them, where excerpts were cut; nothing was in the 84, and in 12 of the 108 and a quarter of the 56 of the last rounds
the last line is from the title or from what the thread or the program says of it. The file leaves out what is still
missed: a torchrun that was ended by SIGTERM from outside, an engine core whose only word is that it died, a server that
nobody can tell from other servers and does not answer, most tracebacks that the log cuts off before their exception, a
kernel of the hub that this processor lacks, srun's first word that a step waits with nothing after it, and a NaN in the
last step that a program says it skips (an alarm). Of the 113 three are: a socket's path that Ray's C++ finds too long,
a CUDA error that bitsandbytes prints, and an attribute that the program's own class lacks.

What carries over to logs of others is how lines are read, more than words. With a prefix that was in no list (named
loggers, Airflow, what the nodes of Kubernetes write) 259 to 261 of 1,760 known failures lost their cause; these three
are known now (1 to 3 are lost). Records of JSON are read as the text that they carry (docker, structlog, Ray; a
traceback in one field too): of 965 known failures written so 1 loses its cause, also where a prefix stands before the
record (271 before), and 55 where a collector calls every line information (250 before). Written into one line with its
line ends escaped, in quotes or in a dictionary, 78 lose it (297 before): most have neither a traceback nor an
exception. Lines that pytest or a letter quotes (`E   `, `> `) lose none (90 before). Any other prefix is learned: from
the frames of the file's tracebacks, and from how nine of ten lines at its start or end begin, where those are 20 or
more, what follows differs, and a number, or a level with a name, is part of it. Whole logs behind two prefixes that
were held out lose 0 of 862 known failures (66 from frames alone), and 1 of 236 healthy ones gets an alarm (6; 1 without
a prefix). Not learned are an unknown prefix of a few lines among others without a frame (142 of 1,760 lost), and one
with a name of changing length or a word that causes are known by (`vllm`). The line of the evidence alone, without what
stands around it, keeps its cause in 1,609 of 1,724: 45 of the others say only that CUDA's memory ran out, where no more
than the frames tell in what, and 37 are a bare `AssertionError` or `KeyError`, which get `program_failed`. Words of one
round seldom help in the next one: tuning on the 37 of the last round's first half turned 1 of the 13 misses of its
second half. Where no wording and no exception says why, the last frame of a traceback that is cut off, or who complains
(NCCL, the NVIDIA driver, Slurm, pyxis), gives a guess of 0.5 (`rltui/diagnose/guesses.py`); of 11 known tracebacks that
were cut off for a trial the frame guessed 8 rightly.

An excerpt that has lost the lines that say why should get a guess and no sure cause: of 893 known failures, those of
four lines and more were cut in four ways (the first half, the second, the last three lines, all but the last), and 56
of 1,536 cuts get a wrong cause of 0.6 or more, half as many as by the version before (103). Most of these name the
wrapper that is left. A class without words, words that lead elsewhere (`run with NCCL_DEBUG=INFO`), an assertion on
the device, and a line of CUDA's memory without a frame or a step above it are therefore guesses of 0.5.

Words alone are a second opinion: naive Bayes over words and pairs of words, learned from all labelled cases and from
800 ends of logs that were written for it (`tests/truth/written_ends.txt`; `rltui/diagnose/words.json` holds what was
learned). With a sixth of the repositories held out it is right for 77 % of 1,536 failures by itself. Of 225 failures
that the version of their day had not seen, the rules named 149 rightly (an expert who read 100 such excerpts, and
nothing else, 90 of them), and words alone 145. So it does not overrule a rule: where a rule was sure and words
disagreed, the rule was right. Nor is it a diagnosis where no rule speaks: it would name 4 more of the 180, and a
cause in 12 of 273 excerpts of healthy runs. Nor does it take the place of an error of no known kind, where its share is
0.4 and more: with each repository held out that takes 1,429 right causes to 1,407, as most such errors are the
program's own.

Where nothing is found, or no more than an error of no known kind, `rltui why` names up to three causes that the log's
end is nearest to by its words (`rltui/diagnose/nearest.py`; `nearest` in JSON), and leaves exit code and remedies
alone. With each repository held out the right cause is found or among those for 96 % of the failures, as the mean of
the classes for 97 %; of the 225 unseen ones for 84 % (79 % when titles and wordings of causes were compared).

A process that goes on after an exception has survived it: its own lines of ordinary levels say so, or a step within
forty lines. Logs of several ranks without prefixes do not tell whose step it was; there a launcher that says that a
process failed, before anything else is raised, decides that it was another rank's. A rank whose end no launcher tells
counts as survived if another one makes a step: use `torchrun --log-dir`, `srun --label` or Ray's prefixes.
Excerpts are shorter and cleaner than logs, and classes with one or two cases say little.
"""


def markdown() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from INTRODUCTION.splitlines()
    for tier, heading in TIERS.items():
        yield from ("", f"## {heading}", "", "| id | cause | how to tell |", "|---|---|---|")
        yield from (_row(cause) for _, cause in sorted(CAUSES.items()) if cause.tier == tier)
    yield from ("", *LIVE.splitlines())
    yield from ("", *ADDING.splitlines())
    yield from ("", *_counted(BENCHMARK).splitlines())


def _counted(text: str) -> str:
    """Put in how many cases there are, which only a checkout has, as it alone has the page."""
    causes = re.findall(r"(?m)^@@ (\w+) \| ", CASES.read_text(encoding="utf-8"))
    by_cause = Counter(causes)
    healthy = by_cause.pop("healthy", 0)
    counts = {"all": len(causes), "failures": by_cause.total(), "classes": len(by_cause), "healthy": healthy}
    for name, count in counts.items():
        text = text.replace(f"<{name}>", f"{count:,}")
    return text


def _row(cause: Cause) -> str:
    return f"| `{cause.id}` | {_cell(cause.title)} | {_cell(cause.tell)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in markdown()))
