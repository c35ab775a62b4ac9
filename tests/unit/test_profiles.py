from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rltui.cli.main import main
from rltui.cluster.profile import BadNode
from rltui.cluster.profile_files import profile_files, trust
from rltui.cluster.profiles import load_profiles
from rltui.errors import UsageError


class Files:
    """The three places that profiles come from, empty at first."""

    def __init__(self, folder: Path) -> None:
        self.site = folder / "xdg/rltui/clusters.yaml"
        self.user = folder / "config/clusters.yaml"
        self.project = folder / "project/.rltui/clusters.yaml"
        self.cwd = folder / "project/deep/below"
        self.cwd.mkdir(parents=True)

    def write(self, which: str, text: str) -> Path:
        path: Path = getattr(self, which)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    files = Files(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(files.cwd)
    return files


def test_this_machine_is_always_there(files: Files) -> None:
    profiles = load_profiles()
    assert list(profiles.by_name) == ["local"]
    assert profiles.get("local").scheduler == "local"
    assert not profiles.notes


def test_later_files_win_key_by_key(files: Files) -> None:
    site = files.write("site", "alps:\n  host: login.alps\n  partition: normal\n  env: {A: site}\n")
    user = files.write("user", "alps:\n  account: a17\n  partition: debug\n  env: {B: user}\n")
    profiles = load_profiles()
    alps = profiles.get("alps")
    assert (alps.host, alps.partition, alps.account, alps.env) == ("login.alps", "debug", "a17", {"B": "user"})
    assert profiles.origins["alps"] == {
        "host": f"{site}:2",
        "partition": f"{user}:3",
        "env": f"{user}:4",
        "account": f"{user}:2",
    }


def test_several_site_folders_the_first_wins(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write("site", "c: {host: second, partition: second}")
    first = tmp_path / "first/rltui/clusters.yaml"
    first.parent.mkdir(parents=True)
    first.write_text("c: {host: first}")
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path}/first:relative:{tmp_path}/xdg")
    profile = load_profiles().get("c")
    assert (profile.host, profile.partition) == ("first", "second")


def test_the_local_cluster_can_be_refined_but_not_moved(files: Files) -> None:
    files.write("user", "local: {run_root: /data/runs}")
    assert load_profiles().get("local").run_root == "/data/runs"
    files.write("user", "local: {host: elsewhere}")
    profiles = load_profiles()
    assert "yet there is a host" in str(profiles.problems[0])
    assert profiles.get("local").host == ""


def test_a_projects_file_is_used_only_as_it_was_trusted(files: Files) -> None:
    path = files.write("project", "proj: {host: h, setup_lines: [rm -rf ~]}")
    profiles = load_profiles()
    assert "proj" not in profiles.by_name
    assert profiles.notes == (f"{path}: not trusted yet; `rltui clusters --trust` shows it and asks",)
    trust(profile_files()[-1])
    assert load_profiles().get("proj").setup_lines == ["rm -rf ~"]
    path.write_text("proj: {host: h, setup_lines: [rm -rf /]}")
    assert "proj" not in load_profiles().by_name
    trusted = Path(os.environ["RLTUI_STATE_DIR"], "trusted.json")
    assert trusted.stat().st_mode & 0o777 == 0o600


def test_a_damaged_list_of_trusted_files_trusts_nothing(files: Files) -> None:
    files.write("project", "proj: {host: h}")
    trust(profile_files()[-1])
    for text in ("", "{", "[]", '{"files": 3}'):
        Path(os.environ["RLTUI_STATE_DIR"], "trusted.json").write_text(text)
        assert "proj" not in load_profiles().by_name


def test_the_nearest_project_counts(files: Files) -> None:
    files.write("project", "far: {host: h}")
    near = files.cwd / ".rltui/clusters.yaml"
    near.parent.mkdir()
    near.write_text("near: {host: h}")
    assert profile_files()[-1].path == str(near)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("c: {hots: x}", "1: c.hots: is not a key of this section (did you mean 'hosts'?)"),
        ("c:\n  host: a\n  host: b", "3: c.host: is there twice; the first one is on line 3"),
        ("c: {port: many}", "1: c.port: must be a whole number, not 'many'"),
        ("c: {scheduler: pbs}", "1: c.scheduler: must be one of slurm, ray, hosts, local, not 'pbs'"),
        ("c: {name: d}", "1: c: is not a key: the name stands above"),
        ("c: 3", "1: c: must be a mapping of keys to values"),
        ("- c", "1: holds no mapping at its top; it holds the names of clusters, each with its keys below"),
        ("c: &a {host: x}\nd: *a", "2: uses a YAML alias (*name); write the value out"),
        ("c: {host: x", "2: is not valid YAML"),
        (
            "c: {hosts: [a, b]}",
            "1: c.hosts: names several machines without a scheduler (with scheduler: hosts, instead of host:)",
        ),
        (
            "c: {scheduler: hosts, hosts: [a, -oProxyCommand=x]}",
            "1: c.hosts[1]: '-oProxyCommand=x' is not the name of a machine",
        ),
        (
            "c: {scheduler: hosts, container: {runtime: docker, image: x}}",
            "1: c.container: runs on hosts are in no container yet (install the trainers there, and name their python)",
        ),
        ("c: {host: -oProxyCommand=x}", "1: c.host: '-oProxyCommand=x' is not the name of a machine"),
        ("c: {host: h, proxy_jump: [a, 'b;c']}", "1: c.proxy_jump[1]: 'b;c' is not the name of a machine"),
        ("c: {host: h, user: 'a b'}", "1: c.host: 'a b' is not the name of a user"),
        ("c: {transport: openssh}", "1: c.transport: openssh needs a host"),
        ("c: {transport: local, host: h}", "1: c.transport: is this machine, yet there is a host"),
        ("c: {scheduler: local, host: h}", "1: c.scheduler: local runs jobs on this machine only"),
        ("c: {scheduler: ray}", "1: c.scheduler: ray needs the address of the cluster's dashboard"),
        ("c: {notify: {webhook: 'MY-HOOK'}}", "1: c.notify.webhook: must be the name of a variable (such as SLACK"),
        ("c: {notify: {events: [end]}}", "1: c.notify.events: each must be one of started,"),
        ("c: {notify: {mail: ['-oQ/tmp']}}", "1: c.notify.mail: must match"),
        ('c: {notify: {mail: ["a@b\\nBcc: c@d"]}}', "1: c.notify.mail: must match"),
        ("c: {notify: {sms: me}}", "1: c.notify.sms: is not a key of this section"),
        ("-x: {host: h}", "1: -x.name: must match"),
        ("c: {host: !!python/object:os.system x}", "1: c.host: cannot be read as a value"),
    ],
)
def test_problems_have_a_place(files: Files, text: str, problem: str) -> None:
    path = files.write("user", f"good: {{host: h}}\n{text}" if text.startswith(("c:", "-x")) else text)
    profiles = load_profiles()
    number, _, rest = problem.partition(":")
    line = int(number) + text.startswith(("c:", "-x"))
    assert any(str(found).startswith(f"{path}:{line}:{rest}") for found in profiles.problems), profiles.problems
    assert "c" not in profiles.by_name
    assert "local" in profiles.by_name


