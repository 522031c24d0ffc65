"""A package is generated the same every time, and touches nothing that isn't its own."""

import ast
import importlib
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import pytest

from forebay.contract import Contract, parse_contract
from forebay.contract.generating import package_files, stale_files, write_package
from forebay.contract.generating.layout import MARK, WIDTH
from forebay.contract.naming import RESERVED_FIELDS, RESERVED_QUEUES, class_name, name_fault, python_name
from forebay.model import Rejected
from forebay.work import Worker

FILES = ("__init__.py", "client.py", "tasks.py", "worker.py")


def contract(name: str = "emails", field: str = "to", more: str = "") -> Contract:
    return parse_contract(
        f"{more}\nqueues: [{{id: 1, name: {name}, fields: [{{name: {field}, type: int}}]}}]"
    )


def written(folder: Path, files: dict[str, str]) -> dict[str, tuple[str, int]]:
    return {name: ((folder / name).read_text(), (folder / name).stat().st_mtime_ns) for name in files}


def test_the_same_contract_gives_the_same_files() -> None:
    files = package_files(contract(), "tasks.yaml")
    assert files == package_files(contract(), "tasks.yaml")
    assert tuple(files) == FILES
    assert all(text.startswith(f"{MARK} from tasks.yaml; don't edit.\n") for text in files.values())


def test_writing_again_touches_nothing(tmp_path: Path) -> None:
    files = package_files(contract(), "tasks.yaml")
    folder = tmp_path / "a" / "tasks"
    assert write_package(folder, files).written == FILES
    before = written(folder, files)
    assert write_package(folder, files).unchanged == FILES
    assert written(folder, files) == before
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_only_what_differs_is_stale_and_written(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    files = package_files(contract(), "tasks.yaml")
    assert stale_files(folder, files) == list(FILES)
    write_package(folder, files)
    changed = package_files(contract(more="version: 2"), "tasks.yaml")
    assert stale_files(folder, changed) == ["tasks.py"]
    assert write_package(folder, changed).written == ("tasks.py",)
    assert stale_files(folder, changed) == []
    (folder / "client.py").unlink()
    assert stale_files(folder, changed) == ["client.py"]


def test_a_file_that_was_not_generated_is_left_alone_and_so_is_all_else(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "worker.py").write_text("mine = 1\n")
    with pytest.raises(Rejected, match=r"worker\.py wasn't generated, and is left alone"):
        write_package(folder, package_files(contract(), "tasks.yaml"))
    assert [path.name for path in folder.iterdir()] == ["worker.py"]
    assert (folder / "worker.py").read_text() == "mine = 1\n"


def test_an_empty_file_may_be_there_and_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "mine.py").write_text("mine = 1\n")
    assert write_package(folder, package_files(contract(), "tasks.yaml")).written == FILES
    assert (folder / "mine.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("name", ["my-tasks", "1st", "class"])
def test_a_folder_that_cannot_be_imported_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected, match="a package can't be called"):
        write_package(tmp_path / name, package_files(contract(), "tasks.yaml"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("a file")
    with pytest.raises(Rejected, match="is no folder"):
        write_package(tmp_path / "tasks", package_files(contract(), "tasks.yaml"))


def test_short_names_leave_the_formatting_to_formatters_and_long_ones_do_not() -> None:
    for text in package_files(contract(), "tasks.yaml").values():
        assert max(map(len, text.splitlines())) <= WIDTH
        assert "fmt: off" not in text
    assert "# fmt: off" in package_files(contract("q" * 64, "f" * 64), "tasks.yaml")["tasks.py"]


@pytest.mark.parametrize(
    "word", ["id", "type", "row", "task", "data", "value", "match", "format", "list", "class_"]
)
def test_names_that_generated_code_uses_itself_do_no_harm(word: str) -> None:
    for text in package_files(contract(word, word), "tasks.yaml").values():
        ast.parse(text)


@pytest.mark.parametrize(
    ("name", "attribute", "title"),
    [
        ("emails", "emails", "Emails"),
        ("user_events", "user_events", "UserEvents"),
        ("userEvents", "user_events", "UserEvents"),
        ("HTTPCalls2", "http_calls2", "HttpCalls2"),
        ("userID", "user_id", "UserId"),
        ("a__b_", "a__b_", "AB"),
    ],
)
def test_names_in_python(name: str, attribute: str, title: str) -> None:
    assert (python_name(name), class_name(name)) == (attribute, title)


def test_a_queue_hides_nothing_that_makes_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of `make_worker` are called as the queues are, beside those of `Worker`."""
    queues = ["emails", "bind_emails", "bindings", "list", "tasks", "worker", "any"]
    rows = "".join(
        f"  - {{id: {id}, name: {name}, fields: [{{name: a, type: int}}]}}\n"
        for id, name in enumerate(queues, 1)
    )
    write_package(tmp_path / "hiding", package_files(parse_contract(f"queues:\n{rows}"), "tasks.yaml"))
    monkeypatch.syspath_prepend(tmp_path)
    make_worker = importlib.import_module("hiding").make_worker
    handlers = {name: SimpleNamespace(**{f"handle_{name}": name}) for name in queues}
    worker = make_worker("memory://", **handlers, name="main")
    assert {name: bound.handle for name, bound in worker.bindings.items()} == {name: name for name in queues}


def test_what_a_worker_is_told_by_name_is_no_name_of_a_queue() -> None:
    told = [name for name, one in signature(Worker).parameters.items() if one.kind is one.KEYWORD_ONLY]
    assert {*told, "store"} <= RESERVED_QUEUES.keys()
    assert name_fault("clock", RESERVED_QUEUES) == "is reserved: it is an argument of make_worker"


@pytest.mark.parametrize("reserved", [RESERVED_FIELDS, RESERVED_QUEUES])
def test_reserved_names_are_refused_however_they_are_written(reserved: dict[str, str]) -> None:
    for name in reserved:
        assert name_fault(name, reserved)
        assert name_fault(name.upper(), reserved) or "_" in name
        head, *rest = name.split("_")
        assert name_fault(head + "".join(word.capitalize() for word in rest), reserved)
