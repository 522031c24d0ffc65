"""The README's first steps, in its order, on one server."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.integration.http_wire import ask
from tests.servers import ForebayServer, environment

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_the_first_program_runs_on_a_server_after_the_requests_before_it(
    forebay_server: ForebayServer, tmp_path: Path
) -> None:
    requests = re.findall(
        r"^curl -d ('.*?')\s.*?http://127.0.0.1:6632(\S+)", README, re.MULTILINE | re.DOTALL
    )
    assert len(requests) == 2
    for body, path in requests:
        answer = ask(forebay_server.port, "POST", path, "".join(shlex.split(body)).encode())
        assert answer.status in (200, 201), answer.body
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("sqlite:///first.db", forebay_server.url)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert "back after 1 attempt" in run.stdout
