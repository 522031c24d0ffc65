"""The columns of messages as Spark sees them: ours, and the fields of a contract.

A field that is called as one of our columns comes as `field_<name>`. Queues of one contract share the columns
of fields that have the same name, which must then have the same type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from forebay.contract import Contract, FieldType, QueueContract, read_contract
from forebay.contract.naming import python_name
from forebay.model import Misconfigured
from forebay.spark.options import Options

ERROR: Final = "_error"
"""Why the fields of a message are null."""

MESSAGE: Final = StructType(
    [
        StructField("queue", StringType()),
        StructField("partition", StringType()),
        StructField("seq", LongType()),
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("created_at", TimestampType()),
    ]
)
READ: Final = StructType(
    [StructField(field.name, field.dataType, nullable=field.name == "key") for field in MESSAGE.fields]
)
"""The same as they are read: only a key may be missing. Where Spark knows that, it looks at no row for it."""
HEADERS: Final = StructField("headers", MapType(StringType(), StringType()))

_TYPES: Final[dict[FieldType, DataType]] = {
    "int": LongType(),
    "int64": LongType(),
    "string": StringType(),
    "bool": BooleanType(),
    "[]byte": BinaryType(),
    "[]int": ArrayType(LongType()),
    "[]int64": ArrayType(LongType()),
}
_TAKEN: Final = frozenset((*MESSAGE.names, HEADERS.name, ERROR))


def message_schema(options: Options) -> StructType:
    """The columns that a reader of messages has by these options."""
    fields = [*READ.fields, *([HEADERS] if options.includeHeaders else [])]
    if options.contract is not None:
        fields += _fields(_queues(contract_of(options), options), options.contract)
        fields.append(StructField(ERROR, StringType()))
    return choose(StructType(fields), options.columns)


def choose(schema: StructType, names: Sequence[str]) -> StructType:
    """These columns of a schema, in this order; all of them, when none is named."""
    known = {field.name: field for field in schema.fields}
    if missing := [name for name in names if name not in known]:
        text = f"option `columns` names {missing[0]!r}, which is no column here"
        hint = f"there are {', '.join(known)}"
        if missing[0] == HEADERS.name:
            hint += "; `includeHeaders` = true brings headers"
        raise Misconfigured(text, hint=hint, key="columns")
    return StructType([known[name] for name in names]) if names else schema


def check_schema(given: StructType, ours: StructType) -> None:
    """Misconfigured, unless a schema that somebody gave has columns of ours only, with their types."""
    known = {field.name: field.dataType for field in ours.fields}
    for field in given.fields:
        if known.get(field.name) != field.dataType:
            is_there = "another type here" if field.name in known else "no column here"
            text = f"the schema has {field.name} {field.dataType.simpleString()}, which is {is_there}"
            raise Misconfigured(text, hint=f"leave the schema out, or take from {ours.simpleString()}")


def contract_of(options: Options) -> Contract:
    """The contract that the options name."""
    assert options.contract is not None, "there is a contract"
    return read_contract(options.contract)


def column_name(field: str) -> str:
    """The column of a field."""
    name = python_name(field)
    return f"field_{name}" if name in _TAKEN else name


def _queues(contract: Contract, options: Options) -> list[QueueContract]:
    found = [queue for queue in contract.queues if options.matches(queue.name)]
    missing = set(options.names) - {queue.name for queue in found}
    if missing or not found:
        text = (
            f"the contract {options.contract} has no queue {min(missing, default=options.subscribePattern)!r}"
        )
        named = ", ".join(queue.name for queue in contract.queues)
        raise Misconfigured(text, hint=f"it has {named}", key="contract")
    return found


def _fields(queues: Sequence[QueueContract], path: str) -> list[StructField]:
    types: dict[str, tuple[DataType, str]] = {}
    for queue in queues:
        for field in queue.fields:
            name, kind = column_name(field.name), _TYPES[field.type]
            before, where = types.setdefault(name, (kind, queue.name))
            if before != kind:
                text = f"field {field.name!r} of {queue.name!r} and of {where!r} has two types in {path}"
                raise Misconfigured(text, hint="read these queues one by one", key="contract")
    return [StructField(name, kind) for name, (kind, _) in types.items()]


def fields_of(contract: Contract) -> Mapping[str, tuple[str, ...]]:
    """By queue, the columns of its fields, in their order."""
    return {queue.name: tuple(column_name(field.name) for field in queue.fields) for queue in contract.queues}
