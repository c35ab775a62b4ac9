"""How they say it: NCCL, gloo and torch.distributed."""

from rltui.diagnose import collective_judges as judges
from rltui.diagnose.signs import Sign, signs

_WORK = (
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, (?:NumelIn=(?P<numel>\d+)|Tensor[Ss]hape=\[(?P<shape>[\d, ]*)\]))?"
)

SIGNS = (
    Sign(
        cause="nccl_timeout",
        anchor="collective operation timeout",
        pattern=rf"(?:\[Rank (?P<rank>\d+)\].*)?[Cc]aught collective operation timeout(?:: {_WORK})?",
        confidence=0.9,
    ),
    Sign(
        cause="nccl_position",
        anchor="detected by watchdog at work",
        pattern=r"(?:PG (?:ID )?(?P<group>\S+).*)?Rank (?P<rank>\d+)\].*watchdog at work: (?P<seq>\d+)"
        r"(?:, last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: (?P<completed>-?\d+))?",
    ),
    *signs(
        "nccl_timeout",
        ("detected by watchdog at work", ""),
        ("nccl work", r"(?i)timeout at NCCL work"),
        ("collective timeout", r"(?i)dump signal due to a collective timeout|due to (?:a )?collective timeout"),
        ("heartbeat", r"(?i)nccl.{0,80}heartbeat monitor.{0,40}(?:timed out|timeout)|Heartbeat monitor timed out"),
        ("nccl communicator was aborted", r"(?i)nccl communicator was aborted"),
        ("retrieving nccluniqueid", r"(?i)retrieving ncclUniqueId.{0,200}(?:timeout|timed out|Socket Timeout)"),
        ("wait timeout", r"(?i)(?:nccl|DistBackendError|process group).{0,200}wait timeout after"),
        ("collective", r"(?i)\bcollective\b.{0,80}\btimed out\b|\btimed out\b.{0,80}\bcollective\b"),
        ("nccl", r"(?i)\bnccl (?:watchdog )?timeout\b"),
        ("worknccl", r"WorkNCCL\(.{0,300}timed out in blocking wait"),
        ("heartbeat of its watchdog", r"detected no heartbeat of its watchdog"),
        ("dump debug info", r"(?i)after attempting to dump debug info, due to collective timeout"),
        confidence=0.8,
        unless=r"(?i)set to|default(?!_pg)|NCCL_TIMEOUT|to avoid|increase|with exception: CUDA error",
    ),
    *signs(
        "nccl_timeout",
        ("watchdog thread terminated with exception", r"watchdog thread terminated with exception: \[Rank"),
        confidence=0.8,
    ),
    *signs(
        "nccl_timeout",
        ("watchdog got stuck", r"(?i)watchdog got stuck for \d+ ?s"),
        ("watchdog hang", r"due to ProcessGroup\w+ watchdog hang"),
        confidence=0.8,
    ),
    *signs(
        "nccl_timeout",
        ("some nccl operations have failed or time", ""),
        confidence=0.6,
    ),
    *signs(
        "nccl_desync",
        ("mismatched collective", r"(?i)mismatched collective"),
        ("collective", r"(?i)mismatch(?:es)? between collectives|collective mismatch", "collective collectives"),
        ("running collective", r"(?i)rank \d+ is running collective.{0,400}but rank \d+ is running collective"),
        (
            "desync",
            r"(?i)desync(?:hronized|ed)? (?:detected|report|between ranks)|caused the desync|ranks? (?:are|is) desync",
            "desync desynced desynchronized",
        ),
        ("message truncated", r"NCCL WARN.*Message truncated ?:"),
        confidence=0.9,
        unless=r"(?i)DESYNC_DEBUG\b.{0,20}[=:]|set to|enabled",
    ),
    *signs(
        "nccl_system_error",
        ("ncclsystemerror", ""),
        ("unhandled system error", ""),
        (
            "nccl warn",
            r"NCCL WARN.{0,200}(?:Connection refused|No route to host|timed out|Network is unreachable|Connection "
            r"reset|Connection closed|Broken pipe|shared memory|/dev/shm/|Bad address)",
        ),
        ("", r"socket\.(?:h|cc):\d+.{0,20}WARN.{0,200}(?:failed|refused|No route|timed out|closed)", "socket"),
        (
            "nccl warn",
            r"NCCL WARN.{0,40}(?:Bootstrap|NET/Socket|Net|socket\w*) ?:? .{0,120}(?:no socket interface|no interface "
            r"found|failed|timeout)",
        ),
        (
            "",
            r"socket(?:StartConnect|PollConnect|Progress(?:Opt)?|Recv|Send|Accept|TryAccept)\b.{0,160}(?:failed|refused|closed|"
            r"exceeded)",
            "socketstartconnect socketpollconnect socketprogress socketprogressopt socketrecv socketsend socketaccept "
            "sockettryaccept",
        ),
        ("bootstrap root", r"Bootstrap Root : .{0,80}(?:already checked in|mismatch)"),
        ("nccl", r"(?i)nccl.{0,120}(?:No route to host|Network is unreachable|no socket interface found)"),
        confidence=0.85,
        unless=r"(?i)\bretrying\b",
    ),
    *signs(
        "nccl_system_error",
        ("socketpollconnect", r"NCCL WARN socketPollConnect poll\(\)"),
        ("retrying", r"socketPollConnect.{0,120}retrying \((?P<tries>\d+)/(?P=tries)\)"),
        ("nccl info", r"NCCL INFO (?:bootstrap|init|group|enqueue)\.cc:\d+ -> 2\b", "bootstrap init group enqueue"),
        confidence=0.65,
    ),
    Sign(
        cause="nccl_system_error",
        anchor="net/socket",
        pattern=r"NET/Socket ?: Using",
        check=judges.read_socket_interfaces,
    ),
    *signs(
        "nccl_ib_error",
        (
            "got completion",
            r"(?i)got completion (?:from peer (?P<peer>[\w.:%]+)(?:<\d+>)? )?(?:with )?(?:error|"
            r"status)[ =]?(?P<status>\d+)",
        ),
        (
            "ib",
            r"(?i)NET/IBP? ?:.{0,160}(?:vendor err \d+|async(?:hronous)? (?:fatal )?(?:event|error)|failed|"
            r"catastrophic|timed out)",
            "ib ibp",
        ),
        ("ibv_", r"(?i)(?:call to |WARN.{0,20})ibv_\w+.{0,120}(?:failed|error)"),
        ("transport retry", r"(?i)transport retry (?:counter|count) exceeded"),
        ("ibv_wc_", r"IBV_WC_(?!SUCCESS)\w+"),
        confidence=0.85,
        unless=r"No device found|Using \[0\]",
    ),
    *signs(
        "nccl_ib_error",
        ("ncclremoteerror", ""),
        confidence=0.65,
    ),
    *signs(
        "nccl_duplicate_gpu",
        ("duplicate gpu detected", r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+)"),
        "duplicate gpu detected",
        confidence=0.95,
    ),
    *signs(
        "nccl_lib_mismatch",
        ("undefined symbol", r"undefined symbol: p?nccl\w+"),
        ("nccl version", r"(?i)mismatch(?:ed)? nccl version|nccl version mismatch"),
        (
            "libnccl.so",
            r"(?i)(?:ImportError|OSError|error while loading).{0,80}libnccl\.so\S*: cannot open shared object",
        ),
        ("libnccl", r"libnccl\S*: version `?\S+'? not found"),
        confidence=0.9,
    ),
    Sign(cause="nccl_loaded", anchor="nccl.version", check=judges.read_loaded_version),
    Sign(cause="nccl_system", anchor="nccl_version=", pattern=r"NCCL_VERSION=\"?2\.(?P<minor>\d+)\."),
    *signs(
        "gloo_timeout",
        ("connectfullmesh", r"(?i)connectFullMesh failed"),
        (
            "gloo",
            r"(?i)gloo.{0,200}(?:timed out|(?:connect|read|write|socket) timeout|Connection closed by peer|"
            r"Connection reset|Read error|Broken pipe|"
            r"Connection refused|SO_ERROR|timeout caused pair closure)",
        ),
        (
            "monitoredbarrier",
            r"(?i)failed to pass monitoredBarrier|monitoredBarrier.{0,80}(?:timed out|timeout|received errors)",
        ),
        ("waiting for clients", r"(?i)timed out after \d+ seconds waiting for clients"),
        ("client socket has timed out", r"(?i)client socket has timed out after \d+"),
        ("failed to connect to any network address", r"socket has failed to connect to any network address of"),
        (
            "",
            r"(?i)(?:tcpstore|DistNetworkError).{0,200}(?:timed? ?out|Socket Timeout|Connection reset|"
            r"failed to recv|Broken pipe)",
            "tcpstore distnetworkerror",
        ),
        (
            "retrieving nccluniqueid",
            r"(?i)retrieving ncclUniqueId.{0,200}(?:failed to recv|connection reset|broken pipe|connection closed)",
        ),
        ("unbound_buffer", r"unbound_buffer\.cc:\d+\] Timed out waiting"),
        ("wait timeout", r"(?i)wait timeout after \d+ms, keys:"),
        ("distnetworkerror", r"(?i)DistNetworkError:.{0,120}(?:timed out|failed to connect|refused)"),
        ("diststoreerror", ""),
        ("store based barrier", r"(?i)timed out initializing process group in store based barrier"),
        (
            "rendezvous",
            r"(?i)rendezvous(?:timeout|connection)error|rendezvous.{0,80}timed "
            r"out",
            "rendezvous rendezvoustimeouterror rendezvousconnectionerror",
        ),
        confidence=0.8,
        unless=r"EADDRINUSE|Address already in use|TCPStore server has shut down|recvValue",
    ),
    Sign(
        cause="gloo_timeout",
        anchor="recvvalue",
        pattern=r"(?i)recvValue.{0,200}(?:timed? ?out|Connection reset|failed to recv|Broken pipe)",
        check=judges.read_lost_store,
    ),
)
