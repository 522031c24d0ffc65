"""Flows: read from headers, counted by the table of headers."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model import Block, Flow, Message, flow_counts, flow_of, flow_reading

labels = st.sampled_from(["", "a", "b"])
headers = st.none() | st.dictionaries(st.sampled_from(["flow", "flow_type", "action", "trace"]), labels)


@pytest.mark.parametrize(
    ("given_headers", "flow"),
    [
        (None, Flow()),
        ({}, Flow()),
        ({"trace": "1"}, Flow()),
        ({"flow": "f"}, Flow("f")),
        ({"flow": "f", "flow_type": "t", "action": "a"}, Flow("f", "t", "a")),
    ],
)
def test_a_flow_is_what_the_headers_say(given_headers: dict[str, str] | None, flow: Flow) -> None:
    assert flow_of(given_headers) == flow


@pytest.mark.parametrize(
    ("given_labels", "flow"),
    [
        ({}, None),
        ({"flows": {"clean": {"flow": "f", "flow_type": "t", "action": "a"}}}, Flow("f", "t", "a")),
        ({"flows": {"other": {"flow": "f"}}}, None),
        ({"flows": ["clean"]}, None),
        ({"flows": {"clean": "f"}}, None),
        ({"flows": {"clean": {"flow": 1}}}, None),
    ],
)
def test_the_flow_that_a_group_is_stands_in_the_labels_of_its_queue(
    given_labels: dict[str, Any], flow: Flow | None
) -> None:
    assert flow_reading(given_labels, "clean") == flow


def test_flows_have_an_order() -> None:
    flows = [Flow("b"), Flow("a", "t"), Flow(), Flow("a", "", "z")]
    assert sorted(flows) == [Flow(), Flow("a", "", "z"), Flow("a", "t"), Flow("b")]


@given(st.lists(headers, max_size=20))
def test_counting_by_table_is_counting_one_by_one(columns: list[dict[str, str] | None]) -> None:
    block = Block.of([Message(b"x", headers=each) for each in columns])
    assert flow_counts(block) == Counter(flow_of(each) for each in columns)
    for start in range(len(columns)):
        assert flow_counts(block.slice(start, len(block))) == Counter(map(flow_of, columns[start:]))
