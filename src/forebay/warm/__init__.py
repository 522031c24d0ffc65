"""The warm tier: a bounded window of messages that are ready or leased; disposable, rebuilt from the log."""
