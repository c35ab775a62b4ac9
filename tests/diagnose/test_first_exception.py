"""Where no rule knows the cause, the first exception is shown: the one inside the wrappers, with its own frames."""

from __future__ import annotations

import pytest

from rltui.diagnose.diagnose import Findings, diagnose, examine
from rltui.diagnose.first_exception import as_json, in_words
from rltui.diagnose.sources import text_source

DRIVER = """\
Traceback (most recent call last):
  File "/home/user/run.py", line 33, in main
    ray.get(runner.run.remote())
  File "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py", line 2858, in get
    raise value.as_instanceof_cause()
"""
INSIDE = """\
  File "/home/user/trainer.py", line 1177, in fit
    assert len(labels) == rows
           ^^^^^^^^^^^
AssertionError: 8 labels for 6 rows
"""
RAY = f"{DRIVER}ray.exceptions.RayTaskError(AssertionError): ray::Runner.run() (pid=36, ip=10.0.0.2)\n{INSIDE}"
PLAIN = f"Traceback (most recent call last):\n{INSIDE}"
TORCHRUN = """\
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def found(log: str) -> dict[str, object]:
    """Return the first exception of ``log`` as JSON; empty where there is none."""
    first = examine([text_source("log", log)]).first_exception
    return as_json(first) if first is not None else {}


@pytest.mark.parametrize("has_lines", [True, False])
def test_what_a_wording_knows_is_not_told_again_as_an_error_of_the_program(has_lines: bool) -> None:
    died = "trainers.roles.calls.RoleDiedError: learner 1 died: The actor is dead because its worker process has died."
    raised = PLAIN.replace("AssertionError: 8 labels for 6 rows", died)
    log = f"(raylet) A worker died or was killed while executing a task.\n{raised}"
    assert [one.id for one in diagnose([text_source("out.log", log, has_lines=has_lines)])] == ["ray_actor_died"]


@pytest.mark.parametrize("log", [PLAIN, RAY, PLAIN + TORCHRUN, TORCHRUN + PLAIN, f"step 1\n{RAY}{PLAIN}"])
def test_the_exception_inside_the_wrappers_is_the_one(log: str) -> None:
    assert found(log)["text"] == "AssertionError: 8 labels for 6 rows"
    assert found(log)["frames"][-1] == "/home/user/trainer.py:1177 in fit"  # type: ignore[index]


def test_frames_of_libraries_are_left_out_where_there_are_others() -> None:
    assert found(RAY)["frames"] == ["/home/user/run.py:33 in main", "/home/user/trainer.py:1177 in fit"]


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("orchestrator/client.py", "network"),
        ("trainer/update_weights.py", "weight_sync"),
        ("reward/remote.py", "reward"),
        ("rllm/router/router.py", "engine"),
    ],
)
def test_a_connection_is_of_the_part_that_asked_the_server(asked: str, part: str) -> None:
    frames = "".join(
        f'  File "{path}", line 7, in post\n'
        for path in (f"/home/user/{asked}", "/venv/site-packages/httpx/_client.py")
    )
    assert found(f"Traceback (most recent call last):\n{frames}httpx.ReadTimeout: \n")["part"] == part


def test_processes_that_write_at_once_are_kept_apart() -> None:
    lines = PLAIN.splitlines()
    other = ["Traceback (most recent call last):", '  File "/home/user/b.py", line 1, in g', "KeyError: 4"]
    mixed = [
        f"[rank1]: {lines[0]}",
        *(f"[rank2]: {line}" for line in other),
        *(f"[rank1]: {line}" for line in lines[1:]),
    ]
    first = found("\n".join(mixed))
    assert (first["rank"], first["text"], first["line"]) == ("1", "AssertionError: 8 labels for 6 rows", 8)


@pytest.mark.parametrize(
    "log",
    [
        "all is well",
        TORCHRUN,
        f"Exception ignored in: <function Pool.__del__ at 0x7f>\n{PLAIN}",
        f"{PLAIN}ValueError: No available memory for the cache blocks.",
    ],
    ids=["healthy", "only a wrapper", "on the way out", "a known cause"],
)
def test_there_is_none(log: str) -> None:
    assert found(log) == {}


def test_a_wrapper_alone_does_not_hide_it() -> None:
    findings = examine([text_source("log", f"{PLAIN}RuntimeError: Engine core initialization failed.")])
    assert [(one.id, one.secondary) for one in findings.diagnoses] == [
        ("program_failed", False),
        ("engine_core_died", True),
    ]
    assert findings.first_exception is not None
    assert next(in_words(findings.first_exception)) == "The first exception is at log:5:"


def test_an_exception_without_the_first_line_of_its_traceback_has_its_frames() -> None:
    first = found(
        f"(Worker pid=7) {INSIDE}".replace("\n  ", "\n(Worker pid=7)   ").replace("\nA", "\n(Worker pid=7) A")
    )
    assert first["text"] == "AssertionError: 8 labels for 6 rows"
    assert first["frames"] == ["/home/user/trainer.py:1177 in fit"]


def test_an_exception_of_a_librarys_own_is_known_by_its_module() -> None:
    assert found("git.exc.InvalidGitRepositoryError: /home/user/run")["text"].startswith("git.exc.Invalid")


def test_one_that_the_run_survived_is_not_what_ended_it() -> None:
    judged = f"Traceback (most recent call last):\n{INSIDE.replace('8 labels', '9 labels')}"
    log = f"{judged}step 4 loss 0.2\n" + "nothing\n" * 50 + PLAIN
    assert found(log)["text"] == "AssertionError: 8 labels for 6 rows"


@pytest.mark.parametrize(
    ("path", "exception", "part"),
    [
        ("site-packages/vllm/v1/worker/gpu_worker.py", "AssertionError", "engine"),
        ("site-packages/math_verify/utils.py", "TimeoutError: Operation timed out!", "reward"),
        ("site-packages/datasets/arrow_dataset.py", "TypeError: 'int' object is not iterable", "data"),
        ("site-packages/deepspeed/runtime/engine.py", "RuntimeError: a new one", "learner"),
        ("site-packages/httpx/_client.py", "ValueError: unknown scheme", "network"),
        ("unknown.py", "OSError: [Errno 11] Resource temporarily unavailable", "disk"),
        ("unknown.py", "ZeroDivisionError: division by zero", "program"),
    ],
)
def test_it_says_which_part_of_the_run_raised_and_what_to_do_there(path: str, exception: str, part: str) -> None:
    first = found(f'  File "/opt/{path}", line 7, in call\n    call()\n{exception}')
    assert first["part"] == part
    assert first["next_step"]


def test_a_path_that_is_not_there_is_named_and_not_the_frames_above_it() -> None:
    log = f"{PLAIN}FileNotFoundError: [Errno 2] No such file or directory: '/home/a/x.new' -> '/home/a/x'"
    [cause] = examine([text_source("log", log)]).diagnoses
    assert cause.id == "path_missing"
    assert cause.summary.endswith("is not there: /home/a/x.new.")


def test_a_guess_does_not_hide_it() -> None:
    findings = examine([text_source("log", "NameError: name 'PeftModel' is not defined")])
    assert [(one.id, one.confidence) for one in findings.diagnoses] == [("env_import_broken", 0.5)]
    assert findings.first_exception is not None


@pytest.mark.parametrize(
    ("later", "cause"),
    [
        (["W1126 api.py:897] Sending process 7 closing signal SIGTERM"], "KeyError: 'a'"),
        (["nothing"] * 20 + ["srun: error: n1: task 3: Exited with exit code 1"], "KeyError: 'a'"),
        (["KeyError: 'b'", "torchrun: failed (exitcode: 1) local_rank: 0"], "KeyError: 'b'"),
    ],
)
def test_a_step_of_another_rank_saves_no_process_that_its_launcher_saw_end(later: list[str], cause: str) -> None:
    log = [*'Traceback (most recent call last):\n  File "a.py", line 7, in call'.splitlines(), "KeyError: 'a'"]
    ended = diagnose([text_source("log", "\n".join([*log, "step 4 loss 0.2", *later]))])
    assert ended[0].evidence[0].text == cause


@pytest.mark.parametrize(
    "prefix",
    ["(pid=41960)", "(VllmWorker rank=0 pid=41960) ERROR 07-18 03:07:00 [exec.py:380]", "(head, rank=0, pid=41960)"],
)
def test_prefixes_without_a_name_or_with_a_rank_are_taken_off(prefix: str) -> None:
    assert found(f"{prefix} ValueError: strange")["pid"] == "41960"


@pytest.mark.parametrize(
    "later",
    [
        "step 4 loss 0.2",
        "Training Progress:  12%|#  | 12/100 [1:02:11<7:15:20]",
        "INFO 10-25 13:08:43 [loggers.py:116] Avg generation throughput: 2100.0 tokens/s",
        "Retrying 1/3 ...",
    ],
)
def test_what_the_run_survived_is_no_cause(later: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/opt/fetch.py", line 7, in call\nValueError: strange\n{later}'
    assert diagnose([text_source("log", log)]) == ()


def test_an_exception_that_passes_on_another_is_not_its_cause() -> None:
    log = (
        f"{PLAIN}httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://10.0.0.1:3938/generate'"
    )
    assert diagnose([text_source("log", log)])[0].id == "program_failed"
    alone = log.removeprefix(PLAIN)
    assert [one.id for one in diagnose([text_source("log", alone)])] == ["engine_unreachable"]


def test_an_exception_that_is_logged_as_a_warning_was_caught() -> None:
    prefix = "(EngineActor pid=3395) (MainProcess pid=3395) {} 11-26 06:07:45 [base.py:380] "
    log = [
        "Traceback (most recent call last):",
        '  File "/opt/vllm/renderers/base.py", line 217, in get_tokenizer',
        '    raise ValueError("no tokenizer")',
        "ValueError: no tokenizer",
    ]

    def logged(level: str) -> Findings:
        return examine([text_source("log", "".join(f"{prefix.format(level)}{line}\n" for line in log))])

    assert (logged("WARNING").diagnoses, logged("WARNING").first_exception) == ((), None)
    assert logged("ERROR").first_exception is not None


@pytest.mark.parametrize(
    ("log", "cause", "text"),
    [
        (
            "RuntimeError: Worker failed with error 'index 7 of rope is strange', please check the stack trace above "
            "for the root cause",
            "program_failed",
            "RuntimeError: index 7 of rope is strange",
        ),
        ("ray.exceptions.RayTaskError(LookupError): ray::TaskRunner.run() (pid=7)", "program_failed", "LookupError"),
        (
            "  + Exception Group Traceback (most recent call last):\n"
            "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/w/scheduler.py", line 88, in generate\n'
            "    | RuntimeError: strange",
            "program_failed",
            "RuntimeError: strange",
        ),
    ],
    ids=["an engine quotes it", "Ray names its class", "a group of tasks holds it"],
)
def test_what_passes_it_on_gives_way_to_what_it_holds(log: str, cause: str, text: str) -> None:
    findings = examine([text_source("log", log)])
    assert [one.id for one in findings.diagnoses if not one.secondary] == [cause]
    assert findings.first_exception is not None
    assert findings.first_exception.fields["exception"] == text


def test_ray_names_the_class_only_where_the_exception_itself_is_not_there() -> None:
    log = f"ray.exceptions.RayTaskError(AssertionError): ray::main() (pid=7)\n{INSIDE}"
    assert found(log)["text"] == "AssertionError: 8 labels for 6 rows"


def test_frames_in_the_boxes_of_rich_say_where_it_was() -> None:
    log = """\
