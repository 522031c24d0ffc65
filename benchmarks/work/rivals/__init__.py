"""Other queues for Python, one program each, all with the same no-op task. See `race` for their rule."""
