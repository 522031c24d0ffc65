"""The real clients of Queen MQ against the real server."""