╭──────────────────── Traceback (most recent call last) ────────────────────╮
│ /venv/lib/python3.10/site-packages                                         │
│ /wandb/sdk/strange.py:1195 in init                                         │
│                                                                            │
│   1194 │   check(settings)                                                 │
│ ❱ 1195 │   settings.open()                                                 │
╰────────────────────────────────────────────────────────────────────────────╯
LookupError: strange
"""
    first = examine([text_source("log", log)]).first_exception
    assert first is not None
    frames = "/venv/lib/python3.10/site-packages/wandb/sdk/strange.py:1195 in init"
    assert (first.fields["frames"], first.fields["code"]) == (frames, "settings.open()")


def test_a_guess_says_more_than_who_passes_it_on() -> None:
    log = "Scheduler hit an exception: \nAttributeError: 'NgramWorker' object has no attribute 'update_weights'"
    assert [(one.id, one.secondary) for one in diagnose([text_source("log", log)])] == [
        ("env_import_broken", False),
        ("engine_core_died", True),
    ]


@pytest.mark.parametrize(
    "prefix",
    [
        "[2026-05-16, 16:39:5@ UTC] {subprocess.py:93} INFO - ",
        "I0516 16:39:51.12345@ 140 trainer.py:12] ",
        "2026-05-16T16:39:51.20@Z stderr F ",
        "job/7f3a9c2e1@ [Error] (Process) ",
        "> ",
    ],
)
def test_what_stands_before_frames_is_a_prefix_of_all_lines(prefix: str) -> None:
    lines = ["step 1", *PLAIN.splitlines(), "waiting for the other workers"]
    first = found("\n".join(prefix.replace("@", str(number)) + line for number, line in enumerate(lines)))
    assert (first["text"], first["line"]) == ("AssertionError: 8 labels for 6 rows", 6)


def test_an_exception_may_stand_as_far_in_as_its_launcher_prints_all_of_it() -> None:
    log = "\n".join(f"    {line}" for line in PLAIN.splitlines())
    assert found(log.replace("Traceback", "traceback : Traceback", 1))["text"] == "AssertionError: 8 labels for 6 rows"


@pytest.mark.parametrize(
    "said",
    [
        "PoolExhausted: no free slot for episode 17",
        "main.<locals>.TokenBudget: row 31 has 9000 tokens, 8192 fit",
        "TaskBroken",
        "RPCGone: grader 4",
    ],
)
def test_an_exception_of_the_programs_own_is_known_by_the_frames_above_it(said: str) -> None:
    """One that the program itself defines has no module in its name, and need not be called an error."""
    raised = PLAIN.replace("AssertionError: 8 labels for 6 rows", said)
    first = found(f"step 1\n{raised}subprocess.CalledProcessError: Command 'python' returned non-zero exit status 1.\n")
    assert first["text"] == said
    assert first["frames"] == ["/home/user/trainer.py:1177 in fit"]
    assert [one.id for one in diagnose([text_source("out.log", raised)])] == ["program_failed"]


@pytest.mark.parametrize("between", ["LoadingWeights: 3 of 8", "VllmWorker: ready", "Resuming"])
def test_words_of_others_among_the_frames_are_no_exception(between: str) -> None:
    """They stand below no frame: the line before is another one of theirs, or the traceback's first."""
    start, *rest = PLAIN.splitlines(keepends=True)
    log = f"{start}{between}\n{''.join(rest[:-1])}step 4 of 8\n{between}\n{rest[-1]}"
    assert found(log)["text"] == "AssertionError: 8 labels for 6 rows"


