"""Tests without I/O; the folders mirror `src/forebay`."""
