"""Which processes are certainly gone: those of this machine that have ended, and no others."""

from __future__ import annotations

import os
import subprocess

import pytest

from forebay.store.process import is_gone, process_name


def renamed(place: int, value: str) -> str:
    """The name of this process with one part changed."""
    parts = process_name().split("|")
    parts[place] = value
    return "|".join(parts)


def ended() -> str:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return str(process.pid)


def test_this_process_is_there_and_no_two_names_are_alike() -> None:
    assert not is_gone(process_name())
    assert process_name() != process_name()
    assert process_name().split("|")[4] == str(os.getpid())


def test_the_name_of_an_owner_begins_with_that_of_its_process() -> None:
    assert not is_gone(f"{process_name()}|3|m1")
    assert is_gone(f"{renamed(4, ended())}|3|m1")


def test_a_process_that_has_ended_is_gone() -> None:
    assert is_gone(renamed(4, ended()))


def test_a_process_that_was_never_waited_for_is_gone_too() -> None:
    process = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    began = renamed(4, str(process.pid))
    assert process.stdout is not None
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(began)
    process.wait()
    process.stdout.close()


def test_another_process_with_the_same_number_is_another() -> None:
    assert is_gone(renamed(5, "1"))


@pytest.mark.parametrize("place", [1, 2, 3])
def test_nothing_is_known_of_other_machines_boots_and_namespaces(place: int) -> None:
    parts = renamed(place, "elsewhere").split("|")
    parts[4] = ended()
    assert not is_gone("|".join(parts))


@pytest.mark.parametrize(
    "name", ["", "worker", "valkey/forebay|3|e1", "process|a|b|c|x|5|e", "a|b|c|d|e|f|g"]
)
def test_names_of_others_say_nothing(name: str) -> None:
    assert not is_gone(name)
    assert not is_gone(renamed(4, "none"))
