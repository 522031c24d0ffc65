"""Fields of a task, and values that fit them, for Hypothesis."""

from typing import Any

from hypothesis import strategies as st

from forebay.contract import Field
from forebay.contract.values import FieldType

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    "int": INTS,
    "int64": INTS,
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bool": st.booleans(),
    "[]byte": st.binary(max_size=20),
    "[]int": st.lists(INTS, max_size=5).map(tuple),
    "[]int64": st.lists(INTS, max_size=5).map(tuple),
}

Row = tuple[tuple[Field, ...], tuple[Any, ...]]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Fields of any types, and a value for each."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=8))
    fields = tuple(Field(f"f{index}", kind) for index, kind in enumerate(types))
    return fields, tuple(draw(VALUES[kind]) for kind in types)
