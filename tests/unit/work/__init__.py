"""The workers, without I/O."""
