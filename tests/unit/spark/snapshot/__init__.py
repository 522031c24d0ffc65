"""The fold of rich series, without Spark."""
