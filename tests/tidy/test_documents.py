"""Documents tell the truth: generated pages are fresh, and the README's program runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_pages_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}: run `make docs`"


def test_the_synchronous_client_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, "tools/faces.py", "--check"], cwd=ROOT, check=False)
    assert run.returncode == 0, "run `make docs`"


def test_the_first_program_of_the_readme_runs_again_and_again(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for _ in range(3):  # whoever tries it tries it again
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.splitlines()[1:] == ["back after 1 attempt: b'{\"order\": 2}'", "left: 0"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_the_python_of_how_to_guides_compiles(page: Path) -> None:
    for program in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        body = "".join(f"    {line}\n" for line in program.splitlines())
        compile(f"async def guide() -> None:\n{body}", str(page), "exec")
