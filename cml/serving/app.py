"""The routes of the service: ``/search``, ``/health``, ``/metrics``, and ``/docs`` to try them in a browser."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from cml.data.input_form import InputForm
from cml.serving.answer import Result, Searcher
from cml.serving.docs_page import add_docs_page
from cml.serving.query import Limits, Refusal, read_query
from cml.serving.worker import Worker, log
from cml.version import __version__

_BUSY = "The service is busy; ask again later."


class Found(BaseModel):
    """An item that was found."""

    id: str
    label: Any = None
    distance: float
    columns: dict[str, Any] = {}
    expected: float | None = None
    low: float | None = None
    high: float | None = None


class Neighbours(BaseModel):
    """What was found for an input, nearest first."""

    novelty: float | None = None
    found: list[Found]


class SearchAnswer(BaseModel):
    """What was found for each input of a request."""

    unit: str | None = None
    level: float | None = None
    results: list[Neighbours]


class Fault(BaseModel):
    """Why a request was not answered."""

    detail: str


class Metrics:
    """What ``/metrics`` tells, as Prometheus reads it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("cml_requests", "Searches by status", ["status"], registry=self._registry)
        self.seconds = Histogram("cml_request_seconds", "Seconds from a request to its answer", registry=self._registry)
        sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.batch = Histogram("cml_batch_inputs", "Inputs of a batch", buckets=sizes, registry=self._registry)
        self.waiting = Gauge("cml_waiting", "Requests being read or waiting", registry=self._registry)
        self.held = Gauge("cml_held_bytes", "Bytes of requests being read or waiting", registry=self._registry)
        levels = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
        self.novelty = Histogram("cml_novelty", "Novelty of inputs", buckets=levels, registry=self._registry)

    def page(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)


