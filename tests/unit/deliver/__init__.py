"""Tests of deliveries: pure functions, queues and workers."""
