"""A token bucket: a pure function on one number.

A bucket holds `burst` tokens and gains `rate` a second; a request takes its cost out. Kept is not the
level but the time at which the bucket is full again, which says the same, needs no ticking, and is one
float. Times are seconds of a monotonic clock that is passed in.

Invariants: within any span of t seconds at most `burst + rate * t` is let through; a caller that is refused
and waits as long as told is let through, if no other used the bucket; a clock that jumps back locks a caller
out for no longer than it takes to fill a bucket.
"""

__all__ = ["spend"]


def spend(
    full_at: float, now: float, *, rate: float, burst: float, cost: float = 1.0
) -> tuple[float, float | None]:
    """Take `cost` out of a bucket that is full at `full_at`.

    Return when it is full from now on, and None; or when it would be full anyway, and the seconds to wait.
    A cost over the burst takes a full bucket, since it could never be paid otherwise.
    """
    fill_seconds = burst / rate
    full_at = min(max(full_at, now), now + fill_seconds)
    after = full_at + min(cost, burst) / rate
    wait = after - now - fill_seconds
    # What is left of a token after rounding isn't worth a refusal.
    if wait > 1e-9 * max(1.0, fill_seconds, abs(now)):
        return full_at, wait
    return after, None
