"""A standalone Spark cluster on loopback: a master and workers, from the installed PySpark."""

import importlib.util
import os
import signal
import socket
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.servers.process import ServerProcess, ServerUnavailableError, free_port, log_tail

__all__ = ["QUICK_START", "SparkCluster"]

QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for seconds."""
_START_SECONDS: Final = 120.0
_ROOT: Final = Path(__file__).parents[2]


class SparkCluster:
    """A master and two workers with a core each; executors import what is tested here."""

    def __init__(self, workers: int = 2, memory: str = "1g") -> None:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise ServerUnavailableError(
                "PySpark is not installed: pip install -r requirements-spark.lock.txt"
            )
        self._home = Path(found.origin).parent
        self._folder = tempfile.TemporaryDirectory(prefix="forebay-spark-")
        self._port = free_port()
        self._count = workers
        self._memory = memory
        self._processes: list[ServerProcess] = []

    @property
    def url(self) -> str:
        """What a session names as its master."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers; their executors are in the same sessions."""
        return [process.pid for process in self._processes[1:]]

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.end(signal.SIGKILL)
        self._folder.cleanup()

    def _start(self) -> None:
        at = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._spawn("master", "org.apache.spark.deploy.master.Master", *at, "--port", str(self._port))
        self._processes[0].wait_ready(self._listens, _START_SECONDS, self._log("master"))
        for number in range(self._count):
            name = f"worker{number}"
            given = [
                *at,
                "--cores",
                "1",
                "--memory",
                self._memory,
                "--work-dir",
                str(self._path(f"{name}-work")),
            ]
            self._spawn(name, "org.apache.spark.deploy.worker.Worker", *given, self.url)
        for number, process in enumerate(self._processes[1:]):
            log = self._log(f"worker{number}")
            process.wait_ready(lambda log=log: _says(log, "registered with master"), _START_SECONDS, log)  # type: ignore[misc]  # mypy guesses no type of a default

    def _spawn(self, name: str, kind: str, *given: str) -> None:
        command: list[str | Path] = [self._home / "bin" / "spark-class", kind, *given]
        process = ServerProcess.spawn(
            command, log=self._log(name), directory=self._path(""), environment=self._environment()
        )
        self._processes.append(process)

    def _environment(self) -> dict[str, str]:
        from forebay.spark.java import java_home  # noqa: PLC0415 - only where there is Spark

        own = {
            "SPARK_HOME": str(self._home),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]),
        }
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | own

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _log(self, name: str) -> Path:
        return self._path(f"{name}.log")


def _says(log: Path, text: str) -> bool:
    return text in log_tail(log).lower()
