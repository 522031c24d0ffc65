"""Pauses between attempts grow, are spread, and keep to what the server asked for."""

from forebay.client.pausing import FIRST_SECONDS, LONGEST_SECONDS, pause_seconds


def test_pauses_grow_up_to_a_limit() -> None:
    longest = [pause_seconds(attempt, 1.0) for attempt in range(12)]
    assert longest[0] == FIRST_SECONDS
    assert longest[:4] == sorted(set(longest[:4]))
    assert longest[-1] == LONGEST_SECONDS == pause_seconds(10_000, 1.0)


def test_pauses_are_spread_over_their_second_half() -> None:
    assert pause_seconds(3, 0.0) == pause_seconds(3, 1.0) / 2


def test_the_server_is_never_asked_again_before_it_said() -> None:
    assert pause_seconds(0, 0.0, 7) == 7
    assert pause_seconds(0, 1.0, 7) > 7
    assert pause_seconds(0, 0.0, -1) == 0
