"""Slurm, Ray and containers."""

from __future__ import annotations

from case import Case

RESTARTED = (
    "engine 0 (pid 8 on n1) died while generating: The actor is dead because its worker process has died. Worker exit "
    "type: SYSTEM_ERROR Worker exit detail: End of file.; starting it again"
)
"""What our own trainers say of an engine that they start again in its place."""

CASES = {
    "slurm_time_limit": Case(
        has=(
            "slurmstepd: error: *** JOB 38 ON node023 CANCELLED AT 2026-08-19T16:30:21 DUE TO TIME LIMIT ***",
            "slurmstepd: error: *** STEP 38.0 ON node023 CANCELLED AT 2026-08-19T16:30:21 DUE TO TIME LIMIT ***",
            "4242|train|TIMEOUT|0:0|node07",
        ),
        looks_like=(
            "slurmstepd: error: *** JOB 38 ON node023 CANCELLED AT 2026-08-19T16:30:21 ***",
            "NCCL_TIMEOUT=1800 TIMEOUT set for the health check",
            "#SBATCH --time=24:00:00   # the time limit",
        ),
    ),
    "slurm_node_fail": Case(
        has=(
            "slurmstepd: error: *** JOB 38 ON n7 CANCELLED AT 2026-08-19T16:30:21 DUE TO NODE FAILURE, SEE SLURMCTLD "
            "LOG ***",
            "salloc: error: Node failure on worker-1",
            "root|NODE_FAIL|",
            "error: Nodes n[3-4] not responding, setting DOWN",
        ),
        looks_like=("all 8 nodes responding, no node failed",),
    ),
    "slurm_preempted": Case(
        has=(
            "slurmstepd: error: *** JOB 39 ON cn119 CANCELLED AT 2026-06-18T13:05:36 DUE TO PREEMPTION ***",
            "slurmstepd: error: *** JOB 40 ON n1 CANCELLED AT 2026-08-12T02:06:12 DUE TO JOB REQUEUE ***\n"
            "srun: error: n1: tasks 2-3: Exited with exit code 1",
        ),
        looks_like=("scheduler: request 4 preempted by recompute, 2 running",),
    ),
    "slurm_submit_reject": Case(
        has=(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "error: QOSMaxWallDurationPerJobLimit\nerror: Batch job submission failed: Job violates accounting/QOS "
            "policy",
            "srun: error: Unable to allocate resources: Requested node configuration is not available",
            "sbatch: unrecognized option '--gpu'",
            "sbatch: error: Parameter --gres=gpu:2 no longer acceptable, please switch to --gpus=2",
        ),
        looks_like=(
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "Submitted batch job 4242",
        ),
    ),
    "slurm_pending": Case(
        has=(
            "ReqNodeNotAvail, UnavailableNodes:c002",
            "4242 gpu train me PD 0:00 4 (QOSMaxCpuPerJobLimit)",
            "(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)",
        ),
        looks_like=(
            "4242 gpu train me PD 0:00 4 (Resources)",
            "88_[1-10%1] prod train me PD 0:00 64 (Dependency)",
            "4243 gpu train me PD 0:00 4 (Priority)",
        ),
    ),
    "slurm_step_create": Case(
        has=(
            "srun: error: Unable to create step for job 1930: Invalid generic resource (gres) specification",
            "srun: error: Unable to confirm allocation for job 1234: Invalid job id specified",
            "srun: Job 94 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
            "srun: Job 94 step creation still disabled, retrying (Requested nodes are busy)",
            "srun: error: Task launch for StepId=47.4 failed on node u20: Job credential expired",
        ),
        looks_like=(
            "srun: Job 94 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
            "srun: Job 94 step creation still disabled, retrying (Requested nodes are busy)\n"
            "srun: Step created for StepId=94.1",
            "srun: Job 94 step creation temporarily disabled, retrying (Requested nodes are busy)\nstep 1 loss 2.1",
        ),
    ),
    "slurm_launch_failed": Case(
        has=(
            "slurmstepd: error: execve(): /var/spool/slurmd/job00089/slurm_script: No such file or directory",
            "4242 gpu train me PD 0:00 4 (launch failed requeued held)",
            "srun: error: Task launch for StepId=96.0 failed on node n2: Communication connection failure",
            "_job_complete: JobId=127441 WTERMSIG 9",
        ),
        looks_like=("_job_complete: JobId=127441 WEXITSTATUS 0", "prolog finished on 8 nodes"),
    ),
    "output_folder_missing": Case(
        has=(
            "slurmstepd: error: Could not open stdout file /w/logs/88.out: No such file or directory\n"
            "slurmstepd: error: IO setup failed: No such file or directory",
        ),
        looks_like=("stdout and stderr go to /w/logs/88.out",),
    ),
    "slurm_controller_down": Case(
        has=(
            "squeue: error: slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "sbatch: error: Rate limit exceeded, please retry momentarily",
        ),
        looks_like=("wandb: 429 encountered, rate limit exceeded, retrying request", "slurmctld is up on ctl1"),
    ),
    "ssh_denied_no_job": Case(
        has=("Access denied by pam_slurm_adopt: you have no active jobs on this node",),
        looks_like=("Access granted by pam_slurm_adopt: job 4242",),
    ),
    "container_start": Case(
        has=(
            'level=error msg="runc create failed: unable to start container process: error during container init"',
            "slurmstepd: error: pyxis: container start failed with error code: 1\n"
            "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory",
            "docker: Error response from daemon: could not select device driver with capabilities: [[gpu]].",
            "/usr/bin/enroot: line 111: /usr/lib/enroot/common.sh: No such file or directory",
            "enroot-mount: failed to mount: /dev/shm: Operation not permitted",
            "FATAL:   container creation failed: mount /proc error",
            "ERROR  : Failed to create container namespace: Operation not permitted",
        ),
        looks_like=(
            "pyxis: importing docker image: ubuntu:22.04\npyxis: imported docker image: ubuntu:22.04",
            "enroot start: mounting /data",
        ),
    ),
    "ray_actor_died": Case(
        has=(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tpid: 87687",
            "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
            "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed due to other "
            "reasons",
            "terminate called after throwing an instance of 'std::system_error'\n"
            "  what():  thread: Resource temporarily unavailable [system:11]\n"
            "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
            f"{RESTARTED} (3 of 3 restarts within an hour)\nengine 0 (pid 9 on n1) runs weight version 50 and goes on\n"
            "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        ),
        looks_like=(
            "The actor is dead because it was killed by `ray.kill`.",
            "[2026-11-26 21:46:55,772 W 154 154] actor_manager.cc:110: Failed to look up actor with name 'learner 0'. "
            "This could because 1. You are trying to look up a named actor you didn't create. 2. The named actor died.",
            "gcs_worker_manager.cc:35: Reporting worker failure, exit_type = INTENDED_EXIT, address = 127.0.0.1",
            "The actor is dead because all references to the actor were removed.",
            "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
            f"{RESTARTED} (1 of 3 restarts within an hour)\nengine 0 (pid 9 on n1) runs weight version 50 and goes on",
        ),
    ),
    "ray_pg_infeasible": Case(
        has=(
            "(autoscaler +32s) Error: No available node types can fulfill resource request {'CPU': 1.0, 'GPU': 8.0}.",
            " {'GPU': 1.0, 'CPU': 1.0} * 8 (STRICT_PACK): 1+ pending placement groups",
            "ValueError: Total available GPUs 8 is less than total desired GPUs 16",
            "7 Ray actors have waited for a place for 240 s: SimpleStorageUnit x7",
            "INFO [ray_utils.py:464] Waiting for creating a placement group of specs for 150 seconds. specs=[{'GPU': "
            "1.0}].",
            "the learner bundles found no place within 60 s: wanted 2 (1 GPU) each on a node of its own; free now: "
            "n1: 0 GPU",
        ),
        looks_like=(
            "(scheduler +2h13m57s) Error: No available node types can fulfill resource request {'node:10.0.0.1': "
            "0.0562}.",
            "WARNING -- The autoscaler could not find a node type to satisfy the request: [{'bundle_group_f603': "
            "0.001}].",
            "Demands:\n (no resource demands)",
            "INFO [ray_utils.py:464] Waiting for creating a placement group of specs for 10 seconds. specs=[{'GPU': "
            "1.0}].",
        ),
    ),
    "ray_head_unreachable": Case(
        has=(
            "[2025-07-23 10:05:49,679 W 51 51] gcs_rpc_client.h:151: Failed to connect to GCS at address :6379 "
            "within 5 "
            "seconds.",
            "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to.",
            "+ ray start --address=n1:6379\nsrun: job 17 queued and waiting for resources",
        ),
        looks_like=(
            "WARNING utils.py:12 -- Unable to connect to GCS at 10.0.0.5:6379. Check that GCS started.\n"
            "INFO worker.py:1540 -- Connecting to existing Ray cluster at address: 10.0.0.5:6379...\n"
            "INFO worker.py:1724 -- Connected to Ray cluster.",
            "srun: job 17 queued and waiting for resources\nsrun: job 17 has been allocated resources",
        ),
    ),
    "ray_port_in_use": Case(
        has=(
            "RuntimeError: Session name session_1 does not match persisted value session_2. Perhaps another Ray is "
            "there.",
            "ConnectionError: Ray is trying to start at 10.0.0.1:6379, but is already running at 10.0.0.1:6379.",
            "(gcs_server) Failed to start the grpc server. The specified port is 6379. Address already in use",
        ),
        looks_like=("OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)", "Ray dashboard on port 8265"),
    ),
    "ray_version_mismatch": Case(
        has=(
            "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.12.0\n    Python: 3.11.11",
            "RuntimeError: Python minor versions differ between client and server: client is 3.9.5, server is 3.8.10",
        ),
        looks_like=("The cluster was started with: Ray 2.60.0, Python 3.11.7",),
    ),
    "ray_runtime_env": Case(
        has=(
            "gcs_actor_scheduler.cc:320: The lease of actor 714e(M.__init__) has been canceled, cancel type: "
            "SCHEDULING_CANCELLED_RUNTIME_ENV_SETUP_FAILED",
            "ValueError: Local directory /tmp/ray/s/pip/49 for URI pip://49 does not exist on the cluster. Something "
            "may have gone wrong while installing the runtime_env `pip` packages.",
            "RuntimeError: working_dir package x.zip size 1.2GiB exceeds the maximum size of 512.00MiB.",
            "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\nFailed to upload working_dir "
            "/w/train to the Ray cluster: Package size (900.10MiB) exceeds the maximum size of 512.00MiB.",
            '  File "/opt/ray/dashboard/modules/job/job_head.py", line 3, in upload_package\n'
            "    data = await req.read()\naiohttp.web_exceptions.HTTPRequestEntityTooLarge: Request Entity Too Large",
            "[2026-03-01 10:00:00,1 E 12 12] worker_pool.cc:3: Failed to create runtime env for job 0100, error: boom",
        ),
        looks_like=(
            "aiohttp.web_exceptions.HTTPRequestEntityTooLarge: Request Entity Too Large",
            "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\n"
            "ModuleNotFoundError: No module named 'verl'",
            "    except RuntimeEnvSetupError as error:",
            "- process_failed_runtime_env_setup_failed: 0",
        ),
    ),
    "ray_socket_path": Case(
        has=(
            "OSError: AF_UNIX path length cannot exceed 107 bytes: "
            "'/scratch/project/users/someone/tmp/ray/session/sockets'",
            "OSError: AF_UNIX path too long",
            "terminate called after throwing an instance of 'boost::wrapexcept<boost::system::system_error>'\n"
            "  what():  bind: File name too long",
            "terminating with uncaught exception of type boost::wrapexcept<boost::system::system_error>: File name too "
            "long",
        ),
        looks_like=(
            "listening on AF_UNIX path /tmp/r1/sock",
            "OSError: [Errno 36] File name too long: 'outputs/a-run-with-each-of-its-settings-in-its-name.yaml'",
        ),
    ),
    "ray_disk_full": Case(
        has=(
            "(raylet, ip=10.0.0.9) file_system_monitor.cc:105: /tmp/ray/session_1 is over 95% full, available space: "
            "11970445312; capacity: 422687690752. Object creation will fail if spilling is required.",
        ),
        looks_like=("/tmp/ray is 12% full", "GPU KV cache usage: over 95% of blocks"),
    ),
}
