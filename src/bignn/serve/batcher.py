"""Questions that arrive while others are being answered, answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from bignn.serve.limits import RequestError

Question = TypeVar("Question")
Reply = TypeVar("Reply")


class Batcher(Generic[Question, Reply]):
    """Collects questions while a thread answers the ones before, and hands them over at once.

    A question that finds the thread free waits for nobody; the more there are, the more share a
    call.

    Attributes:
        calls: calls of the function so far.
        questions: questions that they answered.

    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], Sequence[Reply | Exception]],
        executor: Executor,
        most_waiting: int,
    ) -> None:
        self._answer, self._executor, self._most = answer, executor, most_waiting
        self._waiting: list[tuple[Question, asyncio.Future[Reply]]] = []
        self._running: asyncio.Task[None] | None = None
        self.calls = self.questions = 0

    async def ask(self, question: Question) -> Reply:
        """Return the answer to a question, or raise what it was answered with."""
        if len(self._waiting) >= self._most:
            raise RequestError(503, f"{self._most} requests are waiting already; try again later")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            self.calls += 1
            self.questions += len(batch)
            try:
                replies = await loop.run_in_executor(
                    self._executor, self._answer, [question for question, _ in batch]
                )
            except Exception as error:
                replies = [error] * len(batch)
            for (_, future), reply in zip(batch, replies, strict=True):
                if future.cancelled():  # whoever asked has gone
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        self._running = None
