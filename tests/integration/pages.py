"""The pages on which programs say how they are."""

import urllib.error
import urllib.request


def get(url: str) -> tuple[int, str]:
    """What a page answers, whatever its status; status 0 if nobody does."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
