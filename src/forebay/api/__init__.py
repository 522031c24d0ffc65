"""The HTTP edge: routes, bodies, problems, limits; a server that can't be held up."""
