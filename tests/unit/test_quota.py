"""Quotas as Lustre, GPFS and the kernel's tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.service.quota import quotas, read_quotas

GIB = 1 << 20  # in KiB
HEADS = (
    "mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:"
    "blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:remarks:quota:defQuota:fid:"
)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            f"== lfs yours\n /scratch {80 * GIB} {90 * GIB} {100 * GIB} - 900 0 1000 -\n== lfs group's\n",
            ["80 of 100 GiB, 900 of 1000 files (yours)"],
        ),
        (  # a long path has a line of its own; a star marks what is over, brackets what is not sure
            f"== lfs project's\n/scratch/a/long/path\n   {101 * GIB}* {90 * GIB} {100 * GIB} 6d23h [900] 0 0 -\n"
            "uid 2001 is using default file quota setting\n",
            ["101 of 100 GiB (project's)"],
        ),
        (
            "== source nas:/home\n== quota yours\nDisk quotas for user alice (uid 2001): \n"
            "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
            f"nas:/other {GIB} {GIB} {GIB} 0 1 0 0 0\nnas:/home {5 * GIB}* {4 * GIB} 0 1763686800 10 0 0 0\n",
            ["5 of 4 GiB (yours)"],
        ),
        (
            f"== source /dev/fs1\n== mm\n{HEADS}\nmmlsquota::0:1:::fs1:USR:2001:alice:{GIB}:{2 * GIB}:{4 * GIB}:0:none:"
            f"5:0:0:0:none::on:off::\nmmlsquota::0:1:::fs2:USR:2001:alice:1:1:1:0:none:5:0:0:0:none::on:off::\n"
            f"mmlsquota::0:1:::fs1:FILESET:3:ml:7:0:0:0:none:95:90:100:0:none::on:off::\n",
            ["1 of 4 GiB (yours)", "95 of 100 files (fileset's)"],
        ),
        ("== source x\n== quota yours\nDisk quotas for user alice (uid 2001): none\n", []),
        ("== lfs yours\n/scratch - - - - - - - -\n== mm\n:::\nmmlsquota::0\n== lfs\n== nonsense\n\x1b", []),
        ("", []),
    ],
)
def test_quotas_are_read(said: str, words: list[str]) -> None:
    assert [one.words for one in read_quotas(said)] == words


def test_what_is_nearly_full_is_so_by_bytes_or_by_files() -> None:
    [bytes_, files, room] = read_quotas(
        f"== lfs a\n/s {96 * GIB} 0 {100 * GIB} - 1 0 10 -\n== lfs b\n/s 1 0 0 - 95 0 100 -\n"
        f"== lfs c\n/s {90 * GIB} 0 {100 * GIB} - 9 0 100 -\n"
    )
    assert [bytes_.is_nearly_full, files.is_nearly_full, room.is_nearly_full] == [True, True, False]
    assert (room.left_gib, files.left_gib) == (10.0, None)


def test_the_program_that_is_there_is_asked_about_a_folder_still_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    asked = programs / "quota"
    asked.write_text(
        '#!/bin/sh\n[ "$1" = -u ] || exit 1\necho Filesystem blocks quota limit grace files quota limit grace\n'
        f"echo \"$(df -Pk / | awk 'NR == 2 {{print $1}}') {GIB} 0 {2 * GIB} 0 1 0 0 0\"\n"
    )
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    client = RelayClient(LocalTransport())
    try:
        assert [one.words for one in quotas(client, "/not/there/yet")] == ["1 of 2 GiB (yours)"]
    finally:
        client.close()
