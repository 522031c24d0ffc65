"""FastQueue: a queue of blocks in memory and in chunk files, for one process."""
