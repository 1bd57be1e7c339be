"""The routes: requests to questions, answers to responses, errors to one line each."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bignn.errors import InputError, WriteError, printable
from bignn.graph.names import Names
from bignn.runtime.live.new_answers import NewQuestion
from bignn.runtime.predicted_values import OF_CLASSES, Output
from bignn.serve import messages
from bignn.serve.limits import Limits, RequestError, check_count
from bignn.serve.messages import (
    Answer,
    edges_of,
    features_of,
    nodes_of,
    type_in_words,
    weights_of,
)
from bignn.serve.served_graph import ServedGraph
from bignn.serve.service import Predictions, Service

logger = logging.getLogger("bignn.serve")

Endpoint = Callable[[Request], Awaitable[Response]]

_OF_PREDICT = ("nodes", "output")
_OF_NEW = ("x", "edges", "edge_weight", "output")
_OF_UPDATE = (
    *("nodes", "x", "add_nodes", "remove_nodes"),
    *("remove_edges", "add_edges", "edge_weight"),
)
#: Bodies from here on are read in a thread, so that other requests do not wait for it.
_LARGE_BODY = 1 << 16
#: How the answer's field is called, where it is not the output's own name.
_COLUMNS = {"label_probabilities": "probabilities"}


def make_app(service: Service) -> Starlette:
    """Make the ASGI application of a service; it closes the service when it is shut down."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await service.close()

    async def predict(request: Request) -> Response:
        fields: dict[str, Any] = {}
        if request.method == "POST":
            fields = await _fields(request, service.limits, _OF_PREDICT, ("output",))
        elif text := ",".join(_parameters(request, _OF_PREDICT).getlist("nodes")):
            fields = {"nodes": _ids(text, service.graph.node_names)}
        if fields.get("nodes") is None:
            raise RequestError(
                400, "'nodes' must be given: GET /predict?nodes=0,5,9, or in the body"
            )
        nodes, output = nodes_of("nodes", fields["nodes"]), _output(request, fields)
        found = await service.predict(nodes, output)
        return _answered(request, service.graph, found)

    async def predict_new(request: Request) -> Response:
        fields = await _fields(request, service.limits, _OF_NEW, ("output",))
        x = features_of("x", fields.get("x"), service.graph.model.num_features)
        if x is None:
            raise RequestError(400, "'x' must be given: a row of features for each new node")
        num_new = _num_rows(x.shape)
        edges = edges_of("edges", fields.get("edges"))
        if edges is None:
            edges = np.empty((2, 0), dtype=np.int64)
        weights = weights_of("edge_weight", fields.get("edge_weight"))
        check_count("new nodes", num_new, service.limits.nodes)
        check_count("edges", edges.size // 2, service.limits.changes)
        question, output = NewQuestion(x, edges, weights), _output(request, fields)
        found = await service.predict_new(question, output)
        return _answered(request, service.graph, found)

    async def update(request: Request) -> Response:
        fields = await _fields(request, service.limits, _OF_UPDATE)
        changes = _changes(fields, service.graph.model.num_features, service.limits)
        done = await service.update(changes)
        gives_classes = service.graph.model.output in OF_CLASSES
        columns = (
            service.graph.named(done.nodes, done.classes)
            if gives_classes
            else service.graph.named(done.come_and_gone(), None)
        )
        added = list(range(done.num_nodes - done.num_added, done.num_nodes))
        about = {"added": added, "num_nodes": done.num_nodes}
        return _written(request, Answer("changed", columns, about))

    async def health(_: Request) -> Response:
        return JSONResponse(service.state(), 503 if service.failed else 200)

    async def metrics(_: Request) -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(service.metrics_text(), headers={"content-type": kind})

    async def page(_: Request) -> Response:
        html, policy = _page()
        headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
        return Response(html, media_type="text/html", headers=headers)

    def route(path: str, endpoint: Endpoint, *methods: str) -> Route:
        counted = _counted(service, path.removeprefix("/") or "page", endpoint)
        return Route(path, counted, methods=methods)

    return Starlette(
        routes=[
            route("/predict", predict, "GET", "POST"),
            route("/predict_new", predict_new, "POST"),
            route("/update", update, "POST"),
            route("/health", health, "GET"),
            route("/metrics", metrics, "GET"),
            route("/", page, "GET"),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )


def _counted(service: Service, name: str, endpoint: Endpoint) -> Endpoint:
    """Answer every request, whatever happens, and count it."""

    async def respond(request: Request) -> Response:
        start = time.perf_counter()
        try:
            response = await endpoint(request)
        except RequestError as error:
            response = _error(error.status, error, closes=error.closes)
        except WriteError as error:
            response = _error(503, error)
        except InputError as error:
            response = _error(409 if str(error) == service.graph.why_fixed else 400, error)
        except ClientDisconnect:  # nobody is left to answer
            response = _error(400, "the client hung up", closes=True)
        except Exception:
            logger.exception("an error in %s", name)
            response = _error(500, "an error in the server; its log has more")
        service.metrics.add(name, response.status_code, time.perf_counter() - start)
        return response

    return respond


def _error(status: int, line: object, *, closes: bool = False) -> Response:
    headers = {"connection": "close"} if closes else {}
    if status == 503:
        headers["retry-after"] = "1"
    return JSONResponse({"error": " ".join(str(line).split())}, status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer requests for paths and methods that are not there."""
    assert isinstance(error, HTTPException)
    line = error.detail
    if error.status_code in (404, 405):
        asked = f"{printable(request.method, 20)} {printable(request.url.path, 80)}"
        known = (
            f"{' or '.join(sorted((route.methods or set()) - {'HEAD'}))} {route.path}"
            for route in request.app.routes
        )
        line = f"'{asked}' is not known; there are {', '.join(known)}"
    response = _error(error.status_code, line)
    response.headers.update(error.headers or {})
    return response


def _parameters(request: Request, known: tuple[str, ...]) -> QueryParams:
    """Return the parameters of a request's address; ``known`` are those that it may have."""
    given = request.query_params
    if unknown := sorted(set(given) - set(known)):
        has = f"has {', '.join(known)}" if known else "has no parameters"
        line = f"'{printable(unknown[0], 40)}' is not known here; the address {has}"
        raise RequestError(400, line)
    if (count := len(given.getlist("output"))) > 1:
        raise RequestError(400, f"'output' must be given once in the address, got {count} of them")
    return given


async def _fields(
    request: Request, limits: Limits, known: tuple[str, ...], parameters: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Read the fields of a request's body; its address may have ``parameters`` alone."""
    body = await _body(request, limits)
    _parameters(request, parameters)
    kind = request.headers.get("content-type", "")
    if len(body) < _LARGE_BODY:
        return messages.read(body, kind, known)
    return await asyncio.to_thread(messages.read, body, kind, known)


async def _body(request: Request, limits: Limits) -> bytes:
    """Read a request's body, unless it is too large or too slow."""
    most = limits.body_bytes
    large = RequestError(413, f"a body may have {most:,} bytes at most; send several", closes=True)
    declared = int(request.headers.get("content-length") or 0)
    waits = "100-continue" in request.headers.get("expect", "").lower()
    if declared > 2 * most or (waits and declared > most):
        raise large
    body, received = bytearray(), 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                received += len(chunk)
                # What is too large is read on for a while: a client that still writes when the
                # connection is cut would not see the answer.
                if received <= most:
                    body += chunk
                elif received > 2 * most:
                    raise large
    except TimeoutError:
        line = f"the body did not arrive within {limits.seconds:g} s"
        raise RequestError(408, line, closes=True) from None
    if received > most:
        raise large
    return bytes(body)


def _changes(fields: dict[str, Any], num_features: int, limits: Limits) -> dict[str, Any]:
    """Convert the fields of an update to the arguments of a live graph's."""
    made: dict[str, Any] = {
        name: features_of(name, fields.get(name), num_features) for name in ("x", "add_nodes")
    }
    count = 0 if made["add_nodes"] is None else _num_rows(made["add_nodes"].shape)
    for name in ("nodes", "remove_nodes"):
        made[name] = nodes_of(name, fields.get(name))
        count += 0 if made[name] is None else made[name].size
    for name in ("remove_edges", "add_edges"):
        made[name] = edges_of(name, fields.get(name))
        count += 0 if made[name] is None else made[name].size // 2
    made["edge_weight"] = weights_of("edge_weight", fields.get("edge_weight"))
    check_count("nodes and edges", count, limits.changes)
    return {name: value for name, value in made.items() if value is not None}


def _num_rows(shape: tuple[int, ...]) -> int:
    """Return how many nodes features are of; a flat list is of one."""
    return shape[0] if len(shape) == 2 else 1


def _ids(text: str, names: Names | None) -> list[int | str]:
    """Read names where the nodes have some, and numbers; what is both is a name."""
    return [_id(part, names) for part in text.split(",")]


def _id(part: str, names: Names | None) -> int | str:
    if names is not None and part in names:
        return part
    part = part.strip()
    if (names is None or part not in names) and re.fullmatch(r"-?\d{1,18}", part):
        return int(part)
    if names is None:
        raise RequestError(400, f"'nodes' must be ids such as 0,5,9, got '{printable(part, 40)}'")
    return part


def _output(request: Request, fields: dict[str, Any]) -> Output | None:
    """Return the output that is asked for; None for the model's usual one."""
    chosen: Any = fields.get("output") or request.query_params.get("output")
    if not chosen:
        return None
    if not isinstance(chosen, str):
        raise RequestError(400, f"'output' must be a name, got {type_in_words(chosen)}")
    return cast(Output, printable(chosen, 40))


def _answered(request: Request, graph: ServedGraph, found: Predictions) -> Response:
    columns = graph.named(found.nodes, found.classes)
    if found.values is not None:
        columns[_COLUMNS.get(found.output, found.output)] = found.values
    return _written(request, Answer("predictions", columns))


def _written(request: Request, answer: Answer) -> Response:
    headers = request.headers
    made, kind = messages.write(answer, headers.get("content-type", ""), headers.get("accept", ""))
    return Response(made, headers={"content-type": kind})


@cache
def _page() -> tuple[str, str]:
    """Return the page, and the policy that lets its own script and nothing else run."""
    html = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return html, (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
