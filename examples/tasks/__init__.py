"""Emails and notifications from one contract: `put` puts tasks, `app` works them. See the README beside."""

from typing import Final

STORE: Final = "sqlite:///tasks.db"
"""A file in the current folder; a server would be http://127.0.0.1:6632."""
