"""What starts a command in a container, for each runtime; and a job script and a script's lines that name one."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rltui.cluster.cluster import Attempt
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile, container_of, outer_python
from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.settings import Container as Wanted
from rltui.layout.settings import Slurm
from rltui.onnode import container, processes, rundir
from rltui.runs.script import preview_script, render_script
from rltui.service.login_facts import container_problems
from rltui.service.scripts import prepare
from rltui.service.wishes import Wishes

ROOT = Path(__file__).parents[2]
HOSTILE = [
    "/images/it's $(touch pwned).sif",
    '/images/"x"; touch pwned #.sif',
    "~/a b/`id`&&x|y>z.sif",
    "/ünï\\n ${HOME} *?.sif",
]
LAB = Profile(name="lab", python="/opt/env/bin/python", env={"LAB_DATA": "/data"}, run_root="/runs")


@pytest.fixture
def attempt(tmp_path: Path) -> str:
    path = rundir.attempt_folder(str(tmp_path / "runs/run"), 1)
    os.makedirs(path)
    return path


def entered(
    attempt: str, runtime: str, argv: Sequence[str] = ("python", "-V"), more: dict[str, str] | None = None, **told: Any
) -> tuple[list[str], dict[str, str]]:
    known = {"runtime": runtime, "image": "/x.sif", "mounts": [], "options": [], "names": ["LAB_DATA"], "gpus": 4}
    known |= {"python": "python", **told}
    environment = {"PATH": os.environ["PATH"], "RLTUI_ATTEMPT": "u", "NCCL_DEBUG": "INFO", "LAB_DATA": "/data"}
    environment |= {"LD_LIBRARY_PATH": "/cuda", "EDITOR": "vi", container.VARIABLE: json.dumps(known), **(more or {})}
    return container.enter(argv, environment, attempt, attempt, mark="u")


def binds(words: list[str], flag: str) -> list[str]:
    return [after for word, after in itertools.pairwise(words) if word == flag]


@pytest.mark.parametrize(("runtime", "prefix"), [("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")])
def test_apptainer_sees_folders_at_the_same_path_and_the_attempts_variables(
    attempt: str, runtime: str, prefix: str
) -> None:
    words, known = entered(attempt, runtime, mounts=["/data", "~/m:/m:ro"], options=["--writable-tmpfs"])
    runs, home = attempt.split("/run/")[0], os.path.expanduser("~")
    assert words[:3] == [runtime, "exec", "--nv"]
    for mount in (f"{runs}:{runs}", "/tmp:/tmp", f"{home}:{home}", "/data:/data", f"{home}/m:/m:ro"):
        assert mount in binds(words, "--bind")
    assert words[-8:] == ["--pwd", attempt, "--writable-tmpfs", "/x.sif", "env", "RLTUI_INSIDE=u", "python", "-V"]
    held = {name.removeprefix(prefix): value for name, value in known.items() if name.startswith(prefix)}
    assert held == {"RLTUI_ATTEMPT": "u", "NCCL_DEBUG": "INFO", "LAB_DATA": "/data", "PYTHONNOUSERSITE": "1"}
    assert container.VARIABLE not in known  # what is inside enters nothing further
    assert "--nv" not in entered(attempt, runtime, gpus=0)[0]
    assert "--nv" not in entered(attempt, runtime, options=["--rocm"])[0]


def test_pyxis_is_a_step_of_its_own_on_this_node(attempt: str) -> None:
    more = {"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "2", "HOME": "/home/me"}
    words, known = entered(attempt, "pyxis", image="nvcr.io#nvidia/x:1", mounts=["/data:/d"], more=more)
    text = " ".join(words)
    assert words[:3] == ["srun", "--overlap", "--nodes=1"]
    assert "--cpus-per-task=8" in words
    assert "--container-image=nvcr.io#nvidia/x:1" in words
    assert re.search(r"--container-mounts=\S*/tmp:/tmp\S*,/data:/d ", text)
    assert f"--container-workdir={attempt} --container-writable --no-container-remap-root" in text
    names = re.search(r"--container-env=(\S+)", text)
    assert names
    assert {"HOME", "LAB_DATA", "NCCL_DEBUG", "RLTUI_ATTEMPT"} <= set(names[1].split(","))
    assert words[-4:] == ["env", "RLTUI_INSIDE=u", "python", "-V"]
    assert "SLURM_CPUS_PER_TASK" not in known  # srun would take it for an option


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_docker_gets_the_jobs_cards_and_names_of_variables_but_no_values(attempt: str, runtime: str) -> None:
    more = {"SLURM_STEP_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1", "HF_TOKEN": "secret"}
    words, known = entered(attempt, runtime, image="reg.org/x:1", options=["--shm-size=1g"], more=more)
    assert words[:6] == [runtime, "run", "--rm", "--net=host", "--ipc=host", "--pid=host"]
    cards = [word for word in words if "device=" in word or "gpu=" in word if "infiniband" not in word]
    assert cards == (
        ["--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=3"] if runtime == "podman" else ['--gpus="device=2,3"']
    )
    assert ("--userns=keep-id" in words, f"--user={os.getuid()}:{os.getgid()}" in words) == (
        runtime == "podman",
        runtime == "docker",
    )
    assert "secret" not in " ".join(words)
    assert {"HF_TOKEN", "RLTUI_ATTEMPT", "LAB_DATA"} <= set(binds(words, "--env"))
    assert not {"CUDA_VISIBLE_DEVICES", "PATH", "LD_LIBRARY_PATH", "EDITOR"} & set(binds(words, "--env"))
    assert known["HF_TOKEN"] == "secret"
    assert words[-7:] == [
        f"--workdir={attempt}",
        "--shm-size=1g",
        "reg.org/x:1",
        "env",
        "RLTUI_INSIDE=u",
        "python",
        "-V",
    ]


def test_on_each_node_the_words_are_made_there(attempt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\nprintf \'%s\\n\' "$@" "[$RLTUI_CONTAINER]"\n')
    program.chmod(0o755)
    told = {"runtime": "podman", "image": "x", "mounts": [], "options": [], "names": [], "gpus": 2, "python": "p"}
    monkeypatch.setenv(container.VARIABLE, json.dumps(told))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    argv = container.enter_on_each_node(["bash", "run it.sh"], attempt, attempt, str(ROOT), "u")
    there = {**os.environ, "SLURM_STEP_GPUS": "5,6", "PYTHONPATH": "/of/the/script"}
    words = subprocess.run(argv, env=there, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "--device=nvidia.com/gpu=6" in words
    assert words[-6:] == ["x", "env", "RLTUI_INSIDE=u", "bash", "run it.sh", "[]"]
    monkeypatch.delenv(container.VARIABLE)
    assert container.enter_on_each_node(["bash"], attempt, attempt, str(ROOT), "u") == ["bash"]


def test_the_users_own_file_holds_inside_and_the_outer_path_does_not(attempt: str, tmp_path: Path) -> None:
    private = tmp_path / "secrets"
    private.write_text("WEIRD=1\nPATH=/mine\n")
    private.chmod(0o600)
    more = {"RLTUI_ENV_FILE": str(private), "WEIRD": "1"}
    words, _ = entered(attempt, "podman", more=more)
    assert "WEIRD" in binds(words, "--env")
    assert "PATH" not in binds(words, "--env")


def test_without_a_container_nothing_changes_and_a_broken_word_is_an_error(attempt: str) -> None:
    environment = {"A": "1"}
    assert container.enter(["x"], environment, attempt, attempt, mark="u") == (["x"], environment)
    for text in ("{", "[]", '{"runtime": "rkt"}', '{"runtime": "rkt", "image": "x", "mounts": []}'):
        with pytest.raises(container.ContainerError):
            container.read({container.VARIABLE: text})


def test_a_folder_whose_name_no_mount_can_hold_is_an_error(attempt: str) -> None:
    odd = f"{attempt}/a:b"
    os.mkdir(odd)
    with pytest.raises(container.ContainerError, match="colon"):
        entered(odd, "apptainer")


def test_what_is_not_on_the_node_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = container.problems(container.Container("apptainer", "/nowhere/x.sif"))
    assert said == [
        "apptainer is not on the PATH of the job; the profile's setup_lines may load it",
        "the image /nowhere/x.sif is not there",
    ]
    program = tmp_path / "srun"
    program.write_text("#!/bin/sh\necho no such option\n")
    program.chmod(0o755)
    assert "pyxis plugin" in container.problems(container.Container("pyxis", "docker://x"))[0]
    program.write_text("#!/bin/sh\necho '  --container-image=NAME'\n")
    assert container.problems(container.Container("pyxis", "docker://x")) == []


def test_the_login_node_is_asked_for_image_runtime_and_the_python_outside(tmp_path: Path) -> None:
    image = tmp_path / "it's $(touch pwned).sif"
    relay = RelayClient(LocalTransport())
    try:
        told = Wanted(runtime="singularity", image=str(image), outer_python="python9")
        lab = msgspec.structs.replace(LAB, container=told, setup_lines=[f'PATH="{tmp_path}:$PATH"'])
        problem, absent = container_problems(relay, lab, Slurm())
        assert f"the image {image} is not there" in problem
        assert "python9 is no Python 3.8" in problem
        assert absent == "singularity is not on the login node"
        image.mkdir()
        (tmp_path / "singularity").write_text("")
        (tmp_path / "singularity").chmod(0o755)
        own = Slurm(container=Wanted(outer_python=sys.executable))
        assert container_problems(relay, lab, own) == ("", "")
        assert container_problems(relay, lab, Slurm(container=Wanted(runtime="none"))) == ("", "")
        assert not list(tmp_path.glob("pwned"))
    finally:
        relay.close()


def test_a_signal_reaches_what_is_inside_and_not_the_runtime_beside_it(tmp_path: Path) -> None:
    done = tmp_path / "done"
    inside = f"import signal, time; signal.signal(15, lambda *_: (open({str(done)!r}, 'w').close(), exit(0)))\n"
    inside += "print('up', flush=True); time.sleep(600)"
    runtime = "trap '' TERM; env RLTUI_INSIDE=mark-1 \"$@\" & wait"
    argv = ["bash", "-c", runtime, "bash", sys.executable, "-c", inside]
    told = {"runtime": "podman", "image": "x", "mounts": [], "options": [], "names": [], "gpus": 0, "python": "p"}
    environment = {**os.environ, container.VARIABLE: json.dumps(told)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        (found,) = container.entered("mark-1")
        assert isinstance(found, processes.Process)
        container.ask_to_end(process, "mark-1", environment)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert done.exists()


@pytest.mark.parametrize("image", HOSTILE)
def test_hostile_images_and_mounts_reach_the_nodes_as_they_are(image: str, tmp_path: Path) -> None:
    wanted = Wanted(runtime="apptainer", image=image, mounts=["/a b'$(touch pwned):/x"], options=["--x=$(id) '\""])
    profile = msgspec.structs.replace(LAB, container=msgspec.convert(msgspec.to_builtins(wanted), Wanted))
    script = preview_script(load_layout(resolve("local/grpo-tiny"), []).layout, profile)
    (line,) = [line for line in script.splitlines() if line.startswith(f"export {container.VARIABLE}=")]
    show = f"{sys.executable} -c 'import os, sys; sys.stdout.write(os.environ[\"{container.VARIABLE}\"])'"
    told = subprocess.run(["bash", "-euc", f"{line}\n{show}"], capture_output=True, text=True, cwd=tmp_path, check=True)
    found = container.read({container.VARIABLE: told.stdout})
    assert found
    assert (found.image, found.mounts, found.options) == (image, tuple(wanted.mounts), tuple(wanted.options))
    assert not list(tmp_path.iterdir())
    words, _ = container.enter(["true"], {container.VARIABLE: told.stdout}, "/tmp", "/tmp/r/attempts/01")
    assert words[-2:] == [os.path.expanduser(image), "true"]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"image": image} for image in ("--privileged", "/x\n#SBATCH --uid=0", "/x\0y")),
        *({"mounts": [mount]} for mount in ("/a:/b,/etc:/etc", "relative:/x", "/a:/b:ro:/c", "/a\n:/b", "--x")),
        *({"options": [option]} for option in ("image", "--a\nb", "; touch x")),
        {"runtime": "rkt"},
    ],
)
def test_what_no_runtime_should_get_is_no_setting(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Wanted)


def test_a_layout_says_over_the_cluster_key_by_key() -> None:
    lab = msgspec.structs.replace(LAB, container=Wanted(runtime="apptainer", image="/a.sif", options=["--rocm"]))
    own = Wanted(image="/b.sif", mounts=["/data"])
    found = container_of(Slurm(container=own), lab)
    assert found == Wanted(runtime="apptainer", image="/b.sif", mounts=["/data"], options=["--rocm"])
    other = container_of(Slurm(container=Wanted(runtime="podman")), lab)
    assert other
    assert (other.image, other.options) == ("/a.sif", [])  # options are one runtime's
    assert container_of(Slurm(container=Wanted(runtime="none")), lab) is None
    assert (outer_python(Slurm(), lab), outer_python(Slurm(), LAB)) == ("python3", "/opt/env/bin/python")


def test_the_script_starts_the_python_outside_and_tells_of_the_one_inside() -> None:
    lab = msgspec.structs.replace(
        LAB, container=Wanted(runtime="apptainer", image="/a.sif", outer_python="/usr/bin/python3.9")
    )
    layout = load_layout(resolve("local/grpo-tiny"), []).layout
    script = preview_script(layout, lab)
    assert "\npython=/usr/bin/python3.9\n" in script
    assert '"python": "/opt/env/bin/python"' in script
    assert "unset RLTUI_CONTAINER" not in script
    assert "unset RLTUI_CONTAINER" in preview_script(layout, LAB)
    with pytest.raises(UsageError, match="needs an image"):
        preview_script(layout, msgspec.structs.replace(LAB, container=Wanted(runtime="apptainer")))
    place = Attempt(run_id="r", number=1, uuid="0" * 32, path="/runs:x/r/attempts/01", code="/code")
    with pytest.raises(UsageError, match="colon"):
        render_script(layout, lab, place)


def test_the_container_of_a_scripts_lines_is_what_it_runs_in(tmp_path: Path) -> None:
    lines = "#SBATCH --gpus-per-node=4 --container-image=nvcr.io#nvidia/pytorch:25.01-py3\n"
    lines += "#SBATCH --container-mounts=/data:/data:ro,/opt/x:/y --container-name=z --container-writable\n"
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{lines}python -m verl.trainer.main_ppo\n")
    ready = prepare(str(path), Wishes(settings=("slurm.container.image=/images/own.sqsh",)), LAB)
    found, notes = ready.job.slurm.container, "\n".join(ready.notes)
    assert (found.runtime, found.image) == ("pyxis", "/images/own.sqsh")
    assert found.mounts == ["/data:/data:ro", "/opt/x:/y"]
    assert re.findall(r"#SBATCH --([a-z-]+) is left out", notes) == ["container-name"]
    assert "your words stand over its #SBATCH lines: container" in notes
    script = preview_script(ready.job, LAB)
    assert f"export {container.VARIABLE}=" in script
    assert "#SBATCH --container" not in script  # the driver stays outside
    assert prepare(str(path), Wishes(), LAB).job.slurm.container.image == "nvcr.io#nvidia/pytorch:25.01-py3"
    with pytest.raises(UsageError):
        prepare(str(path), Wishes(settings=("slurm.container.picture=x",)), LAB)
