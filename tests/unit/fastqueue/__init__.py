"""Tests of `forebay.fastqueue`."""
