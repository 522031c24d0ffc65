"""Fair sharing between flows: whoever has the fewest messages out is served first."""

from collections.abc import Sequence


def share(out: Sequence[int], ready: Sequence[int], count: int) -> list[int]:
    """Split `count` messages over flows with `ready` waiting, so that what is `out` is as even as can be.

    >>> share([100, 0], [500, 500], 10)
    [0, 10]
    >>> share([0, 0, 0], [1, 50, 50], 9)
    [1, 4, 4]
    """
    shares = [0] * len(out)
    open_ = [i for i in range(len(out)) if ready[i]]
    while count and open_:
        level = min(out[i] + shares[i] for i in open_)
        lowest = [i for i in open_ if out[i] + shares[i] == level]
        above = min((out[i] + shares[i] for i in open_ if i not in lowest), default=None)
        # All of the lowest rise together: to the next flow above, until one is used up, or in equal parts.
        rise = min(ready[i] - shares[i] for i in lowest)
        rise = min(rise, max(1, count // len(lowest)))
        if above is not None:
            rise = min(rise, above - level)
        for i in lowest:
            given = min(rise, count)
            shares[i] += given
            count -= given
        open_ = [i for i in open_ if shares[i] < ready[i]]
    return shares
