"""Programs that the benchmark of the relay starts: the destination, and the rival."""
