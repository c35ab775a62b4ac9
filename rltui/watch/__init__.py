"""Sources turned into immutable snapshots: runs, stages, hosts and GPUs, Ray actors, queues, metrics, logs."""
