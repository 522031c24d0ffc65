"""SQL out of files: the statements and the migrations that a log carries beside its code.

`statements.sql` holds all statements of a package, each introduced by a line `-- name: some_name`;
`schema/NNNN_name.sql` holds the migrations, numbered from 1 without gaps. Both ship with the
package, so whatever is wrong with them is an assertion.
"""

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

import msgspec

_NAME: Final = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_MIGRATION: Final = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step of a schema: from version `number - 1` to `number`."""

    number: int
    name: str
    sql: str


def load_statements(package: str) -> Mapping[str, str]:
    """Return the statements of a package by name, from its `statements.sql`."""
    text = (resources.files(package) / "statements.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    statements: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        assert name not in statements, f"{package}: two statements are named {name!r}"
        statements[name] = body.strip()
        assert statements[name], f"{package}: statement {name!r} is empty"
    return MappingProxyType(statements)


def load_migrations(package: str) -> list[Migration]:
    """Return the migrations of a package in order, from its `schema` folder."""
    migrations = []
    for file in (resources.files(package) / "schema").iterdir():
        match = _MIGRATION.fullmatch(file.name)
        if match is None:
            assert not file.name.endswith(".sql"), f"{package}: {file.name} has no number"
            continue
        migrations.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    migrations.sort(key=lambda migration: migration.number)
    numbers = [migration.number for migration in migrations]
    assert numbers == list(range(1, len(numbers) + 1)), f"{package}: a gap in {numbers}"
    return migrations
