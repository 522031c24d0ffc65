"""What is counted, the snapshot of it, and what is shown of both."""
