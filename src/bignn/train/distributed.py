"""Several processes that train one model: which there are, and what they send each other.

``torchrun`` starts the processes and gives each its rank; a process alone is a world of one, where
everything here does nothing. Each process has the whole model and a share of the loss; gradients
are added up, so that the processes compute what one would on the union of their batches (but for
batch normalisation of sampled batches, which each process takes from its own).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.kernels.random import random_word

T = TypeVar("T")

#: Seconds that a process waits for another that is alive but does not answer, as one behind a link
#: that was cut. A process that died is noticed at once, by its closed connection.
TIMEOUT = 300.0
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class LostProcessError(InputError):
    """The error of a process that cannot continue, since another one of its world ended."""


@dataclass(frozen=True)
class World:
    """The processes that train together, seen from one of them.

    Attributes:
        rank: this process's number.
        size: how many there are.
        is_joined: whether torch connects them, which it may a process alone, too.

    """

    rank: int = 0
    size: int = 1
    is_joined: bool = False

    @property
    def is_connected(self) -> bool:
        """Whether rows of parts go through torch.distributed, those for this process itself too."""
        return self.is_joined or self.size > 1

    @property
    def is_leader(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    @property
    def share(self) -> slice:
        """Every ``size``-th place from ``rank`` on: this process's part of any sequence."""
        return slice(self.rank, None, self.size)

    def gather(self, *values: float) -> list[list[float]]:
        """Return the values of each process, by rank; whole numbers up to 2^53 are exact."""
        mine = [float(value) for value in values]
        if self.size == 1:
            return [mine]
        # Over NCCL alone, as a caller may have it, only tensors on a GPU can be sent.
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        sent = torch.tensor(mine, dtype=torch.float64, device=device)
        theirs = [torch.empty_like(sent) for _ in range(self.size)]
        with self.communicating():
            torch.distributed.all_gather(theirs, sent)
        return [row.tolist() for row in theirs]

    def totals(self, *values: float) -> list[float]:
        """Sum each value over all processes; all get the same to the last bit."""
        return [sum(column) for column in zip(*self.gather(*values), strict=True)]

    def fractions(self, *counts: float) -> list[float]:
        """Divide each count by its total over all processes; 0 where the total is 0."""
        totals = self.totals(*counts)
        return [mine / all_ if all_ else 0.0 for mine, all_ in zip(counts, totals, strict=True)]

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        self.gather(0)

    def pad_batches(self, batches: Iterable[T]) -> Iterator[T | None]:
        """Yield this process's batches, then None for as long as another process has more."""
        remaining = iter(batches)
        while True:
            batch = next(remaining, None)
            if self.totals(batch is not None) == [0]:
                return
            yield batch

    @contextmanager
    def seeded_by_rank(self, device: torch.device, *numbers: int) -> Iterator[None]:
        """Seed torch's generators by the rank inside the block and restore them after it.

        For dropout of batches that differ between processes. The seed is made of ``numbers`` (the
        run's seed, the epoch, the step) and the rank. Outside, all processes draw the same: the
        order of an epoch is one for all, and one generator state is enough to resume.
        """
        if self.size == 1:
            yield
            return
        word = 0
        for number in (*numbers, self.rank):
            word = random_word(word, number)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(word)
            yield

    @torch.no_grad()
    def sum_gradients(self, model: nn.Module) -> None:
        """Sum every gradient over all processes; one that no process has stays None.

        One flat vector per dtype, not torch's DistributedDataParallel: that averages with equal
        weights, wants a gradient of every parameter in every process, and wraps the model, whose
        own methods batches call. Models this small leave nothing to overlap.
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
            exists = torch.tensor([p.grad is not None for p in parameters]).to(parts[0])
            flat = torch.cat([*parts, exists])
            with self.communicating():
                torch.distributed.all_reduce(flat)
            *summed, exists = flat.split([*(p.numel() for p in parameters), len(parameters)])
            for parameter, gradient, found in zip(parameters, summed, exists.tolist(), strict=True):
                parameter.grad = gradient.view_as(parameter) if found else None

    @torch.no_grad()
    def copy_from_leader(self, tensors: Iterable[Tensor]) -> None:
        """Copy the leader's values into the tensors of all processes.

        Tensors that are equal already are not touched, so that caches made from them stay valid.
        """
        tensors = list(tensors)
        if self.size == 1 or not tensors:
            return
        # As bytes: any dtype, in one message.
        mine = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors]
        flat = torch.cat(mine)
        with self.communicating():
            torch.distributed.broadcast(flat, src=0)
        for tensor, own, leaders in zip(
            tensors, mine, flat.split([len(m) for m in mine]), strict=True
        ):
            if not torch.equal(own, leaders):
                # A copy, since a view as a larger type must begin at a multiple of its size.
                tensor.copy_(leaders.clone().view(tensor.dtype).view_as(tensor))

    def check_same(self, what: Mapping[str, str], fix: str = "give all of them the same") -> None:
        """Refuse texts that are not the same in all processes; ``what`` names each."""
        if different := [name for name, text in what.items() if self.differs(text)]:
            raise InputError(f"the processes differ in {' and '.join(different)}; {fix}")

    def differs(self, text: str) -> bool:
        """Return whether the processes passed different texts."""
        fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])  # exact as float
        return len({row[0] for row in self.gather(fingerprint)}) > 1

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Turn torch's errors of communication into one line."""
        try:
            yield
        except RuntimeError as error:
            raise LostProcessError(
                f"process {self.rank} of {self.size} lost the others: one of them ended or did not "
                f"answer for {TIMEOUT:g} s ({_first_sentence(error)}); see the last line of that "
                "process and the link to it, and run the same again (bignn train: with --resume)"
            ) from error


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of torch's message, without the place in torch's source."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\[[^\]]*\] *", "", line).split(". ")[0][:200]


