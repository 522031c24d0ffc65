"""Dead letters: look at them, hand them out again, do away with them, undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from forebay.api.answers import Answer
from forebay.api.calls import Call
from forebay.api.routing import Route, Run
from forebay.log.values import DeadLetter
from forebay.model import MESSAGE_ID_MAX, parse_message_id
from forebay.store.letters import Letters
from forebay.wire.forms import AnyId, ChangedLetters, Form, Id, LettersForm, LettersPage, letter_form


class LettersQuery(Form, kw_only=True):
    """Which dead letters: from the first id past `after` on."""

    group: str = "workers"
    after: Id = "0"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class UndoForm(Form, kw_only=True):
    """The letters that a redrive or a purge has changed."""

    ids: Annotated[list[AnyId], Meta(max_length=100_000)]
    group: str = "workers"


async def list_letters(call: Call) -> Answer:
    """Dead letters by the page."""
    query = call.query(LettersQuery)
    after = min(int(query.after), MESSAGE_ID_MAX)
    found = await call.context.store.dead_letters(
        call.params["queue"], group=query.group, after=after, limit=query.limit + 1
    )
    more = len(found) > query.limit

    def form(letters: Sequence[DeadLetter]) -> LettersPage:
        return LettersPage(
            letters=[letter_form(letter) for letter in letters],
            next=str(letters[-1].message_id) if more else None,
        )

    return Answer(found[: query.limit], form)


async def redrive(call: Call) -> Answer:
    """Hand dead letters out again."""
    form: LettersForm = await call.form()
    letters = await call.context.store.redrive(
        call.params["queue"], _ids(form.ids), group=form.group, reason=form.reason, dry_run=form.dry_run
    )
    return Answer(letters, _changed)


async def purge(call: Call) -> Answer:
    """Do away with dead letters."""
    form: LettersForm = await call.form()
    letters = await call.context.store.purge(
        call.params["queue"], _ids(form.ids), group=form.group, reason=form.reason, dry_run=form.dry_run
    )
    return Answer(letters, _changed)


async def undo(call: Call) -> Answer:
    """Undo a redrive or a purge."""
    form: UndoForm = await call.form()
    ids = _ids(form.ids) or ()
    return Answer(
        await call.context.store.undo(call.params["queue"], Letters(ids), group=form.group), _changed
    )


def _ids(ids: Sequence[int | str] | None) -> list[int] | None:
    return None if ids is None else [parse_message_id(id) for id in ids]


def _changed(letters: Letters) -> ChangedLetters:
    return ChangedLetters(ids=[str(id) for id in letters.ids], dry_run=letters.dry_run)


def _changing(path: str, run: Run, summary: str, body: type[Form]) -> Route:
    return Route(
        "POST",
        f"/v1/queues/{{queue}}/dead/{path}",
        run,
        summary,
        {200: ChangedLetters},
        scope="admin",
        body=body,
        body_is_optional=body is LettersForm,
        problems=(404, 413, 415),
        tag="Dead letters",
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        "GET",
        "/v1/queues/{queue}/dead",
        list_letters,
        "List dead letters",
        {200: LettersPage},
        scope="read",
        query=LettersQuery,
        problems=(404,),
        bulk=True,
        tag="Dead letters",
    ),
    _changing("redrive", redrive, "Hand dead letters out again", LettersForm),
    _changing("purge", purge, "Do away with dead letters", LettersForm),
    _changing("undo", undo, "Undo a redrive or a purge", UndoForm),
)
