"""The benchmarks run, and judge their figures as they should."""
