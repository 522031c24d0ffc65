"""The OpenAPI 3.1 document, made from the table of routes and the forms that it names.

Invariants: whatever is served is in it, and nothing else; it is the same for the same code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from textwrap import dedent
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from forebay.api.examples import ANSWERS, BODIES, PATHS
from forebay.api.routing import Route
from forebay.log.values import QueueSettings
from forebay.wire.forms import QueueForm
from forebay.wire.log import VERBS
from forebay.wire.media import BLOCK, JSON, NDJSON, PROBLEM
from forebay.wire.problems import Problem

_REF: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)}")
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 255}
_PARAMETERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "queue": (_NAME, "The name of a queue, percent-encoded"),
    "group": (_NAME, "The name of a group, percent-encoded"),
    "stage": (_NAME, "The name of a stage, percent-encoded"),
    "worker": (_NAME, "The name of a worker, percent-encoded"),
    "destination": ({"type": "string", "pattern": "^[^/]{1,100}$"}, "The name of a destination"),
    "file": ({"type": "string", "maxLength": 100}, "The name of a file"),
    "verb": ({"type": "string", "enum": list(VERBS)}, "A verb of the log: see `forebay.log.seam`"),
    "id": ({"type": "string", "pattern": "^[0-9]{1,19}$"}, "The id of a message"),
}
_PROBLEMS: Final = {
    400: "The request is wrong: `detail` says what and where, `hint` what to do.",
    401: "There is no key and no JWT, or none that is valid.",
    403: "The key doesn't allow this, or not for this queue; or a browser asks for a page of somebody else.",
    404: "There is no such queue, group or message; the hint names the nearest.",
    408: "The request didn't arrive in time.",
    409: "Somebody else was first: a lease is lost, or the same thing was done in another way.",
    412: "It has changed since it was read.",
    413: "Something is larger than its limit.",
    415: "The body is of a type, or in an encoding, that isn't taken here.",
    429: "Too many requests: come back after `Retry-After` seconds.",
    431: "The head of the request is too large.",
    500: "The server failed; its log has the request id.",
    503: "Out of reach for now, or too busy: come back after `Retry-After` seconds.",
    507: "The disk is full; nothing of the push was taken.",
}
_EVERYWHERE: Final = (400, 429, 431, 500, 503)
_WITH_KEY: Final = (401, 403)
_WITH_BODY: Final = (408, 413, 415)
_RETRY: Final = frozenset({408, 429, 503})
_WITH_ETAG: Final = frozenset({200, 201, 304})
_ETAGGED: Final = "/v1/queues/{queue}"

_INTRODUCTION: Final = """\
A durable queue for data pipelines. A push that is answered 201 is on disk. A task that was taken is yours \
until its deadline, under a lease that settles it.

Bodies are JSON, or MessagePack (`Content-Type` and `Accept: application/msgpack`), in which ids are numbers \
and payloads are bytes; they may be packed with `Content-Encoding: gzip` or `zstd`. Ids of messages are text \
in JSON. Times are microseconds since 1970. Unknown fields are refused. Errors are problems (RFC 9457)."""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document of our own format."""
    routes = [route for route in routes if not route.foreign]
    schemas = _Schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay",
            "version": version("forebay"),
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": {_problem_name(status): _problem(status) for status in _PROBLEMS},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key with the scope that the operation names, if the server has keys.",
                }
            },
        },
    }


class _Schemas:
    """The schemas of all forms."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._types = [part for route in routes for form in _forms(route) for part in _parts(form)]
        unique = list(dict.fromkeys([*self._types, Problem]))
        found, self.components = msgspec.json.schema_components(unique, ref_template=_REF)
        self._schemas: dict[Any, dict[str, Any]] = dict(zip(unique, found, strict=True))
        self._describe(unique)
        self._leave_out_raw()
        self._schemas[dict[str, Any]] = {"$ref": _REF.format(name=QueueSettings.__name__)}
        self.components[QueueForm.__name__]["properties"]["settings"] = self._schemas[dict[str, Any]]

    def of(self, form: Any) -> dict[str, Any]:
        """The schema of a form. Settings may be given in part, so the code takes them as they come."""
        found = [self._schemas[part] for part in _parts(form)]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def properties(self, form: type[msgspec.Struct]) -> dict[str, Any]:
        """The schemas of the fields of a form."""
        found: dict[str, Any] = self.components[form.__name__]["properties"]
        return found

    def _leave_out_raw(self) -> None:
        """Forget the short cuts: what may be given as it is written looks like what it stands for."""
        for component in self.components.values():
            for field in component.get("properties", {}).values():
                if {} in field.get("anyOf", ()):
                    (form,) = [part for part in field.pop("anyOf") if part]
                    field.update(form)

    def _describe(self, forms: Sequence[Any]) -> None:
        """Say of each field what the code says of it."""
        for struct in _structs(forms):
            properties = self.components.get(struct.__name__, {}).get("properties", {})
            texts = field_texts(struct)
            named = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
            for name, text in ((named.get(name, name), text) for name, text in texts.items()):
                if name in properties:
                    properties[name].setdefault("description", text)


def _forms(route: Route) -> Iterator[Any]:
    yield from (form for form in (route.query, route.body, *route.answers.values()) if form is not None)


def _parts(form: Any) -> tuple[Any, ...]:
    """A union of forms as its parts."""
    return get_args(form) if get_origin(form) in (Union, UnionType) else (form,)


def _structs(forms: Sequence[Any]) -> Iterator[type[msgspec.Struct]]:
    """All structs that forms are made of."""
    seen = set[Any]()
    left = list(forms)
    while left:
        form = left.pop()
        if form in seen:
            continue
        seen.add(form)
        left.extend(part for part in get_args(form) if isinstance(part, type) or get_args(part))
        if isinstance(form, type) and issubclass(form, msgspec.Struct):
            left.extend(field.type for field in msgspec.structs.fields(form))
            yield form


def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The string below each field of a class and of those that it extends."""
    texts: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if not issubclass(kind, msgspec.Struct) or kind is msgspec.Struct:
            continue
        (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
        assert isinstance(tree, ast.ClassDef)
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                texts[statement.target.id] = inspect.cleandoc(str(following.value.value)).replace("\n", " ")
    return texts


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route, schemas),
    }
    parameters = [*_path_parameters(route), *_query_parameters(route, schemas), *_header_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _request_body(route, schemas)
    if route.scope is not None:
        operation["description"] = f"Needs a key with the scope `{route.scope}`, where the server has keys."
        operation["security"] = [{}, {"key": []}]
    return operation


def operation_id(route: Route) -> str:
    """A name for the operation, by which programs call it."""
    words = [word for word in re.split(r"[^a-z0-9]+", route.path.removeprefix("/v1")) if word]
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(route.path):
        schema, text = _PARAMETERS[name]
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": schema,
            "example": PATHS[name],
        }