class Service:
    """Searches by HTTP, within limits."""

    def __init__(self, searcher: Searcher, limits: Limits, k: int) -> None:
        self.searcher, self.limits, self.k = searcher, limits, k
        self.metrics = Metrics()
        self.worker = Worker(searcher.answer, limits, self.metrics.batch.observe)
        self.held = self.waiting = 0

    async def search(self, request: Request, k: int | None, within: float | None) -> Response:
        """Answer a request to ``/search``."""
        began, status = time.monotonic(), 500
        if self.waiting >= self.limits.waiting:
            self.metrics.requests.labels(503).inc()
            raise HTTPException(503, _BUSY)
        self.waiting += 1
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self._read(request, body)
                kind = request.headers.get("content-type", "")
                k = self.k if k is None else k
                query = read_query(bytes(body), kind, self.searcher.form, self.limits, k, within)
                if within is not None and self.searcher.calibration is None:
                    raise Refusal(400, "'within' needs a calibrated run (cml calibrate).")
                results = await self.worker.ask(query)
            status = 200
            return self._answer(results)
        except Refusal as refusal:
            status = refusal.status
            raise HTTPException(status, refusal.reason) from None
        except TimeoutError:
            status = 503
            seconds = self.limits.seconds
            raise HTTPException(status, f"There was no answer within {seconds:g} seconds; ask again later.") from None
        except asyncio.CancelledError:  # the service ends, and has waited for as long as it may
            status = 503
            raise HTTPException(status, "The service ends; ask again later.") from None
        except ClientDisconnect:
            status = 400
            return Response(status_code=status)  # which nobody reads
        except Exception as error:
            log.debug("a request failed", exc_info=error)  # the worker has written its line
            raise HTTPException(status, "The search failed; the log of the service says why.") from None
        finally:
            self.waiting -= 1
            self.held -= len(body)
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(time.monotonic() - began)

    def refuse(self, reason: str) -> HTTPException:
        """Count a request whose parameters are wrong, and say so."""
        self.metrics.requests.labels(400).inc()
        return HTTPException(400, reason)

    async def _read(self, request: Request, body: bytearray) -> None:
        most = self.limits.bytes
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated[:20]) > most:
            raise Refusal(413, f"A request may have {most:,} bytes.")
        async for part in request.stream():
            body += part
            self.held += len(part)
            if len(body) > most:
                raise Refusal(413, f"A request may have {most:,} bytes.")
            if self.held > self.limits.held:
                raise Refusal(503, _BUSY)

    def _answer(self, results: list[Result]) -> Response:
        for result in results:
            if result["novelty"] is not None:
                self.metrics.novelty.observe(result["novelty"])
        calibration = self.searcher.calibration
        meaning = {} if calibration is None else {"unit": calibration.unit, "level": calibration.level}
        text = json.dumps({**meaning, "results": results}, allow_nan=False)  # ASCII: not all names of files are Unicode
        return Response(text, media_type="application/json")

    async def health(self) -> dict[str, Any]:
        """Whether the service answers: the number of items, and what the model takes."""
        try:
            items = await asyncio.to_thread(len, self.searcher)
        except Exception as error:
            raise HTTPException(503, f"The index cannot be read: {error}") from None
        if not self.worker.is_alive:
            raise HTTPException(503, "The worker does not answer; start the service again.")
        return {"items": items, "inputs": str(self.searcher.form), "waiting": self.waiting, "version": __version__}

    def measure(self) -> Response:
        """The page of metrics."""
        self.metrics.waiting.set(self.waiting)
        self.metrics.held.set(self.held)
        return Response(self.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def create_app(searcher: Searcher, limits: Limits, k: int = 5) -> FastAPI:
    """Create the application, for uvicorn or another ASGI server."""
    service = Service(searcher, limits, k)

    @contextlib.asynccontextmanager
    async def live(app: FastAPI) -> AsyncIterator[None]:
        service.worker.start()
        yield
        await service.worker.end()

    app = FastAPIOffline(
        docs_url=None,
        redoc_url=None,
        title="cml search",
        version=__version__,
        description=f"Items of an index that are nearest to {searcher.form}.",
        lifespan=live,
    )
    app.state.service = service
    add_docs_page(app)
    faults: dict[int | str, dict[str, Any]] = {status: {"model": Fault} for status in (400, 413, 415, 500, 503)}
    body = {"requestBody": {"required": True, "content": _describe_body(searcher.form)}}

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> Response:
        """Answer a parameter that is out of range as any other fault of a request."""
        fault = error.errors()[0]
        refusal = service.refuse(f"The parameter {fault['loc'][-1]!r}: {fault['msg']}.")
        return JSONResponse({"detail": refusal.detail}, refusal.status_code)

    @app.post("/search", responses={200: {"model": SearchAnswer}, **faults}, openapi_extra=body)
    async def search(
        request: Request,
        k: Annotated[int | None, Query(ge=1, le=limits.found, description="Items found for each input.")] = None,
        within: Annotated[
            float | None,
            Query(ge=0, allow_inf_nan=False, description="Only items whose expected label distance is at most this."),
        ] = None,
    ) -> Response:
        """Find the items of the index that are nearest to the inputs in the body."""
        unknown = sorted(set(request.query_params) - {"k", "within"})
        if unknown:
            raise service.refuse(f"There is no parameter {unknown[0]!r}; the parameters are k and within.")
        return await service.search(request, k, within)

    @app.get("/health", responses={503: {"model": Fault}})
    async def health() -> dict[str, Any]:
        """Tell whether the service answers."""
        return await service.health()

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Count requests, seconds, batches and novelty, as Prometheus reads them."""
        return service.measure()

    return app


def _describe_body(form: InputForm) -> dict[str, Any]:
    """The body of a search, as OpenAPI describes it."""
    if form.kind == "images":
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    texts = form.kind == "texts"
    name = "texts" if texts else "vectors"
    item: dict[str, Any] = {"type": "string"} if texts else {"type": "array", "items": {"type": "number"}}
    schema = {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": item}}}
    return {"application/json": {"schema": schema}}
