"""The parts of the benchmark of the logs; each has one coroutine, `run`, that returns its figures."""
