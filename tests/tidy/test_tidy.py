"""The repository keeps its own rules: nothing of a machine in files, live links, honest names."""

import ast
import importlib
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import forebay

ROOT = Path(__file__).resolve().parents[2]

# Spelled in pieces, so that this file passes its own test.
REGISTRY_HOSTS = ("pypi" + ".org", "python" + "hosted.org", "conda" + ".anaconda", "npm" + "js.org")
# A path that starts at the root: "forebay/work/" and "{base}/work/" do not.
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:root|work|opt/pypi|opt/wheels)(?:/|\b)|file:" + "///")

LINES_MAX = 600
LONG_REASON = "long because"

# Files whose tests may sleep, each with its reason. A test waits for a signal, not for time.
SLEEPS_ALLOWED: dict[str, str] = {
    "tests/chaos/producers.py": "producers that pause between pushes, and before they push again",
    "tests/chaos/servers_race.py": "producers and workers that take their time; faults find them at work",
    "tests/chaos/test_outage_workers.py": "workers that take their time, so that outages find them at work",
    "tests/chaos/store_server.py": "workers that take their time, so that kills find them at work",
    "tests/unit/failover/outage.py": "a log that takes its time, so that pushes come while it writes",
    "tests/unit/failover/test_simulation.py": "a world that changes while pushes are under way",
}

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)|!\[[^\]]*\]\(([^)\s]+)[^)]*\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


@cache
def files() -> tuple[Path, ...]:
    """Return every file that is in git or would be added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (ROOT / name for name in sorted(set(listed.stdout.split("\0")) - {""}))
    return tuple(path for path in paths if path.is_file())


def text_files() -> Iterator[tuple[str, str]]:
    """Give the name and the content of each file that is text."""
    for path in files():
        try:
            yield str(path.relative_to(ROOT)), path.read_text()
        except UnicodeDecodeError:
            continue


def python_files() -> list[Path]:
    """Return the Python files, whatever their folder."""
    return [path for path in files() if path.suffix == ".py"]


def test_no_file_names_a_registry_or_a_path_of_this_machine() -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, content in text_files()
        for number, line in enumerate(content.splitlines(), 1)
        if any(host in line for host in REGISTRY_HOSTS) or MACHINE_PATH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    ["cd /" + "work/main", "see file:" + "///tmp/x", "'/" + "root/.cache'", "-f /" + "opt/wheels"],
)
def test_a_path_of_a_machine_is_recognised(line: str) -> None:
    assert MACHINE_PATH.search(line)


@pytest.mark.parametrize("line", ["src/forebay/work/loop.py", "a/root/b", "/workers", "./work/x"])
def test_a_relative_path_is_left_alone(line: str) -> None:
    assert not MACHINE_PATH.search(line)


def test_relative_links_in_documents_resolve() -> None:
    broken = []
    for path in files():
        if path.suffix != ".md":
            continue
        for match in LINK.finditer(FENCE.sub("", path.read_text())):
            target = (match[1] or match[2]).partition("#")[0]
            if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            if not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    found = pkgutil.walk_packages(forebay.__path__, "forebay.")
    return ["forebay", *(module.name for module in found)]


@pytest.mark.parametrize("name", modules())
def test_every_name_in_all_exists_once(name: str) -> None:
    """Check `__all__` against the module; that it is sorted is ruff's RUF022."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "forebay":
            raise
        pytest.skip(f"{name} needs {error.name}, which an extra installs")
    exported: list[str] = getattr(module, "__all__", [])
    assert len(exported) == len(set(exported))
    assert [item for item in exported if not hasattr(module, item)] == []


def test_a_long_file_says_why() -> None:
    unexplained = []
    for path in python_files():
        content = path.read_text()
        lines = content.count("\n")
        if lines > LINES_MAX and LONG_REASON not in (ast.get_docstring(ast.parse(content)) or ""):
            unexplained.append(f"{path.relative_to(ROOT)}: {lines} lines")
    assert unexplained == []


def makefile_targets() -> set[str]:
    """Return the targets that the Makefile has rules for."""
    content = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", content, re.MULTILINE))


def test_make_help_lists_every_target_and_only_those() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert {line.split()[1] for line in printed.splitlines()} == makefile_targets()


def test_make_targets_that_documents_mention_exist() -> None:
    mentioned = {
        (str(path.relative_to(ROOT)), target)
        for path in files()
        if path.suffix == ".md"
        for target in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", path.read_text(), re.MULTILINE)
    }
    assert sorted(pair for pair in mentioned if pair[1] not in makefile_targets()) == []


def sleeps(tree: ast.Module) -> Iterator[ast.Call]:
    """Give the calls of `time.sleep` and `asyncio.sleep`, however imported, but `sleep(0)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called.rpartition(".")[2] != "sleep":
            continue
        is_zero = [ast.unparse(argument) for argument in node.args] == ["0"]
        if not (is_zero and called == "asyncio.sleep"):
            yield node


def test_no_test_sleeps() -> None:
    found = [
        f"{name}:{call.lineno}: {ast.unparse(call)}"
        for path in python_files()
        if (name := str(path.relative_to(ROOT))).startswith("tests/") and name not in SLEEPS_ALLOWED
        for call in sleeps(ast.parse(path.read_text()))
    ]
    assert found == []


def test_files_that_may_sleep_exist_and_say_why() -> None:
    assert [name for name, why in SLEEPS_ALLOWED.items() if not why] == []
    assert [name for name in SLEEPS_ALLOWED if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("time.sleep(1)", 1),
        ("sleep(0.1)", 1),
        ("await asyncio.sleep(0.5)", 1),
        ("await asyncio.sleep(0)", 0),
        ("self.clock.advance(3)", 0),
    ],
)
def test_a_sleep_is_recognised(code: str, count: int) -> None:
    assert len(list(sleeps(ast.parse(code)))) == count
