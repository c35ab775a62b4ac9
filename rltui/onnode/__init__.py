"""What runs on the cluster's side: relay, sampler, supervisor. Standard library (and pynvml) only, Python >= 3.8."""
