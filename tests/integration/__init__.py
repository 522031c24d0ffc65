"""Tests against real servers on loopback."""
