"""A history of what clients saw, and the checker that finds what must never be in it.

Clients write down what they do: puts that were acknowledged, tasks that were handed out and until when,
settlements that were acknowledged, or were tried and not answered. The checker knows nothing of Forebay:
it holds the history against what a durable queue promises, and reports only what is certain. A call takes
time, so what it did happened somewhere between when it was begun and when it was answered; only what must
be wrong wherever that was is a problem.

`check` looks at what workers saw, `check_log` at what the log has in the end of what producers pushed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from math import inf

FINAL = frozenset({"done", "bury"})
"""What ends a message for good."""
BACK = frozenset({"retry", "release"})
"""What sends it back."""


@dataclass(slots=True)
class Handed:
    """A message that was handed to a worker.

    `asked` is when the take was begun, `at` when it was answered. The lease holds at least to `deadline`;
    `settling` is when its settlement was begun, and `settled` when that was answered.
    """

    message: str
    lease: str
    at: float
    deadline: float
    attempts: int = 0
    asked: float = -inf
    take: str = ""
    """What was handed out by one call."""
    id: int = 0
    """By which the queue knows it."""
    tried: str = "none"
    """done, retry, release, bury, or none."""
    outcome: str = "none"
    """What was tried, if it was acknowledged; lost (it came too late), unknown (no answer), none."""
    settling: float = inf
    settled: float = inf
    ended: float = inf
    """When the lease may have ended otherwise: its holder's memory was lost."""

    def settle(self, how: str, begun: float, answered: float, outcome: str | None = None) -> None:
        """Write down how it was settled; `outcome` where that isn't what was tried."""
        self.tried, self.outcome = how, outcome or how
        self.settling, self.settled = begun, answered

    @property
    def until(self) -> float:
        """To when it was certainly out."""
        return min(self.deadline, self.settling, self.ended)

    def may_have(self, outcomes: frozenset[str]) -> bool:
        """Whether one of these may be what became of it."""
        return self.tried in outcomes and self.outcome != "lost"


@dataclass
class History:
    """What clients saw, in one clock."""

    put: dict[str, float] = field(default_factory=dict)
    """Acknowledged puts, and when; insertion order is the order of puts within a partition."""
    maybe_put: set[str] = field(default_factory=set)
    """Puts that were tried and not answered."""
    partitions: dict[str, str] = field(default_factory=dict)
    transaction_ids: dict[str, str] = field(default_factory=dict)
    handed: list[Handed] = field(default_factory=list)
    losses: list[tuple[float, float]] = field(default_factory=list)
    """When all leases may have been lost at once, by design: from, to."""
    doubts: list[tuple[float, float]] = field(default_factory=list)
    """Takes that may have handed out what nobody saw, such as those that took longer than their own leases
    last: when they began, and to when it may have been out."""
    unnoted: list[tuple[float, float]] = field(default_factory=list)
    """When a server may have handed out what the log never heard of: it was cut off, and ended."""

    def hand(self, handed: Handed) -> Handed:
        """Write down that a message was handed out."""
        self.handed.append(handed)
        return handed

    def may_be_lost(self, begin: float, end: float) -> bool:
        """Whether leases that were held from `begin` to `end` may have been lost by design."""
        return any(first <= end and begin <= last for first, last in self.losses)

    def may_be_unnoted(self, handed: Handed) -> bool:
        """Whether the log may never have heard that a message was handed out."""
        return any(first <= handed.at and handed.asked <= last for first, last in self.unnoted)

    def unseen(self, begin: float, end: float) -> int:
        """How often a message may have been handed out unseen between two moments."""
        return sum(first <= end and begin <= last for first, last in self.doubts)


def check(
    history: History,
    *,
    left: Iterable[str] = (),
    dead: Iterable[str] = (),
    ordered: bool = False,
    differences: Iterable[int] = (),
) -> list[str]:
    """All that is wrong with a history; `left` is what the queue still has at the end, `dead` its letters."""
    returns = _Returns(history) if ordered else None
    return [
        *_lost(history, set(left), set(dead)),
        *_invented(history, set(left) | set(dead)),
        *_settled_twice(history),
        *_back_after_the_end(history),
        *_double_leases(history, returns),
        *_lost_early(history, returns),
        *_wrong_attempts(history, returns),
        *_duplicates(history),
        *(_disorder(history) if ordered else ()),
        *(_overtaking(history, returns) if returns is not None else ()),
        *(f"the ledger is off by {difference}" for difference in differences if difference),
    ]


