"""What a request may ask for at most, and what the answer to one beyond it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on requests; one beyond them is refused, whoever sent it.

    Attributes:
        body_bytes: bytes of a request's body.
        nodes: nodes of one request that are predicted, in the graph or new.
        changes: nodes and edges that one update names.
        waiting: requests that wait for a thread; further ones are told to come back.
        connections: connections that are open at once.
        seconds: time for the head of a request to arrive, and once more for its body.
        stop_seconds: time for accepted requests to end when the service is stopped.

    """

    body_bytes: int = 16 << 20
    nodes: int = 10_000
    changes: int = 10_000
    waiting: int = 256
    connections: int = 1_000
    seconds: float = 10.0
    stop_seconds: float = 30.0


class RequestError(Exception):
    """A request that is not answered: the HTTP status, and one line that says why.

    Attributes:
        status: 4xx, or 503 where the service is busy.
        closes: whether the connection cannot be used again, since part of a request is on it.

    """

    def __init__(self, status: int, line: str, *, closes: bool = False) -> None:
        super().__init__(line)
        self.status = status
        self.closes = closes


def check_count(what: str, count: int, most: int) -> None:
    """Refuse a request that names too many of something."""
    if count > most:
        raise RequestError(
            413, f"a request may name {most:,} {what} at most, got {count:,}; send several"
        )
