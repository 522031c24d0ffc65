"""The fifteen options of a queue, what each of them does, and where it is kept.

Those that our queues have themselves become their settings; the others are kept as the queue's labels, and
are looked at when messages come and go. Options that are not named keep their value: to forget them, as Queen
does, is how a lease of an hour becomes one of five minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from forebay.log.values import Queue
from forebay.model import Rejected

LABEL: Final = "queen"
DEDUPE_SECONDS: Final = 86_400.0
"""How long transaction ids are remembered in queues that are made here."""
KEEP_SECONDS: Final = 86_400.0
"""How long messages stay readable after they are finished, unless the options say otherwise."""
_YEARS: Final = 100 * 365 * 86_400
_Seconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_YEARS)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """Seconds, unless it is said otherwise; 0 switches off."""

    lease_time: Annotated[int, msgspec.Meta(ge=1, le=_YEARS)] = 300
    """How long a consumer may take."""
    max_size: _Count = 0
    """Messages that may wait in the queue; beyond it a push is refused."""
    ttl: _Seconds = 0
    """A message that nobody has taken after so long becomes a dead letter."""
    retry_limit: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 2)] = 3
    """How often a message comes back before it becomes a dead letter."""
    retry_delay: Annotated[int, msgspec.Meta(ge=0, le=_YEARS * 1000)] = 1000
    """Milliseconds before a message that failed comes back."""
    dead_letter_queue: bool = False
    """Kept and shown; what fails too often becomes a dead letter in any case."""
    dlq_after_max_retries: bool = False
    """Likewise."""
    priority: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)] = 0
    """Who takes by namespace or task gets messages of queues with a higher one first."""
    delayed_processing: _Seconds = 0
    """A message isn't handed out before so long has passed."""
    window_buffer: _Seconds = 0
    """Messages of a partition that come within so long are handed out together, at the end of it."""
    retention_seconds: _Seconds = 0
    """With `retentionEnabled`: messages older than this are dropped, taken or not."""
    completed_retention_seconds: _Seconds = 0
    """With `retentionEnabled`: how long messages are kept after all groups have finished with them."""
    retention_enabled: bool = False
    """Whether the two above count."""
    encryption_enabled: bool = False
    """Payloads are kept encrypted, with a key of the server's configuration."""
    max_wait_time_seconds: _Seconds = 0
    """Like `ttl`; the shorter of the two counts."""

    @property
    def waits_at_most(self) -> int:
        """Seconds after which nobody wants a message any more; 0 for never."""
        return min(filter(None, (self.ttl, self.max_wait_time_seconds)), default=0)


class Facts(msgspec.Struct, frozen=True):
    """What is kept of a queue beside our own settings."""

    namespace: str = ""
    task: str = ""
    options: Options = Options()


_NAMES: Final = {field.encode_name for field in msgspec.structs.fields(Options)}
_NOTHING: Final = Facts()


def changed(before: Options, given: Any) -> Options:
    """The options with those that are given; unknown ones are ignored."""
    if given is None:
        return before
    if not isinstance(given, dict):
        raise Rejected("options must be an object", hint='send {"options": {"leaseTime": 60}}')
    known = {name: value for name, value in given.items() if name in _NAMES and value is not None}
    try:
        return msgspec.convert({**msgspec.to_builtins(before), **known}, Options, strict=False)
    except msgspec.ValidationError as error:
        raise Rejected(f"bad option: {error}", hint="see docs/reference on Queen's routes") from None


def settings_of(facts: Facts, labels: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a queue of ours is told, beside the `labels` that it has."""
    options = facts.options
    keeps = options.retention_enabled and options.completed_retention_seconds
    expires = options.retention_enabled and options.retention_seconds
    return {
        "visibility_seconds": options.lease_time,
        "retries_max": options.retry_limit,
        "keep_seconds": options.completed_retention_seconds if keeps else KEEP_SECONDS,
        "expire_seconds": options.retention_seconds if expires else None,
        "labels": {**(labels or {}), LABEL: msgspec.to_builtins(facts)},
    }


def creation_of(facts: Facts) -> dict[str, Any]:
    """What a queue is told that is made here."""
    return {"ordered": True, "dedupe_seconds": DEDUPE_SECONDS, **settings_of(facts)}


def facts_of(queue: Queue) -> Facts:
    """What is kept of a queue; for one that was not made here, what its settings say."""
    kept = queue.settings.labels.get(LABEL)
    if kept is not None:
        return msgspec.convert(kept, Facts)
    settings = queue.settings
    options = msgspec.structs.replace(
        _NOTHING.options,
        lease_time=max(1, round(settings.visibility_seconds)),
        retry_limit=(1 << 31) - 2 if settings.retries_max is None else settings.retries_max,
        retry_delay=0,
    )
    return Facts(options=options)
