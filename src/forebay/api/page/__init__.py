"""The page that the server shows: files as they are served."""
