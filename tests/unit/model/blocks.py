"""Hypothesis strategies for messages and blocks that pass `check_block`."""

from hypothesis import strategies as st

from forebay.model import TIME_MAX, Block, Message

_text = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=12)
_times = st.integers(0, TIME_MAX)

ids = st.binary(min_size=16, max_size=16).filter(any)

messages = st.builds(
    Message,
    payload=st.binary(max_size=40),
    partition=st.sampled_from(["", "north", "süd", "Default", "~x", "~%20x"]) | _text,
    transaction_id=st.none() | _text.filter(bool),
    headers=st.sampled_from([None, {"flow": "orders"}, {"flow": "orders", "action": "load"}])
    | st.dictionaries(_text, st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
    start_time=st.none() | _times,
)

message_lists = st.lists(messages, min_size=1, max_size=20)

blocks = st.builds(
    lambda some, block_id, at: Block.of(some, id=block_id, created_at=at),
    message_lists,
    ids,
    _times,
)
