"""A contract is read with everything that is wrong with it, and where."""

import pickle
from pathlib import Path

import pytest

from forebay.contract import (
    Backoff,
    Contract,
    Field,
    InvalidContract,
    QueueContract,
    WorkSettings,
    parse_contract,
    read_contract,
)
from forebay.contract.reading import FIELDS_MAX, FILE_BYTES_MAX, QUEUES_MAX

EMAILS = """\
version: 1.4
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
      - {name: body, type: "[]byte"}
      - name: userId
        type: int64
    settings:
      visibility_seconds: 2m
      handle_seconds_max: 6h
      batch_size: 100
      max_processors: 4
      ordered: true
      retries_max: 0
      codec: iproto
      backoff: {initial_seconds: 500ms, factor: 3, max_seconds: 1h, jitter: 0.5}
"""


def faults(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(InvalidContract) as caught:
        parse_contract(text, "tasks.yaml")
    assert all(fault.file == "tasks.yaml" for fault in caught.value.faults)
    return [(fault.line, fault.column, fault.message) for fault in caught.value.faults]


def queue(*lines: str) -> str:
    return "queues:\n  - " + "\n    ".join(lines) + "\n"


def fields(text: str) -> str:
    return queue("id: 1", "name: a", f"fields: {text}")


def two(first: str, second: str) -> str:
    return queue("id: 1", f"name: {first}", ONE) + f"  - {{id: 2, name: {second}, {ONE}}}"


def test_a_contract_is_read_as_it_is_written() -> None:
    pauses = Backoff(initial_seconds=0.5, factor=3, max_seconds=3600, jitter=0.5)
    settings = WorkSettings(
        visibility_seconds=120,
        handle_seconds_max=21_600,
        batch_size=100,
        max_processors=4,
        ordered=True,
        retries_max=0,
        codec="iproto",
        backoff=pauses,
    )
    fields = (Field("to", "string"), Field("body", "[]byte"), Field("userId", "int64"))
    assert parse_contract(EMAILS) == Contract("1.4", (QueueContract(1, "emails", fields, settings),))


def test_version_and_settings_may_be_left_out_or_empty() -> None:
    text = queue("id: 7", "name: a", "fields: [{name: x, type: int}]", "settings:")
    expected = QueueContract(7, "a", (Field("x", "int"),))
    assert parse_contract(text) == Contract(None, (expected,))
    assert parse_contract(text + "version:\n").version is None


def test_all_seven_types_are_known() -> None:
    types = ["int", "int64", "string", "bool", "[]byte", "[]int", "[]int64"]
    fields = ", ".join(f'{{name: f{index}, type: "{name}"}}' for index, name in enumerate(types))
    (read,) = parse_contract(queue("id: 1", "name: a", f"fields: [{fields}]")).queues
    assert [field.type for field in read.fields] == types


ONE = "fields: [{name: x, type: int}]"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        # As users of the original know them
        ("", "1:1: no queues defined"),
        ("# nothing", "1:1: no queues defined"),
        ("version: 1", "1:1: no queues defined"),
        ("queues:", "1:8: no queues defined"),
        ("queues: []", "1:9: no queues defined"),
        (queue("id: 1", ONE), "2:5: queue name is empty"),
        (queue("id: 1", "name:", ONE), "3:10: queue name is empty"),
        (queue("id: 1", 'name: ""', ONE), "3:11: queue name is empty"),
        (queue("id: 1", "name: a", ONE) + f"  - {{id: 1, name: b, {ONE}}}", "5:10: duplicate queue id: 1"),
        (two("a", "a"), "5:19: duplicate queue name: a"),
        (queue("id: 1", "name: a"), "2:5: queue 'a' has no fields"),
        (queue("id: 1", "name: a", "fields:"), "4:12: queue 'a' has no fields"),
        (fields("[]"), "4:13: queue 'a' has no fields"),
        (fields("[{type: int}]"), "4:14: queue 'a': field name is empty"),
        (fields("[{name: '', type: int}]"), "4:21: queue 'a': field name is empty"),
        (
            fields("[{name: x, type: int}, {name: x, type: bool}]"),
            "4:43: queue 'a': duplicate field name: x",
        ),
        (
            fields("[{name: x, type: strin}]"),
            "4:30: queue 'a': field 'x': invalid type 'strin'",
        ),
        (fields("[{name: x}]"), "4:14: queue 'a': field 'x': invalid type ''"),
        (
            fields('[{name: x, type: "[]string"}]'),
            "4:30: queue 'a': field 'x': invalid type '[]string'",
        ),
        # Ids
        (queue("name: a", ONE), "2:5: queue 'a' has no id"),
        (queue("id:", "name: a", ONE), "2:8: queue 'a' has no id"),
        (queue("id: -3", "name: a", ONE), "2:9: queue 'a': id -3 is negative"),
        (queue("id: 0", "name: a", ONE), "2:9: queue 'a': id 0 is out of range"),
        (queue("id: 262144", "name: a", ONE), "2:9: queue 'a': id 262144 is out of range"),
        (queue("id: 1.5", "name: a", ONE), "2:9: queue 'a': id '1.5' is not a number"),
        (queue("id: 0x10", "name: a", ONE), "2:9: queue 'a': id '0x10' is not a number"),
        (queue("id: [1]", "name: a", ONE), "2:9: queue 'a': id is a list, not a plain value"),
        # Keys
        ("kues: 1\n" + queue("id: 1", "name: a", ONE), "1:1: the document: unknown key 'kues'"),
        (queue("id: 1", "name: a", "prio: 3", ONE), "4:5: queue 'a': unknown key 'prio'"),
        (
            fields("[{name: x, type: int, default: 3}]"),
            "4:35: queue 'a': field 'x': unknown key 'default'",
        ),
        (queue("id: 1", "name: a", ONE, "id: 2"), "5:5: queue 'a': key 'id' is here twice"),
        (queue("id: 1", "name: a", ONE, "[x]: 2"), "5:5: queue 'a': a key is a list, not a word"),
        # Names
        (queue("id: 1", "name: my-queue", ONE), "3:11: queue 'my-queue' is not an identifier"),
        (queue("id: 1", "name: 1st", ONE), "3:11: queue '1st' is not an identifier"),
        (queue("id: 1", "name: _a", ONE), "3:11: queue '_a' is not an identifier"),
        (queue("id: 1", "name: é", ONE), "3:11: queue '\\xe9' is not an identifier"),
        (
            queue("id: 1", f"name: {'a' * 65}", ONE),
            f"3:11: queue '{'a' * 64}...' is longer than 64 characters",
        ),
        (queue("id: 1", "name: class", ONE), "3:11: queue 'class' is a word of Python"),
        (
            queue("id: 1", "name: store", ONE),
            "3:11: queue 'store' is reserved: it is an argument of make_worker",
        ),
        (
            two("user_events", "userEvents"),
            "5:19: queue 'userEvents' collides with 'user_events': both are UserEvents in Python",
        ),
        (
            fields("[{name: a.b, type: int}]"),
            "4:21: queue 'a': field 'a.b' is not an identifier",
        ),
        (
            fields("[{name: From, type: int}]"),
            "4:21: queue 'a': field 'From' is a word of Python: from",
        ),
        (
            fields("[{name: taskId, type: int}]"),
            "4:21: queue 'a': field 'taskId' is reserved: every task has it",
        ),
        (
            fields("[{name: delay, type: int}]"),
            "4:21: queue 'a': field 'delay' is reserved: it is said when a task is put",
        ),
        (
            fields("[{name: userId, type: int}, {name: user_id, type: int}]"),
            "4:48: queue 'a': field 'user_id' collides with 'userId': both are user_id in Python",
        ),
        # Shapes
        ("[]", "1:1: the document is a list, not a mapping"),
        ("queues: {a: 1}", "1:9: queues is a mapping, not a list"),
        ("queues: [5]", "1:10: queue 1 is a plain value, not a mapping"),
        ("queues: &a [*a]", "1:9: queue 1 is a list, not a mapping"),
        (fields("5"), "4:13: queue 'a': fields is a plain value, not a list"),
        (fields("[x]"), "4:14: queue 'a': field is a plain value, not a mapping"),
        (queue("id: 1", "name: [a]", ONE), "3:11: queue 1: name is a list, not a plain value"),
        (
            fields("[{name: x, type: [int]}]"),
            "4:30: queue 'a': field 'x': type is a list, not a plain value",
        ),
        (
            fields("[{name: !t x, type: int}]"),
            "4:21: queue 'a': field name is a value with a tag, not a plain value",
        ),
        # The version
        ("version: one\n" + queue("id: 1", "name: a", ONE), "1:10: version 'one' is not a version"),
        ("version: {}\n" + queue("id: 1", "name: a", ONE), "1:10: version is a mapping, not a plain value"),
        # No YAML
        ("a: [", "1:5: it is not YAML: expected the node content, but found '<stream end>'"),
        ("a: b\n  c: \x07", "2:6: it is not YAML: it holds a character that YAML can't have"),
        ("[" * 5000, "1:1: it is nested too deeply"),
    ],
)
def test_each_fault_is_said_with_its_place(text: str, fault: str) -> None:
    ((line, column, message),) = faults(text)
    assert f"{line}:{column}: {message}" == fault


