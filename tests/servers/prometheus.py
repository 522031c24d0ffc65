"""A throw-away Prometheus on loopback, from its Debian package, and its `promtool`."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Final
from urllib.parse import urlencode

from tests.awake import Awake
from tests.servers.folder import FolderServer
from tests.servers.process import ServerProcess, ServerUnavailableError

__all__ = ["PrometheusServer", "Sample", "promtool"]

_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
_DEADLINE_SECONDS: Final = 90
_ASK_SECONDS: Final = 0.05

Sample = tuple[dict[str, str], float]
"""Labels and a value."""


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerUnavailableError(f"{name} isn't installed")
    return found


def promtool(*arguments: str | Path, text: str = "", directory: Path | None = None) -> tuple[int, list[str]]:
    """Run promtool; its status, and the lines that it says."""
    done = subprocess.run(
        [_program("promtool"), *map(str, arguments)],
        input=text, capture_output=True, text=True, check=False, cwd=directory,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).splitlines()


class PrometheusServer(FolderServer):
    """One Prometheus that scrapes ports of this machine ten times a second; `jobs` are ports by name.

    `more` is the rest of its configuration. It takes remote writes.
    """

    def __init__(
        self,
        jobs: Mapping[str, Sequence[int]],
        rules: Sequence[Path] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self._command = _program("prometheus")
        super().__init__("prometheus")
        scrapes = [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in jobs.items()
        ]
        config = {
            "global": {"scrape_interval": "100ms", "evaluation_interval": "100ms"},
            "rule_files": [str(rule) for rule in rules],
            "scrape_configs": scrapes,
            **(more or {}),
        }
        (self._directory / "prometheus.yml").write_text(json.dumps(config))

    def start(self, timeout_seconds: float = 60) -> None:
        """Start it, and return when it answers."""
        if self.running:
            return
        self._process = ServerProcess.spawn(
            [
                self._command, "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-remote-write-receiver",
            ],
            log=self.log, directory=self._directory, environment=_ENVIRONMENT,
        )  # fmt: skip
        self._process.wait_ready(self._is_ready, timeout_seconds, self.log)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its API; an error of it is an AssertionError."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{query}: {error.read().decode()}") from None

    def query(self, promql: str) -> list[Sample]:
        """The samples of an instant query; those of a scalar have no labels."""
        data = self.get("query", query=promql)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def until(self, promql: str, wanted: Callable[[list[Sample]], bool], awake: Awake) -> list[Sample]:
        """Wait until the samples of a query are as wanted; them."""
        deadline = awake() + _DEADLINE_SECONDS
        while not wanted(found := self.query(promql)):
            assert awake() < deadline, f"{promql} is {found}"
            Event().wait(_ASK_SECONDS)  # it has nothing to wait for that it could announce
        return found
