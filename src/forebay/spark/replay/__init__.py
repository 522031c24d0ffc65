"""Bulk replay: the spool folders of many dead servers into a log, on Spark."""
