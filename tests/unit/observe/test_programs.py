"""What runs beside a server is written down by the process that started it."""

from __future__ import annotations

import os
from pathlib import Path

from forebay.observe.programs import Program, programs_file, read_programs, write_programs

PROGRAMS = [
    Program(name="snapshot", state="missing", reason="there is no Java"),
    Program(name="pipeline", state="waiting", reason="status 1", again_at=5),
]


def test_what_is_written_is_read_by_servers_of_that_process(tmp_path: Path) -> None:
    file = programs_file(str(tmp_path))
    assert read_programs(file, os.getpid()) == ()
    write_programs(file, PROGRAMS)
    assert read_programs(file, os.getpid()) == PROGRAMS
    assert read_programs(file, os.getpid() + 1) == (), "one that was killed left it behind"
    file.write_bytes(b"{")
    assert read_programs(file, os.getpid()) == ()
