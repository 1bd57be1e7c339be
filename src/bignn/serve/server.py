"""The process: a socket, uvicorn behind it, and what happens at its beginning and its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bignn.errors import InputError, input_error
from bignn.serve.app import make_app
from bignn.serve.limits import Limits
from bignn.serve.service import Service

#: Bytes of a request's line and headers at most.
_MOST_HEAD = 1 << 16
#: Time after which a thread that waits for Python's lock gets it.
_SWITCH_SECONDS = 0.0005


def listen(host: str, port: int) -> socket.socket:
    """Open the socket; port 0 is any free one."""
    if not 0 <= port < 2**16:
        raise input_error("port", "in 0..65535", port)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol by its number: asyncio sends small packets at once (TCP_NODELAY) only where
        # it is told, and an answer's head and body are two of them.
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}") from None


def address_of(listening: socket.socket) -> str:
    """Return the address that a client calls."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(service: Service, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; accepted requests are answered, then the graph is closed."""
    config = uvicorn.Config(
        make_app(service),
        http=_protocol(service.limits),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=service.limits.connections,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=max(1, round(service.limits.stop_seconds)),
    )
    # Threads that compute ask for Python's lock often and briefly, and a busy event loop would keep
    # them waiting for 5 ms every time: an update of one edge took twice as long.
    sys.setswitchinterval(_SWITCH_SECONDS)
    _Server(config, ready).run([listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which reports when it is ready, and ends well after a signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and tell."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals for a wish to end; the process then ends by itself, with exit code 0."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _protocol(limits: Limits) -> Any:
    """Make uvicorn's HTTP protocol, with bounds on the heads of requests."""
    base: Any = AutoHTTPProtocol

    class BoundedProtocol(base):  # type: ignore[misc]
        """Cuts connections whose next request does not begin in time, or has too long a head.

        uvicorn waits for the first request, and for the rest of one that has begun, as long as the
        client likes.
        """

        _timer: asyncio.TimerHandle | None = None
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            is_answering = self._is_answering()
            super().data_received(data)
            if is_answering or self._is_answering():
                self._stop_timer()
                self._head_bytes = 0
                return
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD:
                self._cut()
            elif self._timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _start_timer(self) -> None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.seconds, self._cut)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _cut(self) -> None:
            self._timer = None
            if not self._is_answering():
                self.transport.abort()

    return BoundedProtocol
