"""Checks of what a Forebay stands on: machine, log, warm tier, server. They change nothing."""