def told(history: History, problems: Sequence[str]) -> list[str]:
    """What was seen of the messages that problems name, and of those that came with them, in order."""
    words = {word.strip(":,") for problem in problems for word in problem.split()}
    named = {(h.take, history.partitions.get(h.message)) for h in history.handed if h.message in words}
    together = (h for h in history.handed if (h.take, history.partitions.get(h.message)) in named)
    seen = sorted(together, key=lambda h: h.at)
    return [
        f"seen: {h.message} by {h.lease} in take {h.take}, attempt {h.attempts}: asked {h.asked:.3f},"
        f" handed out {h.at:.3f}, ended {h.ended:.3f}, {h.tried} at {h.settling:.3f},"
        f" {h.outcome} at {h.settled:.3f}"
        for h in seen
    ]


def _by_message(history: History) -> dict[str, list[Handed]]:
    found: dict[str, list[Handed]] = defaultdict(list)
    for handed in history.handed:
        found[handed.message].append(handed)
    for list_ in found.values():
        list_.sort(key=cmp_to_key(_compare))
    return found


def _compare(one: Handed, other: Handed) -> int:
    """Which was handed out first; where the takes overlap, the one that counts fewer attempts."""
    if one.asked < other.at and other.asked < one.at and one.attempts != other.attempts:
        return one.attempts - other.attempts
    return (one.at > other.at) - (one.at < other.at)


def _lost(history: History, left: set[str], dead: set[str]) -> list[str]:
    """What was acknowledged is done, dead or still there: itself, or what it is a duplicate of."""
    accounted = {h.message for h in history.handed if h.may_have(frozenset({"done"}))} | left | dead
    ids = {history.transaction_ids[m] for m in accounted if m in history.transaction_ids}
    return [
        f"lost: {m} was acknowledged, and is nowhere"
        for m in history.put
        if m not in accounted and history.transaction_ids.get(m) not in ids
    ]


def _invented(history: History, at_the_end: set[str]) -> list[str]:
    known = history.put.keys() | history.maybe_put
    seen = dict.fromkeys([h.message for h in history.handed] + sorted(at_the_end))
    return [f"invented: {m} was never put" for m in seen if m not in known]


def _settled_twice(history: History) -> list[str]:
    ends = Counter(h.message for h in history.handed if h.outcome in FINAL)
    return [f"settled twice: {m} was ended {n} times" for m, n in ends.items() if n > 1]


def _back_after_the_end(history: History) -> list[str]:
    ended: dict[str, float] = {}
    for h in history.handed:
        if h.outcome in FINAL:
            ended[h.message] = min(h.settled, ended.get(h.message, inf))
    return [
        f"handed out after its end: {h.message} ended at {ended[h.message]:.6f}, and was out at {h.at:.6f}"
        for h in history.handed
        if h.message in ended and (h.at if h.asked == -inf else h.asked) > ended[h.message]
    ]


def _certain_end(history: History, handed: Handed, returns: _Returns | None) -> float:
    """To when a lease was certainly held; a loss by design ends it, and what comes back before it."""
    losses = [max(first, handed.at) for first, last in history.losses if last >= handed.asked]
    if returns is not None:
        losses += [max(first, handed.at) for first in returns.before(handed)]
    return min(handed.until, *losses) if losses else handed.until


def _double_leases(history: History, returns: _Returns | None) -> list[str]:
    """Two leases that were certainly held at one moment; what a loss took before it was seen never was."""
    problems = []
    for message, list_ in _by_message(history).items():
        if len(list_) == 1:
            continue
        held = [(handed, _certain_end(history, handed, returns)) for handed in list_]
        for place, (handed, end) in enumerate(held):
            for by, latest in held[:place]:
                if max(by.at, handed.at) < min(latest, end):
                    problems.append(
                        f"two live leases: {message} was out from {by.at:.6f} to {latest:.6f} by {by.lease},"
                        f" and at {handed.at:.6f} by {handed.lease}"
                    )
                    break
    return problems


