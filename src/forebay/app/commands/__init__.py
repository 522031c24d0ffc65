"""What the commands do, by noun; `cli` declares them.

Data goes to standard output, everything else to standard error; `--json` makes the data JSON. Commands
work on the Store seam, so that a server and a file are the same to them.
"""
