"""Queen MQ's HTTP format, on the same port."""