@pytest.mark.parametrize(
    ("settings", "column", "message"),
    [
        ("5", 15, "queue 'a': settings is a plain value, not a mapping"),
        ("{batch: 5}", 16, "queue 'a': settings: unknown key 'batch'"),
        ("{batch_size: 0}", 28, "queue 'a': settings: batch_size is '0'"),
        ("{batch_size: 10001}", 28, "queue 'a': settings: batch_size is '10001'"),
        ("{max_processors: -1}", 32, "queue 'a': settings: max_processors is '-1'"),
        ("{visibility_seconds: soon}", 36, "queue 'a': settings: visibility_seconds is 'soon'"),
        ("{visibility_seconds: 2d}", 36, "queue 'a': settings: visibility_seconds is '2d'"),
        ("{handle_seconds_max: never}", 36, "queue 'a': settings: handle_seconds_max is 'never'"),
        ("{handle_seconds_max: 0}", 36, "queue 'a': settings: handle_seconds_max is '0'"),
        ("{handle_seconds_max: 31536001}", 36, "queue 'a': settings: handle_seconds_max is '31536001'"),
        ("{ordered: 1}", 25, "queue 'a': settings: ordered is '1'"),
        ("{retries_max: many}", 29, "queue 'a': settings: retries_max is 'many'"),
        ("{codec: json}", 23, "queue 'a': settings: codec is 'json'"),
        ("{codec: [json]}", 23, "queue 'a': settings: codec is a list, not a plain value"),
        ("{backoff: 5}", 25, "queue 'a': backoff is a plain value, not a mapping"),
        ("{backoff: {factor: 0.5}}", 34, "queue 'a': backoff: factor is '0.5'"),
        ("{backoff: {jitter: 2}}", 34, "queue 'a': backoff: jitter is '2'"),
        ("{backoff: {max: 2}}", 26, "queue 'a': backoff: unknown key 'max'"),
        (
            "{backoff: {initial_seconds: 2h}}",
            25,
            "queue 'a': backoff: the first pause, 7200 s, is over the longest, 3600 s",
        ),
    ],
)
def test_each_fault_of_settings_is_said_with_its_place(settings: str, column: int, message: str) -> None:
    assert faults(queue("id: 1", "name: a", ONE, f"settings: {settings}")) == [(5, column, message)]


