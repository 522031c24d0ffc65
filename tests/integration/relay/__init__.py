"""Tests of the relay over real sockets."""
