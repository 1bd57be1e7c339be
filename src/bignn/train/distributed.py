"""Several processes that train one model: who is there, and what they tell each other.

``torchrun`` starts the processes and tells each its rank; a process alone is a world of one, where
everything here does nothing. Each process has the whole model and a share of the loss; gradients
are added up, so that the processes compute what one would on the union of their batches (but for
batch normalisation of sampled batches, which each takes of its own).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.kernels.random import random_word

T = TypeVar("T")

#: How long a process waits for another that is alive but does not come. One that died is noticed
#: at once, by its closed connection.
TIMEOUT = timedelta(minutes=5)
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LostError(InputError):
    """Another process of the world ended, so this one cannot go on."""


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them."""

    rank: int = 0
    size: int = 1

    @property
    def is_leader(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """Its part of any sequence that all processes have: no two overlap, all are covered."""
        return slice(self.rank, None, self.size)

    def gathered(self, *values: float) -> list[list[float]]:
        """What each process passed, in the order of ranks; whole numbers up to 2^53 are exact."""
        mine = [float(value) for value in values]
        if self.size == 1:
            return [mine]
        # Over NCCL alone, as a caller may have it, only tensors on a GPU can be sent.
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        sent = torch.tensor(mine, dtype=torch.float64, device=device)
        theirs = [torch.empty_like(sent) for _ in range(self.size)]
        with self._talking():
            torch.distributed.all_gather(theirs, sent)
        return [row.tolist() for row in theirs]

    def totals(self, *values: float) -> list[float]:
        """The sum over processes of each value: the same to the last bit for all of them."""
        return [sum(column) for column in zip(*self.gathered(*values), strict=True)]

    def parts(self, *counts: float) -> list[float]:
        """What part of the total over processes each of this one's counts is; 0 of nothing."""
        totals = self.totals(*counts)
        return [mine / all_ if all_ else 0.0 for mine, all_ in zip(counts, totals, strict=True)]

    def wait(self) -> None:
        """Until all are here."""
        self.gathered(0)

    def in_step(self, pieces: Iterable[T]) -> Iterator[T | None]:
        """Its own pieces, then None for as long as another process has more."""
        remaining = iter(pieces)
        while True:
            piece = next(remaining, None)
            if self.totals(piece is not None) == [0]:
                return
            yield piece

    @contextmanager
    def own_numbers(self, device: torch.device, *occasion: int) -> Iterator[None]:
        """Torch's generators are this process's own inside, and as they were after.

        For dropout of batches that differ. They are seeded by the occasion (the run's seed, the
        epoch, the step) and the rank. Outside, all processes draw the same: the order of an epoch
        is one for all, and one generator state is enough to resume.
        """
        if self.size == 1:
            yield
            return
        word = 0
        for number in (*occasion, self.rank):
            word = random_word(word, number)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(word)
            yield

    @torch.no_grad()
    def add_gradients(self, model: nn.Module) -> None:
        """Every gradient becomes the sum over all processes; one that nobody has stays None.

        One flat vector per dtype, not torch's DistributedDataParallel: that averages with equal
        weights, wants a gradient of every parameter in every process, and wraps the model, whose
        own methods batches ask for. Models this small leave nothing to overlap.
        """
        if self.size == 1:
            return
        kinds: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                kinds.setdefault(parameter.dtype, []).append(parameter)
        for parameters in kinds.values():
            parts = [
                (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters
            ]
            there = torch.tensor([p.grad is not None for p in parameters]).to(parts[0])
            flat = torch.cat([*parts, there])
            with self._talking():
                torch.distributed.all_reduce(flat)
            *summed, there = flat.split([*(p.numel() for p in parameters), len(parameters)])
            for parameter, gradient, found in zip(parameters, summed, there.tolist(), strict=True):
                parameter.grad = gradient.view_as(parameter) if found else None

    @torch.no_grad()
    def follow_leader(self, tensors: Iterable[Tensor]) -> None:
        """Gives all processes the leader's values. What is equal already is not touched, so that
        whatever was remembered of it stays valid.
        """
        tensors = list(tensors)
        if self.size == 1 or not tensors:
            return
        # As bytes: any dtype, in one message.
        mine = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors]
        flat = torch.cat(mine)
        with self._talking():
            torch.distributed.broadcast(flat, src=0)
        for tensor, own, leaders in zip(
            tensors, mine, flat.split([len(m) for m in mine]), strict=True
        ):
            if not torch.equal(own, leaders):
                # A copy, since a view as a larger type must begin at a multiple of its size.
                tensor.copy_(leaders.clone().view(tensor.dtype).view_as(tensor))

    def differ(self, text: str) -> bool:
        """Whether the processes passed different texts."""
        fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])  # exact as float
        return len({row[0] for row in self.gathered(fingerprint)}) > 1

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Torch's errors while processes talk, in one line."""
        try:
            yield
        except RuntimeError as error:
            raise LostError(
                f"process {self.rank} of {self.size} lost the others: one of them ended or did not "
                f"answer for {TIMEOUT.seconds // 60} minutes ({_first_sentence(error)}); see what "
                "it said last, and go on with --resume"
            ) from error


