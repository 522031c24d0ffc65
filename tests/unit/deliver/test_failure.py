"""Failures are sorted by status and type of exception, never by a text."""

import ssl

import pytest

from forebay.deliver.failure import counts_for_breaker, failed, of_status
from forebay.deliver.values import ANSWER_BYTES_KEPT, ErrorClass


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_delivered(status: int) -> None:
    outcome = of_status(status)
    assert outcome.is_delivered
    assert outcome.error_class is None
    assert not outcome.is_retried


@pytest.mark.parametrize(
    ("status", "kind", "is_retried"),
    [
        (301, ErrorClass.CLIENT_ERROR, False),
        (308, ErrorClass.CLIENT_ERROR, False),
        (400, ErrorClass.CLIENT_ERROR, False),
        (401, ErrorClass.AUTH, True),
        (403, ErrorClass.AUTH, True),
        (404, ErrorClass.CLIENT_ERROR, False),
        (407, ErrorClass.AUTH, True),
        (408, ErrorClass.TIMEOUT, True),
        (413, ErrorClass.TOO_LARGE, False),
        (425, ErrorClass.RATE_LIMIT, True),
        (429, ErrorClass.RATE_LIMIT, True),
        (499, ErrorClass.CLIENT_ERROR, False),
        (500, ErrorClass.SERVER_ERROR, True),
        (504, ErrorClass.SERVER_ERROR, True),
        (599, ErrorClass.SERVER_ERROR, True),
        (999, ErrorClass.SERVER_ERROR, True),
    ],
)
def test_a_status_has_its_class(status: int, kind: ErrorClass, is_retried: bool) -> None:  # noqa: FBT001 - a parameter
    outcome = of_status(status, retry_after_seconds=3.0)
    assert (outcome.error_class, outcome.is_retried, outcome.status) == (kind, is_retried, status)
    assert outcome.retry_after_seconds == 3.0
    assert str(status) in outcome.reason


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_refused_credential_is_final_where_that_is_asked_for(status: int) -> None:
    outcome = of_status(status, retries_auth=False)
    assert (outcome.error_class, outcome.is_retried) == (ErrorClass.AUTH, False)
    assert not counts_for_breaker(outcome)
    assert not of_status(404, retries_auth=True).is_retried


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("rate limit 429"), ErrorClass.TIMEOUT),
        (ConnectionResetError("timeout"), ErrorClass.NETWORK),
        (ssl.SSLCertVerificationError("timeout"), ErrorClass.NETWORK),
        (EOFError(), ErrorClass.NETWORK),
    ],
)
def test_an_exception_has_the_class_of_its_type_whatever_its_text(error: Exception, kind: ErrorClass) -> None:
    outcome = failed(error)
    assert (outcome.error_class, outcome.is_retried, outcome.status) == (kind, True, None)
    assert outcome.reason


def test_the_start_of_an_answer_is_kept_and_no_more() -> None:
    assert of_status(500, answer=b"x" * 100_000).answer == b"x" * ANSWER_BYTES_KEPT
