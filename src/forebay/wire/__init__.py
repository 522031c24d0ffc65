"""What crosses the network between a server and its clients: forms, leases as text, problems.

Two encodings of the same things: JSON for everybody, in which message ids are text (they don't fit in the
numbers of JavaScript and of many JSON tools) and payloads are JSON or base64; MessagePack for programs, in
which values are as they are in Python.
"""
