"""The judgement of checks."""
