"""Values on their way into bytes: each must be what its field takes.

Nothing is converted that changes a value: a list becomes a tuple, a bytearray becomes bytes, and that is all.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from forebay.contract.kinds import INT_MAX, INT_MIN, KINDS
from forebay.contract.values import Field
from forebay.model import Rejected

__all__ = ["checker"]

_INTS: Final = ("int", "int64")
_LISTS: Final = ("[]int", "[]int64")
_KEPT: Final = 1_000


@lru_cache(_KEPT)
def checker(fields: tuple[Field, ...]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What checks the values of a row, and gives them as they will be decoded."""
    types = [KINDS[field.type].types[0] for field in fields]
    numbers = tuple(index for index, field in enumerate(fields) if field.type in _INTS)
    lists = tuple(index for index, field in enumerate(fields) if field.type in _LISTS)

    def check(values: Sequence[Any]) -> tuple[Any, ...]:
        row = values if type(values) is tuple else tuple(values)
        if [*map(type, row)] != types:  # mostly they are right, and this is the quickest way to know
            row = _converted(row, fields)
        for index in numbers:
            if not INT_MIN <= row[index] <= INT_MAX:
                raise _out_of_range(fields[index], row[index])
        for index in lists:
            _check_numbers(row[index], fields[index])
        return row

    return check


def _converted(row: tuple[Any, ...], fields: tuple[Field, ...]) -> tuple[Any, ...]:
    if len(row) != len(fields):
        raise Rejected(
            f"{len(row)} values are given for {len(fields)} fields",
            hint=f"the fields are {', '.join(field.name for field in fields)}",
        )
    return tuple(_as_field(value, field) for value, field in zip(row, fields, strict=True))


def _as_field(value: Any, field: Field) -> Any:
    kind = KINDS[field.type]
    if isinstance(value, kind.types) and (type(value) is not bool or bool in kind.types):
        return value if type(value) is kind.types[0] else kind.types[0](value)
    raise Rejected(
        f"field '{field.name}' ({field.type}) is {type(value).__name__}", hint=f"give {kind.taken}"
    )


def _check_numbers(values: tuple[Any, ...], field: Field) -> None:
    if not values:
        return
    if others := set(map(type, values)) - {int}:
        names = ", ".join(sorted(kind.__name__ for kind in others))
        raise Rejected(f"field '{field.name}' ({field.type}) has {names} in it", hint="give whole numbers")
    for value in (min(values), max(values)):
        if not INT_MIN <= value <= INT_MAX:
            raise _out_of_range(field, value)


def _out_of_range(field: Field, value: int) -> Rejected:
    text = f"field '{field.name}' ({field.type}) has a number of {value.bit_length()} bits"
    return Rejected(text, hint=f"give numbers from {INT_MIN} to {INT_MAX}")
