"""Crashes on purpose: what was acknowledged is there afterwards, and nothing twice."""
