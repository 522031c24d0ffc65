"""Tests of the warm tier without I/O."""