class _Returns:
    """When messages of an ordered queue may have come back, or certainly did, by partition.

    What comes back ends the leases of what comes after it.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._place = {message: i for i, message in enumerate(history.put)}
        self._possible: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        self.certain: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        """By partition: the message's place, when its return was begun, and when it was answered."""
        again = {m: max(h.at for h in list_) for m, list_ in _by_message(history).items()}
        for h in history.handed:
            # Nobody knows where a put is that was not answered: it may be before all others.
            partition, place = history.partitions.get(h.message, ""), self._place.get(h.message, -1)
            if h.may_have(BACK):
                self._possible[partition].append((place, h.settling, h.settled))
                if h.outcome in BACK and again[h.message] > h.settled and place >= 0:
                    self.certain[partition].append((place, h.settling, h.settled))
            if not (h.outcome in FINAL | BACK and h.settled < min(h.deadline, h.ended)):
                self._possible[partition].append((place, min(h.deadline, h.ended), inf))

    def place(self, handed: Handed) -> int:
        """Where a message is in the order of puts; those that were not answered come last."""
        return self._place.get(handed.message, len(self._place))

    def partition(self, handed: Handed) -> str:
        """The partition of a message."""
        return self._history.partitions.get(handed.message, "")

    def may_have_ended(self, handed: Handed, until: float) -> bool:
        """Whether something before a message may have come back while it was out, and up to a moment."""
        return any(first <= until for first in self.before(handed)) or any(
            first <= until and handed.asked <= last for first, last in self._history.losses
        )

    def before(self, handed: Handed) -> list[float]:
        """From when on something before a message may have come back, since it was handed out."""
        place = self.place(handed)
        possible = self._possible[self.partition(handed)]
        return [first for before, first, last in possible if before < place and handed.asked <= last]


def _overtaking(history: History, returns: _Returns) -> list[str]:
    """What was out when something before it came back isn't settled for good under that lease any more.

    After a loss of the shared tier no server knows what else of a partition is out (ADR 37).
    """
    problems = []
    for h in history.handed:
        if h.outcome in FINAL and not history.may_be_lost(h.at, h.settled):
            place = returns.place(h)
            found = [
                settled
                for before, settling, settled in returns.certain[returns.partition(h)]
                if before < place and h.at < settling and settled < h.settling
            ]
            if found:
                problems.append(
                    f"overtaking: {h.message} was ended at {h.settled:.6f} by {h.lease}, which was out when"
                    f" something before it came back at {min(found):.6f}"
                )
    return problems


def _lost_early(history: History, returns: _Returns | None) -> list[str]:
    """Who settles in time is not told that he came too late, unless what comes before it came back."""
    return [
        f"lease lost early: {h.message} by {h.lease}, {h.deadline - h.settled:.6f} s before its deadline"
        for h in history.handed
        if h.outcome == "lost"
        and h.settled < min(h.deadline, h.ended)
        and not history.may_be_lost(h.asked, h.settled)
        and not (returns is not None and returns.may_have_ended(h, h.settled))
    ]


def _wrong_attempts(history: History, returns: _Returns | None) -> list[str]:
    """A message counts an attempt more each time that it comes back, unless it was released or held up."""
    problems = []
    for message, list_ in _by_message(history).items():
        first = list_[0]
        if not 0 <= first.attempts <= history.unseen(-inf, first.at):
            problems.append(f"attempts: {message} came first with {first.attempts}")
        for earlier, later in itertools.pairwise(list_):
            least, most = _rise(earlier)
            least = 0 if history.may_be_unnoted(earlier) else least
            most += history.unseen(earlier.at, later.at)
            rise = later.attempts - earlier.attempts
            if rise == 0 and returns is not None and returns.may_have_ended(earlier, later.at):
                continue
            if not least <= rise <= most:
                problems.append(
                    f"attempts: {message} went from {earlier.attempts} to {later.attempts}"
                    f" after {earlier.tried}/{earlier.outcome}"
                )
    return problems


def _rise(handed: Handed) -> tuple[int, int]:
    """How many attempts more a message may count after this."""
    if not handed.may_have(frozenset({"release"})):
        return 1, 1
    in_time = handed.outcome == "release" and handed.settled < handed.deadline
    return 0, 0 if in_time else 1


def _duplicates(history: History) -> list[str]:
    """A message is there under one id, and one message only of each transaction id."""
    ids: dict[str, set[int]] = defaultdict(set)
    seen: dict[str, set[str]] = defaultdict(set)
    for handed in history.handed:
        ids[handed.message].add(handed.id)
        transaction_id = history.transaction_ids.get(handed.message)
        if transaction_id is not None:
            seen[transaction_id].add(handed.message)
    problems = [f"there twice: {m} has ids {sorted(i)}" for m, i in ids.items() if len(i) > 1]
    return problems + [
        f"not deduplicated: {sorted(m)} have transaction id {t}" for t, m in seen.items() if len(m) > 1
    ]


