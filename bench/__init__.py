"""Benchmarks: `python -m bench` runs named workloads on fuser and its peers, side by side in one process."""
