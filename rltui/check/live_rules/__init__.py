"""Rules about a cluster by family: limits and partitions (S), nodes (H), disk and model cache (D)."""
