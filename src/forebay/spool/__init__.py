"""The spool: files that take blocks and settlements while the log can't be reached."""