def _first_sentence(error: Exception) -> str:
    """Of torch's message, without the place in its source."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\[[^\]]*\] *", "", line).split(". ")[0][:200]


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started as one of several."""
    if any(name not in environment for name in _VARIABLES):
        return False
    return environment["WORLD_SIZE"] != "1"


def leads() -> bool:
    """Whether this process is the leader, joined or not."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def own_device(name: str) -> torch.device:
    """The device of that name, if it can be used; ``"cuda"`` is each process's own GPU."""
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise input_error("device", "'cpu', 'cuda' or 'cuda:N'", repr(name))
    if kind == "cpu":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise input_error(
            "device", "'cpu' here", repr(name), "torch sees no CUDA GPU on this machine"
        )
    count = torch.cuda.device_count()
    if index:
        if int(index) >= count:
            there = "'cuda:0'" if count == 1 else f"'cuda:0' to 'cuda:{count - 1}'"
            raise input_error("device", there, repr(name), "this machine has no other GPU")
    elif under_torchrun():
        # By the number of processes, not this one's rank: all say the same.
        if int(os.environ["LOCAL_WORLD_SIZE"]) > count:
            got = f"{count} for {os.environ['LOCAL_WORLD_SIZE']} processes"
            raise input_error("device", "a GPU per process", got, "lower --nproc-per-node")
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device(name)


def current(device: torch.device) -> World:
    """The world this process is in, joined if ``torchrun`` asks for it and nobody has yet."""
    if not torch.distributed.is_available():
        if under_torchrun():
            raise InputError("this torch was built without torch.distributed; start one process")
        return World()
    if not torch.distributed.is_initialized():
        if not under_torchrun():
            return World()
        _join(device)
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size())


def _join(device: torch.device) -> None:
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"  # counts stay on the host
    try:
        torch.distributed.init_process_group(backend, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
        raise LostError(
            f"process {rank} of {size} cannot join the others ({_first_sentence(error)}); "
            "start all of them by one torchrun"
        ) from error
    atexit.register(leave)


def leave() -> None:
    """Closes the connections to the others, if there are any."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


#: How long the leader has the first word about an error that all processes met, in seconds.
_FIRST_WORD = 5.0


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The world, for a command: left at the end, and any process that fails or is told to end
    (``torchrun`` does so when another one died) says why in one line, or leaves it to the leader.
    """
    if not under_torchrun():
        yield World()
        return
    ending = _Ending()
    try:
        yield current(own_device(device))
    except BaseException as error:
        atexit.unregister(leave)  # it might wait for those who are gone
        if isinstance(error, LostError) or leads():
            ending.when_told = "finish"
            raise
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(130) from error
        # Most errors are the same in all processes, and torchrun ends the others when the leader
        # has told its own; one that is this process's alone is told a moment later.
        ending.when_told = "vanish"
        time.sleep(_FIRST_WORD)
        ending.when_told = "finish"
        raise
    leave()
    ending.close()


class _Ending:
    """SIGTERM becomes a :class:`LostError`; if Python does not get to raise it, since the process
    waits inside a library, a thread ends the process a few seconds later.
    """

    _PATIENCE = 3.0

    def __init__(self) -> None:
        self.when_told: Literal["raise", "finish", "vanish"] = "raise"
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.signal(signal.SIGTERM, self._told)
        # The signal's number is written as it comes, whatever Python is doing.
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, daemon=True).start()

    def _told(self, *_: Any) -> None:
        if self.when_told == "vanish":
            os._exit(1)
        if self.when_told == "raise":
            raise LostError(self._line())

    @staticmethod
    def _line() -> str:
        return (
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} was told to end, as when "
            "another one died; see what that said last, and go on with --resume"
        )

    def _watch(self) -> None:
        while received := os.read(self._reading, 1):
            if received[0] == signal.SIGTERM:
                time.sleep(self._PATIENCE)
                if self.when_told == "raise":
                    os.write(2, f"bignn: error: {self._line()}\n".encode())
                os._exit(1)
        os.close(self._reading)

    def close(self) -> None:
        """Undoes it."""
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGTERM, self._before)
        os.close(self._writing)
