"""The packages `queen-mq` in the versions that we are compatible with, side by side in one process.

They have one name, so each is imported under a name of its own, from the folder where `make setup` put it.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

VERSIONS: Final = ("0.15.0", "2.6.0")
_FOLDER: Final = Path(sys.prefix) / "queen"


@cache
def package(version: str) -> ModuleType:
    """The package `queen` of a version."""
    folder = _FOLDER / version
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # what it needs itself, such as httpx, lies beside it
    name = f"queen_{version.replace('.', '_')}"
    path = folder / "queen" / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    assert spec is not None and spec.loader is not None, f"{path} is missing: run `make setup`"  # noqa: PT018 - one fact
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
