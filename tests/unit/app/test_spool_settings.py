"""The spool's settings, also by the names of the original server; and where its folder is."""

from pathlib import Path

import pytest

from forebay.app import settings as settings_module
from forebay.app.configuring import ORIGINAL_VARIABLES, SETTINGS, load_settings, read_settings
from forebay.app.configuring.faults import Given
from forebay.app.settings import Settings, SpoolSection, StoreSection


def test_the_variables_of_the_original_server_are_understood() -> None:
    environ = {
        "FILE_BUFFER_DIR": "/mnt/buffers",
        "FILE_BUFFER_FLUSH_MS": "250",
        "FILE_BUFFER_MAX_BATCH": "500",
        "FILE_BUFFER_EVENTS_PER_FILE": "20000",
        "FILE_BUFFER_RETRY_INTERVAL": "7",
        "FILE_BUFFER_STARTUP_RECOVERY_TIMEOUT": "600",
        "QUEEN_ENCRYPTION_KEY": "0f" * 32,
    }
    assert set(environ) == set(ORIGINAL_VARIABLES)
    loaded = load_settings(environ=environ)
    spool = loaded.settings.spool
    assert loaded.settings.spool_folder == Path("/mnt/buffers")
    assert (spool.flush_seconds, spool.retry_seconds, spool.startup_seconds_max) == (0.25, 7, 600)
    assert (spool.batch_events_max, spool.events_per_file) == (500, 20_000)
    sources = {row.key: row.source for row in loaded.rows()}
    assert {sources[path]: path for path, _ in ORIGINAL_VARIABLES.values()} == {
        name: path for name, (path, _) in ORIGINAL_VARIABLES.items()
    }


def test_the_defaults_are_those_of_the_original_server_but_for_the_batch() -> None:
    spool = Settings().spool
    assert (spool.enabled, spool.folder) == (True, None)
    assert (spool.flush_seconds, spool.retry_seconds, spool.startup_seconds_max) == (0.1, 5, 3_600)
    assert (spool.events_per_file, spool.batch_events_max) == (10_000, 10_000)


def test_flags_come_first_then_our_variables_the_original_s_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "forebay.yaml"
    file.write_text(
        "spool: {folder: of-the-file, flush_seconds: 1s, retry_seconds: 2s, events_per_file: 3}\n"
    )
    loaded = load_settings(
        file=file,
        environ={
            "FOREBAY_SPOOL_FOLDER": "ours", "FOREBAY_SPOOL_FLUSH_SECONDS": "20ms",
            "FILE_BUFFER_DIR": "theirs", "FILE_BUFFER_FLUSH_MS": "30", "FILE_BUFFER_RETRY_INTERVAL": "9",
            "FILE_BUFFER_MAX_BATCH": "",
        },
        flags={"spool.folder": Given("flagged", "--spool")},
    )  # fmt: skip
    spool = loaded.settings.spool
    assert (spool.folder, spool.flush_seconds, spool.retry_seconds) == ("flagged", 0.02, 9)
    assert (spool.events_per_file, spool.batch_events_max) == (3, 10_000)
    sources = {row.key: row.source for row in loaded.rows()}
    assert sources["spool.folder"] == "--spool"
    assert sources["spool.flush_seconds"] == "FOREBAY_SPOOL_FLUSH_SECONDS"
    assert sources["spool.retry_seconds"] == "FILE_BUFFER_RETRY_INTERVAL"
    assert sources["spool.events_per_file"] == f"{file}:1"
    assert sources["spool.batch_events_max"] == "default"


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("FILE_BUFFER_FLUSH_MS", "0.1s", "'0.1s' is not a number of milliseconds; write it in digits"),
        ("FILE_BUFFER_FLUSH_MS", "0", "0s is too little; give 1ms or more"),
        ("FILE_BUFFER_RETRY_INTERVAL", "-5", "'-5' is not a number of seconds"),
        ("FILE_BUFFER_STARTUP_RECOVERY_TIMEOUT", "86401", "is too much; give 1d or less"),
        ("FILE_BUFFER_MAX_BATCH", "many", "'many' is not a whole number"),
        ("FILE_BUFFER_EVENTS_PER_FILE", "0", "0 is too little; give 1 or more"),
    ],
)
def test_a_bad_value_is_a_fault_of_its_variable(variable: str, text: str, said: str) -> None:
    (fault,) = read_settings(environ={variable: text, "FOREBAY_SPOOL_ENABLED": "no"}).faults
    assert (fault.key, fault.source) == (ORIGINAL_VARIABLES[variable][0], variable)
    assert said in str(fault)


def test_every_bound_of_the_spool_is_held() -> None:
    for setting in SETTINGS.values():
        if setting.path.startswith("spool.") and setting.kind in ("duration", "integer"):
            (fault,) = read_settings(environ={setting.variable: "0"}).faults
            assert fault.key == setting.path


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder that the original server would have, which isn't there yet."""
    folder = tmp_path / "queen"
    monkeypatch.setattr(settings_module, "ORIGINAL_FOLDER", folder)
    return folder


def test_the_folder_is_in_the_data_folder_unless_it_is_named(original: Path) -> None:
    store = StoreSection(data="somewhere")
    assert Settings(store=store).spool_folder == Path("somewhere/spool")
    original.mkdir()
    named = Settings(store=store, spool=SpoolSection(folder="there"))
    assert named.spool_folder == Path("there")


def test_the_folder_of_the_original_server_is_taken_over(original: Path) -> None:
    original.mkdir(mode=0o755)
    assert Settings().spool_folder == original


def test_what_everybody_may_write_to_is_not_taken_over(original: Path, tmp_path: Path) -> None:
    original.mkdir()
    original.chmod(0o777)
    assert Settings().spool_folder == Path("forebay-data/spool")
    original.rmdir()
    original.symlink_to(tmp_path)
    assert Settings().spool_folder == Path("forebay-data/spool")
    original.unlink()
    original.write_bytes(b"")
    assert Settings().spool_folder == Path("forebay-data/spool")
