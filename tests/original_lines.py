"""What an original Queen server leaves in its buffer folder, as its documentation shows it."""

from typing import Final

LINES: Final = (
    '{"queue":"orders","partition":"customer-123","payload":{"id":1},"transaction_id":"tx-1",'
    '"trace_id":"trace-1","namespace":"sales","task":"process"}\n'
    '{"queue":"orders","partition":"customer-456","payload":{"id":2},"transaction_id":"tx-2",'
    '"trace_id":"trace-2","namespace":"sales","task":"process"}\n'
    '{"queue":"events","partition":"Default","payload":{"type":"login"},"transaction_id":"tx-3",'
    '"trace_id":"trace-3","namespace":"","task":""}\n'
)
"""A file: no checksums, no ids."""
