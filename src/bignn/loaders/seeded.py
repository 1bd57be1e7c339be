"""A DataLoader whose batches each have a seed of their own, whichever process makes them.

The seed travels with the batch's numbers: an epoch draws one word from torch's generator, which
decides the order, and a batch's seed is a hash of that word and the batch's place in the epoch. So
batches are the same for any number of workers, persistent ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from bignn.errors import InputError, input_error
from bignn.kernels import native
from bignn.kernels.random import random_word

#: The epoch's word, the place in the epoch, and the number that is there.
Tagged = tuple[int, int, int]


class SeededLoader(DataLoader[Any]):
    """As torch's, but ``collate_fn`` gets a list of :data:`Tagged` numbers of the dataset's items.

    Args:
        dataset: something of a length; its items are not asked for.
        collate_fn: makes a batch of tagged numbers; see :func:`seed_and_numbers`.
        batch_size: numbers per batch.
        shuffle: in random order.
        sampler: gives the numbers, instead of all in order.
        generator: what to draw from instead of torch's global generator.
        share: the places of an epoch that this loader takes, as ``slice(rank, None, size)`` for one
            of ``size`` processes whose generators are alike; batches are made of these alone.
        worker_init_fn, kwargs: see torch's ``DataLoader``.

    """

    def __init__(
        self,
        dataset: Sized,
        *,
        collate_fn: Callable[[list[Tagged]], Any],
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Sampler[int] | None = None,
        generator: torch.Generator | None = None,
        share: slice = slice(None),
        worker_init_fn: Callable[[int], None] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise input_error("batch_size", "1 or more", batch_size)
        if kwargs.get("batch_sampler") is not None:
            raise InputError(
                "'batch_sampler' is not supported; pass batch_size, shuffle or sampler"
            )
        if sampler is not None and shuffle:
            raise input_error("shuffle", "left out beside a sampler", shuffle)
        count = len(dataset)
        super().__init__(
            _Numbers(count),
            batch_size=batch_size,
            sampler=_Tagging(
                range(count) if sampler is None else sampler,
                shuffle=bool(shuffle),
                generator=generator,
                share=share,
            ),
            collate_fn=collate_fn,
            # Torch draws a word for its workers when these start, which persistent ones do once:
            # from elsewhere, so that an epoch always takes one word of the caller's generator.
            generator=torch.Generator().manual_seed(torch.initial_seed()),
            worker_init_fn=_InWorker(worker_init_fn),
            **kwargs,
        )


def seed_and_numbers(batch: Sequence[Tagged]) -> tuple[int, list[int]]:
    """The seed of a batch, and the numbers in it."""
    epoch, place, _ = batch[0]
    return random_word(epoch, place), [number for _, _, number in batch]


def tagged(numbers: Sequence[int]) -> list[Tagged]:
    """Numbers as a batch of their own, with a seed that is drawn now."""
    return list(_Tagging(numbers))


def drawn_seed(generator: torch.Generator | None = None) -> int:
    """A word from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class _Numbers(Dataset[Tagged]):
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, item: Tagged) -> Tagged:
        return item


class _Tagging(Sampler[Tagged]):
    def __init__(
        self,
        numbers: Any,
        *,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        share: slice = slice(None),
    ) -> None:
        self._numbers = numbers
        self._shuffle = shuffle
        self._generator = generator
        self._share = share

    def __len__(self) -> int:
        return len(range(len(self._numbers))[self._share])

    def __iter__(self) -> Iterator[Tagged]:
        epoch = drawn_seed(self._generator)
        numbers = self._numbers
        if self._shuffle:
            order = torch.Generator().manual_seed(epoch)
            numbers = torch.randperm(len(numbers), generator=order).tolist()
        taken = self._share
        for place, number in islice(enumerate(numbers), taken.start, taken.stop, taken.step):
            yield epoch, place, int(number)


class _InWorker:
    """What a worker does first: as one of several processes it takes one thread, as torch does."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker_id: int) -> None:
        native.set_num_threads(1)
        if self._then is not None:
            self._then(worker_id)
