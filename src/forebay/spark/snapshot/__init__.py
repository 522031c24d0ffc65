"""The rich series of queues on Spark: message log and outcome log, folded block by block."""
