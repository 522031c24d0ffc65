"""The client against real servers on real sockets."""
