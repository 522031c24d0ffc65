"""Parcels as slips, and numbers as ranges."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import MESSAGE_ID_MAX, Flow
from forebay.warm.valkey.slips import flow_of_text, flow_text, from_ranges, to_parcel, to_ranges, to_slip
from forebay.warm.values import Parcel

numbers = st.integers(0, MESSAGE_ID_MAX)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
flows = st.builds(Flow, texts, texts, texts)
parcels = st.builds(
    Parcel,
    claim=numbers,
    first=numbers,
    count=st.integers(1, 2**31),
    offsets=st.sets(st.integers(0, 99_999), min_size=1, max_size=9).map(sorted),
    size=st.integers(0, 2**31),
    flow=flows,
    partition=st.none() | texts,
    attempts=st.integers(0, 99),
    created_at=numbers,
    start_time=numbers,
    prev_start_time=st.none() | numbers,
    block=st.none(),
)


@given(parcels)
def test_a_parcel_comes_back_from_its_slip(parcel: Parcel) -> None:
    found = to_parcel(to_slip(parcel))
    assert msgspec.structs.replace(found, offsets=list(found.offsets)) == parcel


@given(flows, flows)
def test_flows_have_texts_of_their_own(flow: Flow, other: Flow) -> None:
    assert flow_of_text(flow_text(flow)) == flow
    assert (flow_text(flow) == flow_text(other)) == (flow == other)


@given(st.lists(st.integers(0, 30), max_size=20))
def test_numbers_come_back_from_ranges(some: list[int]) -> None:
    ranges = to_ranges(some)
    assert list(from_ranges(ranges)) == sorted(set(some))
    assert ranges == sorted(set(ranges)), "ranges that touch are one"


def test_a_range_stays_a_range() -> None:
    assert to_ranges(range(3, 9)) == [3, 9]
    assert to_ranges(range(3, 3)) == []
    assert to_ranges([5, 4, 3]) == to_ranges([3, 4, 5]) == [3, 6]
    assert to_ranges([3, 3, 5]) == [3, 4, 5, 6]
    assert from_ranges([3, 9]) == range(3, 9)
