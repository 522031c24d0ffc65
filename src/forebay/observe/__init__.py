"""Numbers of queues: how they are counted, published as a snapshot, and shown."""
