"""Whatever a program makes of our own description, the answers are as it says, and none is 5xx.

Schemathesis draws requests from the OpenAPI document, right and wrong ones, and checks the answers.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from forebay.api.openapi import document
from forebay.api.routes import ROUTES
from tests.integration.http_wire import ask
from tests.servers import ForebayServer

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
EXAMPLES: Final = 20 if os.environ.get("CI", "").lower() == "true" else 3


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_answers_are_as_the_description_says(tmp_path: Path, seed: int) -> None:
    program = Path(sys.executable).parent / "schemathesis"
    with ForebayServer(limits={"wait_seconds_max": 0.1}) as server:
        command = [
            str(program), "run", f"{server.url}/openapi.json", "--checks", ",".join(CHECKS), "--no-color",
            "--max-examples", str(EXAMPLES), "--seed", str(seed), "--continue-on-failure",
            "--phases", "examples,coverage,fuzzing",
            "--exclude-path", "/v1/overview/events",  # which never ends
        ]  # fmt: skip
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
        assert run.returncode == 0, f"seed {seed}:\n{run.stdout[-6_000:]}\n{server.tail()}"
        assert ask(server.port, "GET", "/readyz").status == 200


def test_the_description_and_its_page_are_served(forebay_server: ForebayServer) -> None:
    served = ask(forebay_server.port, "GET", "/openapi.json")
    assert served.json() == json.loads(json.dumps(document(ROUTES)))
    page = ask(forebay_server.port, "GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert b"http://" not in page.body
    assert b"https://" not in page.body
    assert b"/v1/queues/{queue}/messages" in page.body


def references(value: Any) -> set[str]:
    """All places that a document refers to."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set[str]()
        return own.union(*(references(item) for item in value.values()))
    return set[str]().union(*(references(item) for item in value)) if isinstance(value, list) else set()


def test_every_reference_of_the_description_leads_somewhere() -> None:
    found = document(ROUTES)
    for reference in references(found):
        place: Any = found
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
        assert place


def test_every_route_is_described_once() -> None:
    found = document(ROUTES)
    operations = [item for methods in found["paths"].values() for item in methods.values()]
    ours = [route for route in ROUTES if not route.foreign]
    assert len(operations) == len(ours)
    assert len({operation["operationId"] for operation in operations}) == len(ours)
    assert all(operation["summary"] and operation["tags"] != [""] for operation in operations)
