"""Tests of the log that need no server and no file."""