def _query_parameters(route: Route, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    if route.query is None:
        return
    for name, schema in schemas.properties(route.query).items():
        described = {key: value for key, value in schema.items() if key != "description"}
        parameter = {"name": name, "in": "query", "required": False, "schema": described}
        if "description" in schema:
            parameter["description"] = schema["description"]
        yield parameter


def _header_parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name, text in route.headers.items():
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string"},
        }


def _request_body(route: Route, schemas: _Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {media: _body_of(media, route, schemas) for media in route.media}
    example = BODIES.get((route.method, route.path))
    if example is not None:
        content[JSON]["example"] = example
    return {"required": not route.body_is_optional, "content": content}


def _body_of(media: str, route: Route, schemas: _Schemas) -> dict[str, Any]:
    if media == JSON:
        return {"schema": schemas.of(route.body)}
    texts = {
        NDJSON: "A message in each line, as in the array of the JSON form. Written in blocks as they come.",
        BLOCK: "One block, encoded.",
    }
    return {"schema": {"description": texts.get(media, "The same in MessagePack.")}}


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, form in route.answers.items():
        answer: dict[str, Any] = {
            "description": HTTPStatus(status).phrase,
            "headers": _headers(route, status),
        }
        if form is not None:
            answer["content"] = {media: _answer_of(media, form, schemas) for media in route.answer_media}
            example = ANSWERS.get((route.method, route.path))
            if example is not None and status == next(iter(route.answers)):
                answer["content"][JSON]["example"] = example
        found[str(status)] = answer
    for status in sorted({*_common(route), *route.problems}):
        if str(status) not in found:
            found[str(status)] = {"$ref": f"#/components/responses/{_problem_name(status)}"}
        else:
            content = _problem(status)["content"]
            found[str(status)]["content"] = {**found[str(status)]["content"], **content}
    return dict(sorted(found.items()))


def _answer_of(media: str, form: Any, schemas: _Schemas) -> dict[str, Any]:
    if media == JSON and form == dict[str, Any]:
        return {"schema": {"type": "object"}}
    if media == JSON:
        return {"schema": schemas.of(form)}
    if media.startswith("text/"):
        return {"schema": {"type": "string"}}
    return {"schema": {"description": "The same in MessagePack."}}


def _common(route: Route) -> Iterator[int]:
    yield from _EVERYWHERE
    if route.scope is not None:
        yield from _WITH_KEY
    if route.body is not None:
        yield from _WITH_BODY
    if _PARAMETER.search(route.path):
        yield from (404, 413)  # a name may be longer than names are


def _headers(route: Route, status: int) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("The id of the request, yours if you gave one")}
    if route.path == _ETAGGED and route.method != "DELETE" and status in _WITH_ETAG:
        headers["ETag"] = _header("Names this state of the queue, for If-Match and If-None-Match")
    return headers


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}


def _problem_name(status: int) -> str:
    return f"Problem{status}"


def _problem(status: int) -> Mapping[str, Any]:
    headers = {"X-Request-Id": _header("The id of the request, also in the problem")}
    if status in _RETRY:
        headers["Retry-After"] = {
            "description": "Seconds to wait",
            "schema": {"type": "integer", "minimum": 1},
        }
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = _header("How to say who you are")
    return {
        "description": _PROBLEMS[status],
        "headers": headers,
        "content": {PROBLEM: {"schema": {"$ref": _REF.format(name="Problem")}}},
    }
