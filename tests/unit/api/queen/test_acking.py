"""What is forgotten of messages that were acknowledged."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from forebay.api.queen.acking import Verdicts, finished
from forebay.api.queen.commits import AckItem, Found
from forebay.api.queen.directory import Partition
from forebay.api.queen.hands import Hands, place_of
from forebay.store.values import Task
from forebay.warm.values import Lease


def test_a_message_that_is_out_again_stays_with_who_has_it_now() -> None:
    lease = Lease(1, "epoch", 1, 1, 1, 1, 0, 0, None, "p")
    before = Task(1, 1, b"", 0, 0, 0, None, lease, 100, "p", "t")
    again = msgspec.structs.replace(before, lease=msgspec.structs.replace(lease, number=2))
    place, hands = place_of(before, "g"), Hands()
    hands.give("first", "g", [before])
    found = Found(AckItem("t", "id", "retry"), Partition(1, "p"), None, place, before, comes_back=True)
    hands.give("second", "g", [again])
    tally = SimpleNamespace(settled=lambda _: None)
    desk = SimpleNamespace(hands=hands, tally=tally)
    context = SimpleNamespace(counters=SimpleNamespace(messages=Counter[str]()))
    finished(cast("Any", SimpleNamespace(desk=desk, context=context)), [found], Verdicts())
    assert hands.find(place, "second") is again
