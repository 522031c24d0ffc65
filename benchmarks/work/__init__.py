"""Benchmark of workers, ours and others': `python -m benchmarks.work`, or `make bench-work`."""