def test_problems_are_those_of_the_cluster_whose_name_has_a_dot(files: Files) -> None:
    files.write("user", "hpc: {hots: h}\nhpc.new: {usr: u}\n")
    for name, wrong in (("hpc", "hpc.hots: "), ("hpc.new", "hpc.new.usr: ")):
        with pytest.raises(UsageError) as caught:
            load_profiles().get(name)
        assert wrong in caught.value.hint
        assert "\n" not in caught.value.hint


def test_one_bad_cluster_leaves_the_others(files: Files) -> None:
    files.write("user", "good: {host: h}\nbad: {hots: h}\n")
    profiles = load_profiles()
    assert profiles.get("good").host == "h"
    with pytest.raises(UsageError, match="'bad' cannot be used") as caught:
        profiles.get("bad")
    assert "did you mean 'hosts'?" in str(caught.value)
    with pytest.raises(UsageError, match="no cluster 'goood'") as caught:
        profiles.get("goood")
    assert "Did you mean 'good'?" in str(caught.value)


SECRET = "hf_" + "a1B2" * 8


@pytest.mark.parametrize(
    "text",
    [
        f"c: {{env: {{HF_TOKEN: {SECRET}}}}}",
        "c: {env: {WANDB_API_KEY: whatever}}",
        "c: {env: {MY_PASSWORD: whatever}}",
        f"c: {{env: {{HARMLESS: {SECRET}}}}}",
        f"c: {{setup_lines: ['export X={SECRET}']}}",
        "c: {setup_lines: ['export HF_TOKEN=whatever']}",
        f"c: {{port: {SECRET}}}",
        f"c: {{token: {SECRET}}}",
        "c: {ray_address: 'http://user:pass@h:8265'}",
        "c: {notify: {webhook: 'https://whatever.example.org/hook'}}",
        "c: {notify: {webhook: ['https://whatever.example.org/hook']}}",
        "c: {notify: {command: [curl, -d, '@-', 'https://ntfy.sh/whatever']}}",
        "c: {env: {HOOK: 'https://hooks.slack.com/services/whatever'}}",
    ],
)
def test_secrets_are_refused_and_not_repeated(files: Files, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    files.write("user", text)
    profiles = load_profiles()
    assert "c" in profiles.broken
    assert any("looks like a secret" in str(problem) for problem in profiles.problems)
    for words in (["clusters"], ["clusters", "--json"], ["clusters", "c"]):
        main(words)
    said = "".join(capsys.readouterr())
    assert SECRET not in said
    assert "whatever" not in said


@pytest.mark.parametrize(
    "text",
    [
        "c: {host: h, env: {HF_TOKEN_PATH: ~/.token, TOKENIZERS_PARALLELISM: 'false'}}",
        "c: {host: h, setup_lines: ['export HF_TOKEN=$(cat ~/.token)', 'module load cuda']}",
        "c: {host: h, env_file: ~/.secrets}",
    ],
)
def test_where_a_secret_lies_is_none(files: Files, text: str) -> None:
    files.write("user", text)
    assert "c" in load_profiles().by_name


def test_files_of_strangers_are_not_used(files: Files) -> None:
    path = files.write("user", "c: {host: h}")
    path.chmod(0o666)
    assert load_profiles().notes == (f"{path}: can be written by others: chmod go-w",)
    path.chmod(0o600)
    assert "c" in load_profiles().by_name


def test_what_is_no_text_file_is_passed_over(files: Files) -> None:
    path = files.write("user", "")
    path.unlink()
    os.mkfifo(path)
    assert "is not a regular file" in load_profiles().notes[0]
    path.unlink()
    path.write_bytes(b"\xff\xfe\0")
    assert "is not UTF-8" in load_profiles().notes[0]
    path.write_bytes(b"#" * (1 << 21))
    assert "larger than 1 MiB" in load_profiles().notes[0]
    path.write_text("# nothing left\n---\n")
    assert not load_profiles().notes


def test_who_is_told_and_what_is_left_out(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write("user", "c: {host: h, notify: {webhook: HOOK, mail: [me@h.org, root], events: [ended, needs you]}}")
    profile = load_profiles().get("c")
    told = {"events": ["ended", "needs you"], "webhook": "HOOK", "mail": ["me@h.org", "root"]}
    assert profile.notify.for_nodes() == told
    assert load_profiles().get("local").notify.for_nodes() == {}
    assert main(["clusters", "c"]) == 0
    assert "HOOK" in capsys.readouterr().out


def test_bad_nodes_and_lists(files: Files) -> None:
    files.write("user", "c:\n  host: h\n  bad_nodes:\n    - {node: nid1, reason: Xid 79, until: 2026-12-01}\n")
    assert load_profiles().get("c").bad_nodes == [BadNode(node="nid1", reason="Xid 79", until="2026-12-01")]


# --- the verb -----------------------------------------------------------------------------------------------------


def test_the_list_and_one_of_it(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.write("site", "alps: {host: login.alps, gpu: H100-SXM-80GB}")
    user = files.write("user", "alps: {partition: debug, env: {A: '1', B: '2'}}\nbroken: {x: 1}")
    assert main(["clusters"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["cluster", "local", "alps", "broken"]
    assert "site, user" in out
    assert "broken.x: is not a key" in err
    assert main(["clusters", "alps"]) == 0
    out, err = capsys.readouterr()
    assert f"partition  debug          {user}:1" in out
    assert not err
    assert main(["clusters", "broken"]) == 2


def test_json_has_a_schema(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    user = files.write("user", "alps: {host: h}")
    assert main(["clusters", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == 1
    assert data["clusters"][1]["origins"] == {"host": f"{user}:1"}
    assert {file["kind"] for file in data["files"]} == {"site", "user"}
    assert main(["clusters", "alps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"]["host"] == "h"


def test_trusting_shows_the_file_and_needs_a_word(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clusters", "--trust"]) == 2
    files.write("project", "proj: {host: h, setup_lines: ['evil \x1b]52;c;aGk=\x07']}")
    assert main(["clusters", "--trust"]) == 2
    out, err = capsys.readouterr()
    assert "evil" in err
    assert "\x1b" not in out + err
    assert "proj" not in load_profiles().by_name
    assert main(["clusters", "--trust", "--yes"]) == 0


def test_info_names_the_files(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    user = files.write("user", "alps: {host: h}")
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"{user}: used" in out
    assert f"{files.site}: absent" in out


def test_listing_imports_nothing_heavy_and_starts_no_ssh(files: Files, tmp_path: Path) -> None:
    files.write("user", "alps: {host: nowhere.invalid}")
    code = (
        "import sys\nfrom rltui.cli.main import main\nmain(['clusters'])\n"
        "assert not {'paramiko', 'textual', 'ray', 'torch'} & set(sys.modules), sys.modules.keys()"
    )
    environment = {**os.environ, "PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)


def test_a_host_may_be_several_and_is_told_where_one_is_none(files: Files) -> None:
    path = files.write("user", "alps: {host: [login1, login2, login3]}")
    profiles = load_profiles()
    alps = profiles.get("alps")
    assert (alps.host, alps.other_hosts) == ("login1", ["login2", "login3"])
    assert profiles.origins["alps"]["other_hosts"] == f"{path}:1"
    files.write("site", "alps: {host: [login1, login2]}")
    files.write("user", "alps: {host: own}")  # takes the place of all of them
    assert (load_profiles().get("alps").host, load_profiles().get("alps").other_hosts) == ("own", [])
    files.write("user", "alps: {host: [login1, -oProxyCommand=x]}")
    assert any("alps.other_hosts[0]" in str(problem) for problem in load_profiles().problems)
