"""The daemons of the lab: how each is started and how one sees that it is ready."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .spec import USERS

LISTENING = "0A"
# Small and careless of power cuts: what it holds is gone with the lab.
DATABASE = """
set -e
data=/var/spool/mysql
if [ ! -d $data ]; then
  install -d -o mysql -g mysql $data
  mariadb-install-db --no-defaults --datadir=$data --user=mysql --skip-test-db
fi
cat >/run/mysqld/init.sql <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
SQL
exec mariadbd --no-defaults --datadir=$data --user=mysql --socket=/run/mysqld/mysqld.sock --skip-networking \
  --init-file=/run/mysqld/init.sql --performance-schema=0 --innodb-buffer-pool-size=64M --innodb-log-file-size=32M \
  --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --skip-log-bin
"""


@dataclass(frozen=True)
class Service:
    """A daemon that stays in the foreground.

    Args:
        argv: Its command.
        port: TCP port on which it listens once it is ready.
        socket: Or the Unix socket that is there then.
        user: As whom it runs.
    """

    argv: tuple[str, ...]
    port: int = 0
    socket: str = ""
    user: str = "root"


MUNGED = (
    "/usr/sbin/munged",
    "--foreground",
    "--seed-file=/run/munge/seed",
    "--pid-file=/run/munge/pid",
    "--log-file=/run/munge/log",
)
SERVICES = {
    "munged": Service(MUNGED, socket="/run/munge/munge.socket.2", user="munge"),
    "sshd": Service(("/usr/sbin/sshd", "-D", "-e"), port=22),
    "mariadbd": Service(("bash", "-c", DATABASE), socket="/run/mysqld/mysqld.sock"),
    "slurmdbd": Service(("/usr/sbin/slurmdbd", "-D"), port=6819, user="slurm"),
    "slurmctld": Service(("/usr/sbin/slurmctld", "-D"), port=6817, user="slurm"),
    "slurmd": Service(("/usr/sbin/slurmd", "-D"), port=6818),
}


def enter(pid: int, user: str = "root") -> tuple[str, ...]:
    """Return the words before a command that make it run on the node whose first process is ``pid``."""
    spaces = ("nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid")
    identity = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env")
    folder = f"/home/{user}" if user in USERS else "/"
    return (*spaces, *identity, "env", f"--chdir={folder}", "LANG=C.UTF-8")


def is_ready(service: Service, pid: int) -> bool:
    """Whether the service answers on the node whose first process is ``pid``."""
    if service.socket:
        return os.path.exists(f"/proc/{pid}/root{service.socket}")
    suffix = f":{service.port:04X}"
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            rows = [line.split() for line in file]
        if any(row[1].endswith(suffix) and row[3] == LISTENING for row in rows[1:]):
            return True
    return False