def test_all_faults_are_reported_in_the_order_of_their_lines() -> None:
    text = """\
version: x
queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: text}
      - {name: to, type: string}
  - id: 1
    name: emails
    fields: []
  - name: ''
    colour: red
"""
    assert faults(text) == [
        (1, 10, "version 'x' is not a version"),
        (6, 26, "queue 'emails': field 'to': invalid type 'text'"),
        (7, 16, "queue 'emails': duplicate field name: to"),
        (8, 9, "duplicate queue id: 1"),
        (9, 11, "duplicate queue name: emails"),
        (10, 13, "queue 'emails' has no fields"),
        (11, 5, "queue 3 has no id"),
        (11, 5, "queue 3 has no fields"),
        (11, 11, "queue name is empty"),
        (12, 5, "queue 3: unknown key 'colour'"),
    ]


def test_brackets_without_quotes_are_explained_and_the_rest_is_read_on() -> None:
    listed = ["- name: x", "  type: []byte  # bytes", "- {name: y, type: []int}", "- {name: z, type: what}"]
    text = queue("id: 1", "name: a", "fields:", *listed)
    with pytest.raises(InvalidContract) as caught:
        parse_contract(text, "tasks.yaml")
    first, second, third = map(str, caught.value.faults)
    assert first == 'tasks.yaml:6:13: type []byte has no quotes; write it as "[]byte"'
    assert second == 'tasks.yaml:7:23: type []int has no quotes; write it as "[]int"'
    assert third.startswith(
        "tasks.yaml:8:23: queue 'a': field 'z': invalid type 'what'; write one of int, int64"
    )


