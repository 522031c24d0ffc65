"""Contracts: reading, codecs, differences, generated code."""
