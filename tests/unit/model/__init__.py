"""Tests of the model: values, errors, time, limits and the block codec."""