@pytest.mark.parametrize(
    ("word", "meant"), [("strin", "string"), ("str", "string"), ("bytes", "[]byte"), ("Int", "int")]
)
def test_a_misspelt_type_is_told_what_was_meant(word: str, meant: str) -> None:
    with pytest.raises(InvalidContract) as caught:
        parse_contract(queue("id: 1", "name: a", f"fields: [{{name: x, type: {word}}}]"))
    assert str(caught.value).endswith(f"did you mean {meant}?")


def test_the_settings_of_the_original_are_told_what_was_meant() -> None:
    with pytest.raises(InvalidContract, match=r"did you mean visibility_seconds\?"):
        parse_contract(queue("id: 1", "name: a", ONE, "settings: {visibility_timeout: 60}"))


def test_lists_are_bounded() -> None:
    fields = ", ".join(f"{{name: f{index}, type: int}}" for index in range(FIELDS_MAX + 1))
    assert faults(queue("id: 1", "name: a", f"fields: [{fields}]")) == [
        (4, 13, f"queue 'a': fields has {FIELDS_MAX + 1} entries")
    ]
    many = "a: &a {}\nqueues: [" + "*a, " * (QUEUES_MAX + 1) + "]"
    assert len(faults(many)) <= 1000


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    path = tmp_path / "tasks.yaml"
    with pytest.raises(InvalidContract, match=r"tasks\.yaml:1:1: it can't be read: No such file"):
        read_contract(path)
    with pytest.raises(InvalidContract, match="none that a file can have"):
        read_contract("a\0b")
    path.write_bytes(b"queues:\n  - id: 1\n    name: \xff\n")
    with pytest.raises(InvalidContract, match=r"tasks\.yaml:3:11: it is not UTF-8"):
        read_contract(path)
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidContract, match="over 1048576 bytes"):
        read_contract(path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + EMAILS.encode())
    assert read_contract(str(path)) == parse_contract(EMAILS)


def test_the_error_survives_pickling_with_all_its_faults() -> None:
    with pytest.raises(InvalidContract) as caught:
        parse_contract("queues: [1, 2]")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.faults) == (str(caught.value), caught.value.faults)
    assert len(again.faults) == 2


def test_a_long_list_of_faults_is_kept_whole_and_shown_in_part() -> None:
    with pytest.raises(InvalidContract) as caught:
        parse_contract(f"queues: {list(range(150))}")
    assert len(caught.value.faults) == 150
    assert str(caught.value).endswith("and 50 more")