def _disorder(history: History) -> list[str]:
    """What is handed out comes after all of its partition that was put before, or together with it.

    So when a message is handed out, each earlier one is in the same take, or its end was at least tried
    before.
    """
    ends: dict[str, float] = {}
    for h in history.handed:
        if h.may_have(FINAL):
            ends[h.message] = min(h.settling, ends.get(h.message, inf))
    seen = {h.message for h in history.handed}
    lines: dict[str, list[str]] = defaultdict(list)
    for message in history.put:
        if message in seen:  # a duplicate never is
            lines[history.partitions.get(message, "")].append(message)
    place = {message: i for line in lines.values() for i, message in enumerate(line)}
    takes: dict[tuple[str, str], list[Handed]] = defaultdict(list)
    for h in history.handed:
        if h.message in place:
            takes[h.take or h.lease, history.partitions.get(h.message, "")].append(h)
    problems = []
    open_from: dict[str, int] = defaultdict(int)
    for (_, partition), together in sorted(takes.items(), key=lambda item: max(h.at for h in item[1])):
        line, mine = lines[partition], {h.message for h in together}
        at = max(h.at for h in together)
        begin, last = open_from[partition], max(place[h.message] for h in together)
        while begin < len(line) and ends.get(line[begin], inf) < at:
            begin += 1
        open_from[partition] = begin
        waiting = [m for m in line[begin:last] if m not in mine and not ends.get(m, inf) < at]
        problems += [
            f"out of order in {partition!r}: {line[last]} came at {at:.6f} before {m}" for m in waiting[:1]
        ]
    return problems


@dataclass(frozen=True, slots=True)
class Pushed:
    """A push of messages to one line: a partition of a queue. One producer pushes to a line, in turn."""

    line: str
    messages: tuple[str, ...]
    acknowledged: bool
    """Whether it was answered that they are safe; what was given up may be there, or not."""


def check_log(
    pushes: Sequence[Pushed], found: Mapping[str, Sequence[str]], *, differences: Iterable[int] = ()
) -> list[str]:
    """All that is wrong with a log, by line in its order, after pushes in theirs.

    What was acknowledged is there once, in the order of pushes; what was given up is there once or not, whole
    or not at all, and anywhere; nothing else is there.
    """
    return [
        *_missing(pushes, found),
        *_strange(pushes, found),
        *_repeated(found),
        *_torn(pushes, found),
        *_swapped(pushes, found),
        *(f"the ledger is off by {difference}" for difference in differences if difference),
    ]


def _missing(pushes: Sequence[Pushed], found: Mapping[str, Sequence[str]]) -> list[str]:
    there = {message for line in found.values() for message in line}
    return [
        f"lost: {m} of {push.line} was acknowledged, and is not in the log"
        for push in pushes
        if push.acknowledged
        for m in push.messages
        if m not in there
    ]


def _strange(pushes: Sequence[Pushed], found: Mapping[str, Sequence[str]]) -> list[str]:
    lines = {m: push.line for push in pushes for m in push.messages}
    return [
        f"invented: {m} was never pushed" if m not in lines else f"misplaced: {m} is in {line}"
        for line, messages in found.items()
        for m in messages
        if lines.get(m) != line
    ]


def _repeated(found: Mapping[str, Sequence[str]]) -> list[str]:
    times = Counter(m for messages in found.values() for m in messages)
    return [f"there twice: {m} is in the log {n} times" for m, n in times.items() if n > 1]


def _torn(pushes: Sequence[Pushed], found: Mapping[str, Sequence[str]]) -> list[str]:
    there = {message for line in found.values() for message in line}
    counts = [(push, sum(m in there for m in push.messages)) for push in pushes]
    return [
        f"torn: {n} of {len(push.messages)} messages of a push to {push.line}, from {push.messages[0]} on"
        for push, n in counts
        if 0 < n < len(push.messages)
    ]


def _swapped(pushes: Sequence[Pushed], found: Mapping[str, Sequence[str]]) -> list[str]:
    """Messages that come after one that was pushed later; within a push that was given up, too."""
    places: dict[str, tuple[int, int]] = {}
    given_up: dict[str, int] = {}
    for number, push in enumerate(pushes):
        places |= {m: (number, i) for i, m in enumerate(push.messages)}
        if not push.acknowledged:
            given_up |= dict.fromkeys(push.messages, number)
    problems = []
    for line, messages in found.items():
        lanes: dict[int | None, tuple[tuple[int, int], str]] = {}
        for m in dict.fromkeys(messages):
            if m not in places:
                continue
            before = lanes.get(given_up.get(m))
            if before is not None and before[0] > places[m]:
                problems.append(f"out of order in {line!r}: {before[1]} is before {m}")
            else:
                lanes[given_up.get(m)] = (places[m], m)
    return problems
