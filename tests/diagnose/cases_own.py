"""What only rltui sees: its own words for stages, steps, nodes and numbers."""

from __future__ import annotations

from case import Case

CASES = {
    "preflight_failed": Case(
        has=("preflight: node n3 is bad: its clock runs backwards",),
        looks_like=("preflight: node n3 is fine", "node n3 is bad: somebody wrote this elsewhere"),
    ),
    "cancelled_by_other": Case(
        has=("the job was cancelled by user 0, not by you",),
        looks_like=("the job was cancelled by you", "JobState=CANCELLED ExitCode=0:15"),
    ),
    "stage_stuck": Case(
        has=("stage ray-up lasted 1300 s, 600 are usual: 7/8 nodes, missing n7",),
        looks_like=("stage: ray-up 7/8 nodes, missing n7", "this stage lasted 1300 s, which is as usual"),
    ),
    "ray_start_slow": Case(
        has=("Ray did not come up on vm within 120 s (deadlines.ray_s), at a load of 38 on 2 CPUs: it said nothing",),
        looks_like=("Ray did not come up on vm: it said nothing; see ray.log", "Ray came up on vm within 120 s"),
    ),
    "run_stalled": Case(
        has=(
            "no new step for 5400 s, a step takes 63 s",
            "2026-03-01 10:12:00,331 INFO trainer.py:88 -- step 17\n"
            "slurmstepd: error: *** JOB 8812 ON n12 CANCELLED AT 2026-03-01T12:19:41 ***",
            "Timeout (0:30:00)!",
        ),
        looks_like=(
            "no new step for now, evaluating",
            "all GPUs of n1, n2 idle for 60 s",
            "2026-03-01 10:12:00,331 INFO trainer.py:88 -- step 17\n"
            "slurmstepd: error: *** JOB 8812 ON n12 CANCELLED AT 2026-03-01T10:19:41 ***",
            # a container whose clock is two hours behind
            "2026-03-01 10:12:00,331 INFO trainer.py:88 -- step 17\n"
            "slurmstepd: error: *** JOB 8812 ON n12 CANCELLED AT 2026-03-01T12:12:20 ***",
        ),
    ),
    "killed_from_outside": Case(
        has=("killed by SIGKILL while host memory was 20 % full",),
        looks_like=("killed by SIGKILL while host memory was low", "worker was killed while loading"),
    ),
    "role_died": Case(
        has=(
            "trainers.roles.calls.RoleDiedError: learner 1 (pid 4022 on n2) died while training: The actor is dead",
            "reason: learner 0 (pid 40 on n1) died while new weights were on their way: The actor is dead",
            "reason: learner 1 (pid 41 on n2) died while training; learner 0 then failed: RuntimeError: "
            "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4711",
        ),
        looks_like=("engine 0 (pid 44 on n1) died while generating; it is started again", "my cat died while training"),
    ),
    "role_hung": Case(
        has=(
            "trainers.roles.calls.RoleHungError: no answer from learner 0 (pid 40 on n1), learner 1 (pid 41 on n2) "
            "within 15 s while training: see deadlines in the layout",
            "reason: no answer from engine 0 (pid 44 on n1) within 3600 s while generating: see deadlines in",
        ),
        looks_like=("no answer from the hub within 10 s, trying again", "RoleHungError is raised where a role hangs"),
    ),
    "policies_apart": Case(
        has=(
            "trainers.metrics.TrainingError: step 42: trainer and engine disagree by 2.0e-02 in the log-probability of "
            "a sampled token, and in fp32 0.0001 is the bound: the engine does not run the learner's weights; see",
            "TrainingError: a sample of weight version 41 came to be trained on at version 44, and async_steps=2 is "
            "the bound: the engine does not run the learner's weights; see events of weight transfers",
        ),
        looks_like=(
            "warning: trainer and engine disagree by 2.0e-02 in the log-probability of a sampled token",
            "engine 1 does not run the learner's weights yet",
        ),
    ),
    "process_awaited": Case(
        has=(
            "stuck: learner 1 (pid 41 on n2) is stopped (state T: SIGSTOP, or a debugger); learner 0 (pid 40 on n1) "
            "waits for it in all_reduce 197 of group 1 (420608 bytes), for 31 s",
            "stuck: rank 3 of 4 is on no node that answered; learner 0 (pid 40 on n1) waits for it in all_reduce 2 of "
            "all learners, for 700 s",
        ),
        looks_like=("the loss is stuck: learner 1 makes no progress", "stuck: see above"),
    ),
}
