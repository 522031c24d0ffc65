"""What an answer says of conflation."""

from __future__ import annotations

import pytest

from forebay.api.queen.conflating import echo


@pytest.mark.parametrize(
    ("wanted", "effective", "said"),
    [
        (False, [], {}),
        (True, [], {"conflation": True}),
        (True, [True], {"conflation": True}),
        (False, [False], {}),
        (True, [False], {"conflationConflict": True}),
        (False, [True], {"conflation": True, "conflationConflict": True}),
        (True, [True, False], {"conflationConflict": True}),
    ],
)
def test_the_group_decides_and_who_wanted_it_otherwise_is_told(
    wanted: bool,  # noqa: FBT001 - a parameter of the test
    effective: list[bool],
    said: dict[str, bool],
) -> None:
    assert echo(wanted, effective) == said
