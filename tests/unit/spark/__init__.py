"""Unit tests of the Spark part: what needs no session."""
