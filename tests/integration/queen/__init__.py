"""Routes in Queen's format, asked by plain HTTP."""
