"""What a user may still put on a disk: quotas, as ``lfs``, ``mmlsquota`` and ``quota`` tell of them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError

QUOTAS = """
root=$1 me=$(id -un) PATH=$PATH:/usr/lpp/mmfs/bin
while [ ! -e "$root" ] && [ "$root" != / ]; do root=$(dirname -- "$root"); done
echo "== source $(df -Pk -- "$root" 2>/dev/null | awk 'NR == 2 {print $1}')"
try() { echo "== $1"; shift; timeout 10 "$@" 2>/dev/null; }
if command -v lfs >/dev/null && lfs getname "$root" >/dev/null 2>&1; then
  try "lfs yours" lfs quota -q -u "$me" "$root"
  try "lfs group's" lfs quota -q -g "$(stat -c %G -- "$root")" "$root"
  project=$(timeout 10 lfs project -d "$root" 2>/dev/null | awk '{print $1}')
  case $project in ''|0|*[!0-9]*) ;; *) try "lfs project's" lfs quota -q -p "$project" "$root" ;; esac
elif command -v mmlsquota >/dev/null; then
  try "mm" mmlsquota -Y
elif command -v quota >/dev/null; then
  try "quota yours" quota -u -p -w
  try "quota group's" quota -g -p -w
fi
exit 0
"""
"""Asks whichever program knows; each of them has ten seconds, as servers of quotas may hang."""

TIMEOUT_S = 35.0
NEARLY = 0.95
"""Share of a quota from which on it is nearly full."""

_KIB_PER_GIB = 1 << 20


class Quota(Struct, frozen=True, kw_only=True):
    """One quota that holds where a folder is; 0 as a limit: there is none of that."""

    whose: str
    """``yours``, ``group's``, ``project's`` or ``fileset's``."""
    used_gib: float = 0.0
    limit_gib: float = 0.0
    files: int = 0
    files_limit: int = 0

    @property
    def left_gib(self) -> float | None:
        """What may still be written; None without a limit."""
        return max(0.0, self.limit_gib - self.used_gib) if self.limit_gib else None

    @property
    def is_nearly_full(self) -> bool:
        """Whether bytes or files are near their limit."""
        pairs = ((self.used_gib, self.limit_gib), (self.files, self.files_limit))
        return any(limit and used >= NEARLY * limit for used, limit in pairs)

    @property
    def words(self) -> str:
        """``80 of 100 GiB, 900 of 1000 files (yours)``."""
        parts = [f"{self.used_gib:.0f} of {self.limit_gib:.0f} GiB"] if self.limit_gib else []
        parts += [f"{self.files} of {self.files_limit} files"] if self.files_limit else []
        return f"{', '.join(parts)} ({self.whose})"


def quotas(client: RelayClient, folder: str) -> tuple[Quota, ...]:
    """The quotas that hold in ``folder``; none where there are none, or nobody tells in time."""
    try:
        done = client.run(["sh", "-c", QUOTAS, "sh", folder], timeout_s=TIMEOUT_S, idempotent=True)
    except RelayError as error:
        if error.kind == "timeout":
            return ()
        raise
    return read_quotas(done.out)


def read_quotas(text: str) -> tuple[Quota, ...]:
    """Return the quotas in the output of ``QUOTAS``; what has no limit, or is not understood, is none."""
    source, found = "", []
    for part in text.split("== ")[1:]:
        head, _, body = part.partition("\n")
        program, _, rest = head.partition(" ")
        if program == "source":
            source = rest.strip()
        elif program == "lfs":
            found += [_quota(rest, body.split()[1:])]
        elif program == "quota":
            found += [_quota(rest, words[1:]) for words in map(str.split, body.splitlines()) if words[:1] == [source]]
        elif program == "mm":
            found += _of_gpfs(body.splitlines(), posixpath.basename(source))
    return tuple(one for one in found if one is not None and (one.limit_gib or one.files_limit))


def _quota(whose: str, fields: Sequence[str]) -> Quota | None:
    """Of used, soft, hard, grace and the same of files, in KiB; a star marks what is over, brackets what is a guess."""
    numbers = [word.strip("[]*") for word in fields[:7]]
    if len(numbers) < 7 or not all(numbers[place].isdigit() for place in (0, 1, 2, 4, 5, 6)):
        return None
    used, soft, hard, files, files_soft, files_hard = (int(numbers[place]) for place in (0, 1, 2, 4, 5, 6))
    return Quota(
        whose=whose,
        used_gib=used / _KIB_PER_GIB,
        limit_gib=(hard or soft) / _KIB_PER_GIB,
        files=files,
        files_limit=files_hard or files_soft,
    )


def _of_gpfs(lines: Iterable[str], device: str) -> list[Quota]:
    """Quotas of ``mmlsquota -Y``, whose fields stand between colons, in the order that a line of heads gives."""
    heads: list[str] = []
    found: list[Quota | None] = []
    for line in lines:
        fields = line.split(":")
        if fields[2:3] == ["HEADER"]:
            heads = fields
            continue
        row = dict(zip(heads, fields, strict=False))
        if row.get("filesystemName") != device:
            continue
        whose = {"USR": "yours", "GRP": "group's", "FILESET": "fileset's"}.get(row.get("quotaType", ""), "site's")
        names = ("blockUsage", "blockQuota", "blockLimit", "blockGrace", "filesUsage", "filesQuota", "filesLimit")
        found.append(_quota(whose, [row.get(name, "") for name in names]))
    return [one for one in found if one is not None]