def test_frames_of_the_interpreter_give_way_to_the_one_that_raised() -> None:
    threads = '  File "/usr/lib/python3.11/threading.py", line 982, in run\n    self._target()\n'
    start, *rest = PLAIN.splitlines(keepends=True)
    assert found(f"{start}{threads}{''.join(rest)}")["frames"] == ["/home/user/trainer.py:1177 in fit"]


def test_what_no_c_plus_plus_code_caught_is_an_exception() -> None:
    terminate = "terminate called after throwing an instance of 'std::runtime_error'\n"
    said = "tile scheduler: negative work for block 12"
    log = f"step 1 reward 0.2\n{terminate}  what():  {said}\nscript.sh: line 1: 27464 Aborted  ./train\n"
    assert found(log)["text"] == f"std::runtime_error: {said}"
    assert [one.id for one in diagnose([text_source("out.log", log)])] == ["program_failed"]
    assert found(terminate)["text"] == "std::runtime_error"
    assert found(f"{PLAIN}{terminate}")["text"] == "AssertionError: 8 labels for 6 rows"


LEFT_ALONE = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:49"
)


def of_rank(rank: int, exception: str) -> str:
    """The traceback of a rank, as torch prints it."""
    lines = PLAIN.replace("AssertionError: 8 labels for 6 rows", exception).splitlines(keepends=True)
    return "".join(f"[rank{rank}]: {line}" for line in lines)


