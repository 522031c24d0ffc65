"""Functions of the user's, by their place `module:name`: found beside the file of flows, or installed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.model import Misconfigured


def look_in(folder: Path) -> str:
    """Let modules of a folder be found: by this process, and by those of Spark that it starts later.

    What is returned is PYTHONPATH: executors of a cluster, which others start, must be told.
    """
    wanted = [str(folder), str(Path.cwd())]
    for path in reversed(wanted):
        if path not in sys.path:
            sys.path.insert(0, path)
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    path = os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*wanted, *known]))
    return path


def function(place: str) -> Callable[..., Any]:
    """The function at a place; Misconfigured says what is missing."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(module, error) from error  # the module is there, and what it imports isn't
        hint = "put it beside the file of flows, or install it"
        raise Misconfigured(f"there is no module {module}", hint=hint) from None
    except Exception as error:
        raise _broken(module, error) from error
    if found is None:
        raise Misconfigured(f"module {module} has no {name}", hint=f"define {name} in it")
    if not callable(found):
        raise Misconfigured(f"{name} in {module} is no function", hint=f"let {name} be a function")
    return found  # type: ignore[no-any-return]  # whatever it takes and returns


def _broken(module: str, error: Exception) -> Misconfigured:
    text = f"module {module} can't be imported: {type(error).__name__}: {error}"
    return Misconfigured(text, hint="correct what it says")
