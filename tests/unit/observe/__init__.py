"""What is counted and shown."""
