"""Says as one JSON object what a machine has for runs and who has it; run by rltui, from wherever that is.

``{"cpus", "gpus", "memory_gib", "cards": [{"index", "name", "memory_used_mib", "processes": [[pid, user, program]]}],
"tickets": [ticket and "user", "is_mine"], "ends_at_logout", "problem"}``: first the tickets that run, then those that
wait, in their order.
"""

import glob
import json
import os
import re
import sys
from typing import Any, Dict, List

from rltui.onnode import host_cards, host_tickets, preflight, rundir
from rltui.onnode.host_queue import in_order


def look() -> Dict[str, Any]:
    """What there is to say."""
    here = preflight.capacity()
    told: Dict[str, Any] = {"cpus": here.cpus, "gpus": here.gpus, "memory_gib": memory_gib(), "problem": ""}
    told.update(cards=[], tickets=[], ends_at_logout=ends_at_logout())
    try:
        found = host_cards.cards() if here.gpus and host_cards.has_driver() else []
        told["cards"] = [
            {
                "index": card.number,
                "name": card.name,
                "memory_used_mib": card.memory_used_mib if card.in_use else 0,
                "processes": [[pid, *host_cards.owner_of(pid)] for pid in card.pids],
            }
            for card in found
        ]
        told["tickets"] = tickets()
    except OSError as error:
        told["problem"] = str(error)
    return told


def memory_gib() -> float:
    """Main memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def ends_at_logout() -> bool:
    """Whether systemd ends this user's processes when the last session is closed (logind.conf(5), loginctl(1))."""
    said = ""
    for folder in ("/usr/lib/systemd", "/etc/systemd"):
        for file in (folder + "/logind.conf", *sorted(glob.glob(folder + "/logind.conf.d/*.conf"))):
            said += "\n" + rundir.read_tail(file)
    words = re.findall(r"(?mi)^\s*KillUserProcesses\s*=\s*(\S+)", said)
    lingers = os.path.exists("/var/lib/systemd/linger/" + host_tickets.user_name(os.getuid()))
    return bool(words) and words[-1].lower() in ("yes", "true", "1", "on") and not lingers


def tickets() -> List[Dict[str, Any]]:
    """The tickets of all users, as they stand in the queue.

    Raises:
        OSError: The queue's folder cannot be used.
    """
    living = host_tickets.living(host_tickets.folder_of_tickets())
    running = [ticket for ticket in living if ticket.state == host_tickets.RUNNING]
    cards: Dict[int, int] = {}
    for ticket in running:
        cards[ticket.uid] = cards.get(ticket.uid, 0) + len(ticket.gpu_indices)
    waiting = in_order([ticket for ticket in living if ticket not in running], cards)
    return [
        {**ticket._asdict(), "user": host_tickets.user_name(ticket.uid), "is_mine": ticket.uid == os.getuid()}
        for ticket in (*running, *waiting)
    ]


def main() -> None:
    """Print what ``look`` found, one JSON object."""
    json.dump(look(), sys.stdout)
