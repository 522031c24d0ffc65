"""Examples of requests and answers, for whoever reads the description of the API."""

from __future__ import annotations

from typing import Any, Final

_ID: Final = "35184372088833"
_LEASE: Final = "mAGibTEDAc8AACAAAAAAAQEAzwAGYF_eo1Rj"
_WORKER: Final = "worker@machine:7-beef"
_TIME: Final = 1_767_225_600_000_000
_TICKET: Final = {"id": _ID, "lease": _LEASE}
_TASKS: Final = {
    "tasks": [
        {
            "payload": {"order": 1},
            "id": _ID,
            "queue": "orders",
            "attempts": 0,
            "created_at": _TIME,
            "start_time": _TIME,
            "deadline": _TIME + 60_000_000,
            "lease": _LEASE,
        }
    ]
}

BODIES: Final[dict[tuple[str, str], Any]] = {
    ("POST", "/v1/queues/{queue}/messages"): [
        {"payload": {"order": 1}},
        {"payload": {"order": 2}, "partition": "customer-7", "transaction_id": "order-2"},
    ],
    ("POST", "/v1/take"): {"queues": ["orders", "returns"], "count": 10, "wait_seconds": 30},
    ("POST", "/v1/queues/{queue}/take"): {"count": 10, "wait_seconds": 30},
    ("POST", "/v1/done"): {"tasks": [_TICKET]},
    ("POST", "/v1/retry"): {"tasks": [_TICKET], "delay_seconds": 30},
    ("POST", "/v1/bury"): {"tasks": [_TICKET], "reason": "no such customer"},
    ("POST", "/v1/release"): {"tasks": [_TICKET]},
    ("POST", "/v1/extend"): {"tasks": [_TICKET], "seconds": 300},
    ("POST", "/v1/settle"): {"done": [_TICKET]},
    ("PUT", "/v1/queues/{queue}"): {"settings": {"ordered": True, "retries_max": 5}},
    ("PATCH", "/v1/queues/{queue}"): {"visibility_seconds": 120},
    ("POST", "/v1/queues/{queue}/purge"): {"dry_run": True},
    ("PUT", "/v1/queues/{queue}/groups/{group}"): {"start": "latest"},
    ("POST", "/v1/queues/{queue}/groups/{group}/seek"): {"start": "earliest"},
    ("POST", "/v1/queues/{queue}/dead/redrive"): {"reason": "timeout", "dry_run": True},
    ("POST", "/v1/queues/{queue}/dead/purge"): {"ids": [_ID]},
    ("POST", "/v1/queues/{queue}/dead/undo"): {"ids": [_ID]},
    ("PUT", "/v1/workers/{worker}/report"): {
        "worker": _WORKER,
        "processors": 4,
        "queues": {
            "orders": {
                "processed": 100,
                "errors": 1,
                "retried": 1,
                "seconds_per_task": 0.25,
                "in_progress": 10,
                "processors": 1,
                "processors_max": 4,
            }
        },
    },
    ("PUT", "/v1/destinations/{destination}/report"): {
        "name": "hooks",
        "process": _WORKER,
        "url": "hooks.example/orders",
        "queue": "orders",
        "group": "workers",
        "breaker": "closed",
        "delivered": 100,
    },
    ("POST", "/v1/destinations/{destination}/pause"): {"reason": "moving to another host"},
    ("POST", "/v1/log/{verb}"): {
        "queue": {"number": 1, "name": "orders", "settings": {}, "created_at": _TIME},
        "first": 1,
        "messages": 1_000,
    },
    ("POST", "/v1/workers/instructions"): {
        "manager": "machine:5-c0ffee",
        "version": 7,
        "instructions": {_WORKER: {"orders": 3}},
    },
}
"""By method and path."""

ANSWERS: Final[dict[tuple[str, str], Any]] = {
    ("POST", "/v1/queues/{queue}/messages"): {
        "block": "01976d3e-7a10-7c3b-9f21-5d0c8e4b6a12",
        "durable": "log",
        "results": [
            {"id": _ID, "status": "accepted"},
            {"id": str(int(_ID) + 1), "status": "accepted"},
        ],
    },
    ("POST", "/v1/take"): _TASKS,
    ("POST", "/v1/queues/{queue}/take"): _TASKS,
    ("POST", "/v1/done"): {"settled": 1, "durable": "log"},
    ("POST", "/v1/settle"): {"settled": 1, "durable": "log"},
    ("PUT", "/v1/workers/{worker}/report"): {
        "instructions": {"manager": "machine:5-c0ffee", "processors": {"orders": 3}}
    },
}

PATHS: Final = {
    "queue": "orders",
    "group": "workers",
    "stage": "nightly",
    "id": _ID,
    "worker": _WORKER,
    "destination": "hooks",
    "verb": "read",
    "file": "page.css",
}
"""What stands for the names in paths."""
