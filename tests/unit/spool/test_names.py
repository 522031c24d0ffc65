"""Names of spool files are told from others, whatever is in the folder."""

import pytest

from forebay.spool.names import parse_name

UUID = "01a1e3fc-9491-7f64-a6aa-a52d7a05b0cb"


@pytest.mark.parametrize("id", [UUID, UUID.replace("-", ""), "019a0c11-7fe8", "019a0c11"])
@pytest.mark.parametrize(("suffix", "state"), [(".buf", "finished"), (".buf.tmp", "writing")])
def test_a_name_is_taken_apart_and_put_together_again(id: str, suffix: str, state: str) -> None:
    found = parse_name(f"failover_{id}{suffix}")
    assert found is not None
    assert (found.prefix, found.id, found.state) == ("failover", id, state)
    assert str(found) == f"failover_{id}{suffix}"


@pytest.mark.parametrize(
    "name",
    [f"{UUID}.buf", f"other_{UUID}.buf", "failover_.buf", "failover_019a0c11--7fe8.buf", "lock", "reserve"],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.timeout(5)
@pytest.mark.parametrize("suffix", [".bad", ".reasons", ".copy", ".buf.old"])
def test_a_name_that_is_nearly_one_is_told_at_once(suffix: str) -> None:
    """Each listing looks at all files that were set aside: none may take longer the longer its name is."""
    assert parse_name(f"failover_{'01a1e3fc' * 25}{suffix}") is None
