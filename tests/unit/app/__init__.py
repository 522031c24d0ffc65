"""The command line and the wiring."""