def under_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``torchrun`` started this process as one of several."""
    if any(name not in environment for name in _VARIABLES):
        return False
    return environment["WORLD_SIZE"] != "1"


def is_leader() -> bool:
    """Return whether this process is the leader, even before it has joined the others."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def resolve_device(name: str) -> torch.device:
    """Return the device of a name if it can be used; ``"cuda"`` is each process's own GPU."""
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
        # By the number of processes, not this one's rank: the error is then the same in all.
        if int(os.environ["LOCAL_WORLD_SIZE"]) > count:
            got = f"{count} for {os.environ['LOCAL_WORLD_SIZE']} processes"
            raise input_error("device", "a GPU per process", got, "lower --nproc-per-node")
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device(name)


def current_world(device: torch.device) -> World:
    """Return this process's world; joins it first if ``torchrun`` started the process."""
    if not torch.distributed.is_available():
        if under_torchrun():
            raise InputError("this torch was built without torch.distributed; start one process")
        return World()
    if not torch.distributed.is_initialized():
        if not under_torchrun():
            return World()
        _join(device)
    size = torch.distributed.get_world_size()
    return World(torch.distributed.get_rank(), size, is_joined=True)


def _join(device: torch.device) -> None:
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"  # counts stay on the host
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    patience = timedelta(seconds=TIMEOUT)
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=patience)))
        # After a restart torchrun's store may still have the addresses of those that died.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"bignn attempt {attempt}", store)
        torch.distributed.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=patience
        )
    except (RuntimeError, ValueError) as error:
        raise LostProcessError(
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} cannot join the others "
            f"({_first_sentence(error)}); start all of them by one torchrun"
        ) from error
    atexit.register(leave)


def leave() -> None:
    """Close the connections to the other processes, if there are any."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def end_process(code: int) -> None:
    """End a process of several at once; one that is alone goes on.

    Torch's threads may abort a process while its interpreter is taken down: those that still wait
    for a lost process, and now and then those of a run that ended well, which ``torchrun`` would
    then take for a failure.
    """
    if under_torchrun():
        with suppress(OSError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


#: Seconds by which the leader is first to report an error that all processes met.
_LEADER_HEAD_START = 5.0


@contextmanager
def joined_world(device: str, timeout: float | None = None) -> Iterator[World]:
    """Join the other processes for the length of a command, and leave them at its end.

    ``timeout`` replaces :data:`TIMEOUT`. A process that fails, or that ``torchrun`` ends because
    another one died, reports why in one line, unless the leader reports the same error.
    """
    global TIMEOUT
    if timeout is not None:
        if not timeout > 0:
            raise input_error("timeout", "seconds, more than 0", timeout)
        TIMEOUT = timeout
    if not under_torchrun():
        yield World()
        return
    handler = _SigtermHandler()
    try:
        yield current_world(resolve_device(device))
    except BaseException as error:
        atexit.unregister(leave)  # it might wait for those who are gone
        lost = error if isinstance(error, LostProcessError) else handler.raised
        if lost is not None:
            atexit.register(end_process, 1)
        if lost is not None or is_leader():
            handler.action = "finish"
            if lost is None or lost is error:
                raise
            raise lost from None  # what ran when the signal came turned its error into another one
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(130) from error
        # Most errors are the same in all processes, and torchrun ends the others when the leader
        # has reported it; an error of this process alone is reported a moment later.
        handler.action = "exit"
        time.sleep(_LEADER_HEAD_START)
        handler.action = "finish"
        raise
    leave()
    handler.close()


class _SigtermHandler:
    """Turns SIGTERM into a :class:`LostProcessError`.

    If Python does not get to raise it, since the process waits inside a library, a thread ends the
    process a few seconds later.

    Attributes:
        action: what SIGTERM does: ``"raise"`` the error, let the process ``"finish"`` what it
            reports already, or ``"exit"`` without a line.
        raised: the error that SIGTERM has raised; None before.

    """

    _PATIENCE = 3.0

    def __init__(self) -> None:
        self.action: Literal["raise", "finish", "exit"] = "raise"
        self.raised: LostProcessError | None = None
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
        # The signal's number is written as it comes, whatever Python is doing.
        self._wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _on_sigterm(self, *_: Any) -> None:
        if self.action == "exit":
            os._exit(1)
        if self.action == "raise":
            self.raised = LostProcessError(self._line())
            raise self.raised

    @staticmethod
    def _line() -> str:
        return (
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} was ended, as when "
            "another one died; see the last line of that one, and run the same again (bignn train: "
            "with --resume)"
        )

    def _watch(self) -> None:
        while received := os.read(self._reading, 1):
            if received[0] == signal.SIGTERM:
                time.sleep(self._PATIENCE)
                if self.action == "raise":
                    os.write(2, f"bignn: error: {self._line()}\n".encode())
                os._exit(1)
        os.close(self._reading)

    def close(self) -> None:
        """Restore the previous handler of SIGTERM."""
        signal.set_wakeup_fd(self._wakeup)
        signal.signal(signal.SIGTERM, self._before)
        os.close(self._writing)
        self._watcher.join(1.0)  # not to be alive while the interpreter is taken down
