"""Tests of the relay that need no socket."""
