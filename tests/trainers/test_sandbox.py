"""The sandbox holds what tries to get out of it, says loudly where it cannot, and its verdicts can't be talked into."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from rltui.layout.load import load_text
from trainers.data.prompts import Prompt
from trainers.rewards import escape_attempts
from trainers.rewards import sandbox as sandbox_module
from trainers.rewards.answers import Answer
from trainers.rewards.code import Code, trials_of
from trainers.rewards.composed import make_reward
from trainers.rewards.sandbox import FIRST_UID, NUM_UIDS, Limits, Sandbox, SandboxError, Trial, best_sandbox
from waiting import eventually

ROOT = Path(__file__).parents[2]
ASSERTIONS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add(2, 2) == 4"]
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return best_sandbox(Limits(wall_s=2.0))


@pytest.fixture(scope="module")
def patient(sandbox: Sandbox) -> Sandbox:
    """For what is to pass, however busy the machine is."""
    return sandbox.with_limits(Limits(wall_s=100.0))


def answer(text: str, tests: object, **row: object) -> Answer:
    return Answer(Prompt((1, 2), "", row={"tests": tests, **row}), text, stopped=True)


def score(sandbox: Sandbox, *answers: Answer, all_or_nothing: bool = False) -> list[float]:
    reward = Code(sandbox, 2, all_or_nothing)
    try:
        return reward.score(answers)
    finally:
        reward.close()


def test_closing_a_reward_ends_its_programs_and_leaves_those_of_others_alone(patient: Sandbox) -> None:
    reward = Code(patient, 1, all_or_nothing=True)
    errors: list[SandboxError] = []

    def judge() -> None:
        try:
            reward.score([answer("```python\nwhile True: pass\n```", ["assert True"])])
        except SandboxError as error:
            errors.append(error)

    judging = threading.Thread(target=judge, daemon=True)
    judging.start()
    eventually(lambda: reward._running._processes, "a program")
    reward.close()
    judging.join(60.0)  # of the 100 s that its program might run
    assert errors
    assert score(patient, answer(RIGHT, ASSERTIONS)) == [1.0]


@pytest.mark.parametrize("probe", escape_attempts.PROBES, ids=lambda probe: probe.__name__.strip("_"))
def test_each_canary_is_contained_here(sandbox: Sandbox, probe: object) -> None:
    assert sandbox.level == "namespaces"
    attempt = probe(sandbox)  # type: ignore[operator]
    assert attempt.contained, attempt


def test_canaries_get_out_where_there_are_only_limits() -> None:
    bare = Sandbox("rlimits", Limits(wall_s=2.0))
    free = {attempt.name for attempt in escape_attempts.run_escape_attempts(bare) if not attempt.contained}
    assert {"network", "kill -9 -1", "/dev/shm", "symbolic link"} <= free
    assert "10 GB allocation" not in free
    assert "endless output" not in free


def test_a_host_without_namespaces_is_said_to_be_open_and_refused() -> None:
    program = textwrap.dedent("""
        import json
        from rltui.layout.load import load_text
        from trainers.rewards.composed import make_reward
        TEXT = open("layouts/local/grpo-tiny.yaml").read()
        events, refused = [], ""
        layout = load_text(TEXT, "tiny.yaml", ["data.train=rows.jsonl", "data.reward=code"]).layout
        try:
            make_reward(layout, lambda kind, text: events.append([kind, text]))
        except RuntimeError as error:
            refused = str(error)
        words = ["data.train=rows.jsonl", "data.reward=code", "data.allow_open_sandbox=true"]
        make_reward(load_text(TEXT, "tiny.yaml", words).layout, lambda kind, text: events.append([kind, text])).close()
        print(json.dumps([events, refused]))
    """)
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces; echo 0 > /proc/sys/user/max_mnt_namespaces; "
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", forbid + 'exec "$@"', "sh", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events, refused = json.loads(done.stdout)
    assert [kind for kind, _ in events] == ["reward_sandbox", "reward_sandbox"]
    assert all("reward sandbox: OPEN" in text and "network" in text for _, text in events)
    assert "data.allow_open_sandbox: true" in refused


def test_a_closed_sandbox_is_said_once() -> None:
    words = ["data.train=rows.jsonl", "data.reward=code", "data.reward_timeout_s=1"]
    layout = load_text((ROOT / "layouts/local/grpo-tiny.yaml").read_text(), "tiny.yaml", words).layout
    events: list[tuple[str, str]] = []
    make_reward(layout, lambda kind, text: events.append((kind, text))).close()
    (event,) = events
    assert event[0] == "reward_sandbox"
    assert "closed" in event[1]


def test_code_sees_nothing_of_the_machine(patient: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a secret")
    code = """
        import os
        print(sorted(os.environ), os.listdir("/tmp"), os.path.exists("/proc"), os.path.exists("/run"), os.getuid() == 0)
        for path in ("/usr/canary", "/canary"):
            try:
                open(path, "w")
            except OSError as error:
                print(error.errno != 0)
    """
    (outcome,) = patient.run(textwrap.dedent(code), [Trial()])
    seen, *refused = outcome.output.splitlines()
    assert "WANDB_API_KEY" not in seen
    assert seen.endswith("] [] False False False")
    assert refused == ["True", "True"]


def test_a_program_whose_output_depends_on_hashes_says_the_same_each_time(patient: Sandbox) -> None:
    code = "import math\nprint({*'abcdefgh'}, math.floor(1.5))"
    said = {patient.run(code, [Trial()])[0].output for _ in range(3)}
    assert len(said) == 1
    assert said.pop().endswith("} 1\n")


def test_tests_do_not_see_what_others_left(sandbox: Sandbox) -> None:
    code = (
        "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(60)\nopen('/tmp/left', 'a').write('x')\n"
    )
    before, began = next(sandbox_module._numbers), time.monotonic()
    first, second = sandbox.run(code, [Trial(), Trial(check="assert True")])
    assert first.finished or first.timed_out  # the grandchild holds the output open until time is up
    assert second.finished or second.timed_out
    assert time.monotonic() - began < 20
    uids = [FIRST_UID + number % NUM_UIDS for number in range(before, next(sandbox_module._numbers) + 1)]
    assert not [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and _uid(pid) in uids]


def _uid(process: Path) -> int:
    try:
        return process.stat().st_uid
    except OSError:
        return -1


def test_reward_is_the_share_of_tests_passed(patient: Sandbox) -> None:
    two_of_three = "def add(a, b):\n    return 3 if a == 1 else a + b if a > 0 else 9"
    answers = [answer(RIGHT, ASSERTIONS), answer(two_of_three, ASSERTIONS), answer("no code", ASSERTIONS)]
    assert score(patient, *answers) == pytest.approx([1.0, 2 / 3, 0.0])
    assert score(patient, *answers, all_or_nothing=True) == [1.0, 0.0, 0.0]


def test_prompts_of_the_same_words_have_their_own_tests(patient: Sandbox) -> None:
    assert score(patient, answer(RIGHT, ASSERTIONS[:1]), answer(RIGHT, ["assert add(1, 2) == 4"])) == [1.0, 0.0]


def test_reward_of_programs_that_read_and_print(patient: Sandbox) -> None:
    tests = [{"input": "6\n7\n", "output": "42"}, {"input": "-2\n3\n", "output": "-6\n"}]
    program = "print(int(input()) * int(input()))"
    wrong = "print(42)"
    assert score(patient, answer(program, tests), answer(wrong, tests)) == [1.0, 0.5]
    as_text = json.dumps({"inputs": ["6\n7\n"], "outputs": ["42\n"]})
    assert score(patient, answer(program, as_text)) == [1.0]


@pytest.mark.parametrize(
    "trick",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "raise SystemExit",
        "print('finished')\nraise ValueError",
        "class Same:\n    pass\nwhile True:\n    pass",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import sys\nsys.stdout.close()\nimport os\nos.close(1)\nos._exit(0)",
    ],
    ids=lambda trick: trick[:30],
)
def test_no_early_end_passes_an_assertion(sandbox: Sandbox, trick: str) -> None:
    quick = sandbox.with_limits(Limits(wall_s=1.0))
    assert score(quick, answer(trick, ["assert add(1, 2) == 3"])) == [0.0]


def test_setup_of_the_row_runs_before_its_assertions(patient: Sandbox) -> None:
    row = answer(RIGHT, ["assert add(math.floor(1.5), 2) == 3"], test_imports=["import math"])
    assert score(patient, row) == [1.0]


def test_functions_of_apps_and_taco_are_called(patient: Sandbox) -> None:
    tests = {"fn_name": "pairs", "inputs": [[[1, 2]], [[]]], "outputs": [[[[1, 1], [2, 2]]], []]}
    plain = "```python\ndef pairs(values):\n    return [(one, one) for one in values]\n```"
    method = (
        "```python\nclass Solution:\n    def pairs(self, values):\n        return [[one, one] for one in values]\n```"
    )
    wrong = "```python\ndef pairs(values):\n    return []\n```"
    reads = "```python\nprint([[1, 1], [2, 2]])\n```"
    answers = [answer(text, json.dumps(tests)) for text in (plain, method, wrong, reads)]
    assert score(patient, *answers) == [1.0, 1.0, 0.5, 0.0]


def test_rows_without_tests_are_named() -> None:
    with pytest.raises(ValueError, match=r"data\.tests_key"):
        trials_of({"question": "?"})
    with pytest.raises(ValueError, match="neither an assertion"):
        trials_of({"tests": [{"in": "1"}]})


def test_walls_that_cannot_be_built_are_an_error_not_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="bwrap is not installed"):
        Sandbox("bwrap").run("print(1)", [Trial()])


def test_a_step_of_samples_does_not_take_for_ever(patient: Sandbox) -> None:
    answers = [answer(f"{RIGHT}\n# {number}", ASSERTIONS) for number in range(48)]
    before = os.times()
    assert score(patient, *answers) == [1.0] * 48
    after = os.times()
    cpu_s = sum(after[:4]) - sum(before[:4])
    print(f"{cpu_s / 48:.2f} CPU seconds a sample, three tests each")
    assert cpu_s < 48.0