@pytest.mark.parametrize("said", ["TokenBudget: row 31 has 9000 tokens, 8192 fit", "AssertionError: 8 labels, 6 rows"])
def test_what_other_ranks_see_of_one_that_is_gone_does_not_hide_what_that_one_raised(said: str) -> None:
    others = of_rank(1, LEFT_ALONE) + of_rank(3, LEFT_ALONE)
    before = diagnose([text_source("out.log", of_rank(2, said) + others)])
    assert [(one.id, one.secondary) for one in before] == [("program_failed", False), ("gloo_timeout", True)]
    assert before[0].evidence[0].rank == "2"
    assert said in before[0].evidence[0].text
    after = diagnose([text_source("out.log", others + of_rank(2, said))])  # it may follow from that
    assert [one.id for one in after] == ["gloo_timeout"]


def test_an_editors_debugger_puts_the_words_below_the_class_and_the_innermost_frame_first() -> None:
    log = """\
Exception has occurred: RuntimeError
the moon is full
  File "/srv/run/nets.py", line 97, in forward
    embed = self.encoder(cond)
  File "/srv/run/train.py", line 9, in main
"""
    told = examine([text_source("log", log)]).diagnoses[0].evidence[0]
    assert (told.text, told.line) == ("RuntimeError: the moon is full", 2)
