"""GPUs, drivers, NCCL, gloo, disks and ports."""

from __future__ import annotations

from case import Case

WATCHDOG = (
    "[rank{rank}]:[E816 01:45:40.1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=5056, NumelOut=5056, Timeout(ms)=600000) ran for 600026 milliseconds "
    "before timing out."
)


def watchdog(rank: int, seq: int, op: str = "ALLREDUCE") -> str:
    """Return the line of torch's NCCL watchdog."""
    return WATCHDOG.format(rank=rank, seq=seq, op=op)


CASES = {
    "xid_79_fell_off_bus": Case(
        has=(
            "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            " NVRM: fallen off the bus and is not responding to commands.",
            "Unable to determine the device handle for GPU0000:81:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
            "nvidia-smi: Unable to determine the device handle for GPU 0000:81:00.0: Unknown Error",
            "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.\nRuntimeError: CUDA error: unknown error",
            "failed to get remapped rows of GPU 3: NVML_ERROR_GPU_IS_LOST",
            "XidCriticalError: Xid=79 on Device=GPU-7d6a, the device will go unhealthy.",
        ),
        looks_like=("NVRM: Xid (PCI:0000:91:00): 45, pid=1, name=python3, Ch 00000008",),
    ),
    "xid_119_gsp": Case(
        has=(
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC "
            "response "
            "from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC).",
            "[   84.7] NVRM: GPU6 RPC event history (CPU <- GSP):",
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=8120, name=python3, Timeout after 45s of waiting for RPC response "
            "from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC)\nRuntimeError: CUDA error: unknown error",
        ),
        looks_like=(
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01",
            "NVRM: Xid (PCI:0000:0a:00): 31, pid=1, MMU Fault\nNVRM: Xid (PCI:0000:0a:00): 62, pid=1, 2023b230",
        ),
    ),
    "xid_memory_ecc": Case(
        has=(
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to "
            "activate.",
            "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error",
            "NVRM: Xid (PCI:0000:9b:00): 48, pid=1234, name=python3, DBE (double bit error) ECC Error",
        ),
        looks_like=("NVRM: Xid (PCI:0000:9b:00): 13, pid=12, Graphics SM Warp Exception",),
    ),
    "xid_nvlink": Case(
        has=(
            "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6)\n"
            "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
            "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 1 caused by previous Xid 149",
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            "XID 149.0 (err status 0x0) NVLINK_NETIR_ERROR: NETIR error detected on GPU PCI:0019:01:00",
        ),
        looks_like=(
            "NVRM: Xid (PCI:0009:01:00): 145, RLW_REMAP  Nonfatal XC1 i0 Link 08",
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
        ),
    ),
    "xid_app_fault": Case(
        has=(
            "NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', Graphics SM Warp Exception on (GPC 9, TPC 5, SM 0): "
            "Out Of "
            "Range Address\nNVRM: Xid (PCI:0000:38:00): 43, pid=2924364, name=pt_main_thread, Ch 00000008",
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "RuntimeError: HIP error: misaligned address",
            "what():  CUDA error: cudaErrorLaunchTimeout",
            "GpuMemWatch: DCGM_FR_XID_ERROR GPU:4 Detected XID 31 for GPU 4 Please consult the documentation",
            "Memory access fault by GPU node-4 (Agent handle: 0x55d) on address 0x7f01a0000. Reason: Unknown.",
            ":0:rocdevice.cpp: Callback: Queue aborting with error : HSA_STATUS_ERROR_EXCEPTION: hardware exception",
        ),
        looks_like=(
            "cudaErrorLaunchTimeoutHandler registered",
            "XID errors: 0 for GPU 3",
            "XID 45 detected on GPU PCI:0000:1b:00",
            "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x0 (None) to 0x1",
        ),
    ),
    "ecc_uncorrectable": Case(
        has=(
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "terminate called: cudaErrorECCUncorrectable",
            "            DRAM Uncorrectable            : 2",
        ),
        looks_like=(
            "            SRAM Uncorrectable            : 0\n            DRAM Correctable              : 177",
            "| Fan  Temp  Perf  Pwr:Usage/Cap| Volatile Uncorr. ECC |",
        ),
    ),
    "gpu_diag_fail": Case(
        has=(
            "A GPU reset is required for GPU 00000000:41:00.0",
            "| Error                     | GPU 3 has uncorrectable memory errors and row  |\n"
            "|                           |  remappings are pending                        |",
            "| Memory                    | Fail - GPU: 2                                  |",
        ),
        looks_like=("| Memory                    | Pass - All                                     |",),
    ),
    "driver_mismatch": Case(
        has=(
            "Failed to initialize NVML: Driver/library version mismatch",
            "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
            "NCCL WARN CUDA Driver version found is 11040. Minimum requirement is 12020",
            'CUDA error at bandwidthTest.cu:256 code=802(cudaErrorSystemNotReady) "cudaSetDevice(currentDevice)"',
            "cudaGetDeviceCount returned 802",
            "cuInit failed: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "nv-fabricmanager[881]: detected number of NVSwitches fits no supported topology, aborting fabric manager",
        ),
        looks_like=(
            "cudaMemcpy returned 4096 bytes",
            "| NVIDIA-SMI 550.144    Driver Version: 550.144    CUDA Version: 12.4 |",
        ),
    ),
    "gpu_arch_unsupported": Case(
        has=(
            "AssertionError: fp8e4nv data type is not supported on CUDA arch < 89",
            "RuntimeError: FlashAttention-3 only supports Hopper GPUs or newer.",
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
            "Hardware limit: 101376.",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "RuntimeError: HIP error: invalid device function",
            'guarantee(false && "hipErrorNoBinaryForGpu: Coudn\'t find binary for current devices!")',
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100 "
            "GPU has "
            "compute capability 7.0.",
            "RuntimeError: No available kernel. Aborting execution.",
            "flash_attn at sgl-kernel is only supported on sm90 and above",
            "RuntimeError: Expected is_sm90 || is_sm8x || is_sm75 to be true, but got false.",
        ),
        looks_like=("Using device NVIDIA H100, compute capability 9.0", "fp8 KV cache is supported on sm90 and above"),
    ),
    "nccl_timeout": Case(
        has=(
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent "
            "operations might run on incomplete data. To avoid this inconsistency, we are taking the process down.",
            "\n".join(watchdog(rank, 1580) for rank in (0, 1, 3)),
            "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
            "[E ProcessGroupNCCL.cpp:821] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803515 milliseconds before timing out.",
        ),
        looks_like=(
            "Initializing the process group with a NCCL timeout of 1800 s (default)",
            "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: "
            "uncorrectable "
            "ECC error encountered",
        ),
    ),
    "nccl_desync": Case(
        has=(
            watchdog(7, 80078, "BROADCAST") + "\n" + watchdog(3, 80078),
            watchdog(0, 96120) + "\n" + watchdog(7, 64088),
            "NCCL WARN NET/Socket : peer 10.0.0.2<40000> message truncated : receiving 64 bytes instead of 32.",
            "NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 39.",
            "RuntimeError: disagreement between rank0 and rank3: rank0: [201, 202], rank3: [211, 212]",
        ),
        looks_like=("\n".join(watchdog(rank, 7) for rank in range(4)),),
    ),
    "nccl_system_error": Case(
        has=(
            "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : no socket interface found",
            "n1:7:9 [0] bootstrap.cc:120 NCCL WARN NET/Socket : No usable listening interface found",
            "n1:7:9 [0] NCCL WARN No transport found for rank 0[1a000] -> rank 1[1b000]",
            "NCCL WARN NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try "
            "selecting NICs of only one link type using NCCL_IB_HCA",
            "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.18.1",
            "DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a network error",
            "n1:7:9 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.7<45541> failed : No "
            "route to host",
            "NCCL INFO NET/Socket : Using\n[0]bond0:192.168.1.161<0>\n[1]br-05ab815fa14e:172.19.0.1<0>"
            "[2]veth25f2e72:fe80::380d%veth25f2e72<0>",
            "NCCL INFO socketPollConnect: connect returned No route to host, retrying (1/34) after sleep for 100 msec\n"
            "NCCL INFO socketPollConnect: connect returned No route to host, retrying (34/34) after 3400 msec",
            "n1:7:9 [0] NCCL INFO init.cc:1303 -> 2",
        ),
        looks_like=(
            "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
            "NCCL INFO NET/Socket : Using [0]eno1:10.0.0.1<0> [1]veth25f2e72:fe80::380d%veth25f2e72<0>",
            "NCCL INFO socketPollConnect: connect returned No route to host, retrying (1/34) after sleep for 100 msec",
            "n1:7:9 [0] NCCL INFO init.cc:1303 -> 0",
            "NCCL INFO NET/Plugin : libnccl-net.so: cannot open shared object file: No such file or directory",
            "NCCL WARN Call to connect returned Connection refused, retrying",
        ),
    ),
    "nccl_ib_error": Case(
        has=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.3<36315> with status=12 opcode=0 len=0 vendor err "
            "129 (Send)",
            "NCCL WARN NET/IB : Got completion with error 12, opcode 32, len 0, vendor err 129",
        ),
        looks_like=("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.0.0.9<0>",),
    ),
    "nccl_duplicate_gpu": Case(
        has=(
            "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
            "RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)",
            "n1:7:9 [0] NCCL WARN Multiple Ranks are using the same GPU/Partition.",
        ),
        looks_like=("rank 1 and rank 0 on CUDA devices 1 and 0",),
    ),
    "nccl_lib_mismatch": Case(
        has=(
            "ImportError: torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
            "libtorch_cuda.so:%20undefined%20symbol:%20ncclCommRegister",
            "NCCL WARN NCCL library is not backwards compatible. This application was compiled with NCCL version "
            "2.28.3, but is running with NCCL library version 2.27.5.",
            "[pip3] nvidia-nccl-cu12==2.29.3\n[pip3] nvidia-nccl-cu13==2.29.7",
            'declare -x NCCL_VERSION="2.15.5-1"\nprint(torch.cuda.nccl.version())\n(2, 19, 3)',
        ),
        looks_like=(
            'declare -x NCCL_VERSION="2.19.3-1"\nprint(torch.cuda.nccl.version())\n(2, 19, 3)',
            "NCCL version 2.21.5+cuda12.4",
            "[pip3] nvidia-nccl-cu12==2.27.3\n[conda] nvidia-nccl-cu12         2.27.3        pypi_0    pypi",
        ),
    ),
    "gloo_timeout": Case(
        has=(
            "RuntimeError: Broken pipe: sendBytes failed on SocketImpl(fd=67, addr=[n1]:41002, remote=[n0]:29500)",
            "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.h:301] Connect timeout [none]",
            "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] Unable to find address for: eth7",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
            "[10.0.0.2]:28048",
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        ),
        looks_like=(
            "[W socket.cpp:601] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 97 - Address "
            "family "
            "not supported by protocol).",
            "using backend gloo with timeout 1800 s",
            '[rank1]:[W12 ProcessGroupNCCL.cpp:1662] Failed to check the "should dump" flag on TCPStore, (maybe '
            "TCPStore server has shut down too early), with error: Broken pipe\n[rank1]:[W12 TCPStore.cpp:106] [c10d] "
            "sendBytes failed on SocketImpl(fd=67, addr=[n1]:36214, remote=[n0]:43145): Broken pipe",
        ),
    ),
    "disk_quota": Case(
        has=("OSError: [Errno 122] Disk quota exceeded: '/home/me/.triton/cache/x.json'",),
        looks_like=("quota: 12G of 50G used",),
    ),
    "disk_full": Case(
        has=(
            "OSError: [Errno 28] No space left on device: '/scratch/me/ckpt/step-50.pt'",
            "OSError: Not enough disk space. Needed: 1.2 TiB (download: 1.0 TiB, generated: 0.2 TiB)",
            "RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file "
            "data/0: file "
            "write failed",
        ),
        looks_like=(
            "Error: ENOSPC: System limit for number of file watchers reached (inotify)",
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'",
        ),
    ),
    "too_many_open_files": Case(
        has=("OSError: [Errno 24] Too many open files: 'x.bin'", "RuntimeError: received 0 items of ancdata"),
        looks_like=("open files                      (-n) 1048576",),
    ),
    "port_in_use": Case(
        has=(
            "RuntimeError: Could not find a free port in range (20000, 21000)",
            "ConnectionError: Tried to launch on port `29500`, but another process is utilizing it.",
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
            "address. The "
            "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        ),
        looks_like=("port 8000 is in use, trying port 8001 instead", "listening on 0.0.0.0:8000"),
    ),
}
