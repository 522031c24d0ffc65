"""Queen's format over plain HTTP, on a real server."""
