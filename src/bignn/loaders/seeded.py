"""A DataLoader whose batches each have a seed of their own, whichever process makes them.

The seed travels with the batch's indices: an epoch draws one number from torch's generator, which
decides the order, and a batch's seed is a hash of that number and the batch's place in the epoch.
So batches are the same for any number of workers, persistent ones included.
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

#: The epoch's seed, a place in the epoch's order, and the index of the item in that place.
SeededIndex = tuple[int, int, int]


class SeededLoader(DataLoader[Any]):
    """A ``DataLoader`` whose ``collate_fn`` gets a list of :data:`SeededIndex` instead of items.

    Args:
        dataset: the items; only their number is used.
        collate_fn: makes a batch of seeded indices; see :func:`seed_and_indices`.
        batch_size: indices per batch.
        shuffle: take the items in random order.
        sampler: yields the indices to take, instead of all in order.
        generator: the generator to draw from instead of torch's global one.
        share: the places of an epoch that this loader takes, as ``slice(rank, None, size)`` for one
            of ``size`` processes whose generators are alike; batches are made of these alone.
        worker_init_fn, kwargs: see torch's ``DataLoader``.

    """

    def __init__(
        self,
        dataset: Sized,
        *,
        collate_fn: Callable[[list[SeededIndex]], Any],
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
            _Indices(count),
            batch_size=batch_size,
            sampler=_SeededSampler(
                range(count) if sampler is None else sampler,
                shuffle=bool(shuffle),
                generator=generator,
                share=share,
            ),
            collate_fn=collate_fn,
            # Torch draws a number for its workers when these start, which persistent ones do once:
            # from another generator, so that an epoch always draws once from the caller's.
            generator=torch.Generator().manual_seed(torch.initial_seed()),
            worker_init_fn=_WorkerSetup(worker_init_fn),
            **kwargs,
        )


def seed_and_indices(batch: Sequence[SeededIndex]) -> tuple[int, list[int]]:
    """Return the seed of a batch and the indices in it."""
    epoch, place, _ = batch[0]
    return random_word(epoch, place), [index for _, _, index in batch]


def with_seed(indices: Sequence[int]) -> list[SeededIndex]:
    """Make a batch of some indices, with a seed that is drawn now."""
    return list(_SeededSampler(indices))


def draw_seed(generator: torch.Generator | None = None) -> int:
    """Draw a seed from torch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


class _Indices(Dataset[SeededIndex]):
    """A dataset whose items are their own seeded indices."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, item: SeededIndex) -> SeededIndex:
        return item


class _SeededSampler(Sampler[SeededIndex]):
    """A sampler that gives every index the epoch's seed and its place."""

    def __init__(
        self,
        indices: Any,
        *,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
        share: slice = slice(None),
    ) -> None:
        self._indices = indices
        self._shuffle = shuffle
        self._generator = generator
        self._share = share

    def __len__(self) -> int:
        return len(range(len(self._indices))[self._share])

    def __iter__(self) -> Iterator[SeededIndex]:
        epoch = draw_seed(self._generator)
        indices = self._indices
        if self._shuffle:
            order = torch.Generator().manual_seed(epoch)
            indices = torch.randperm(len(indices), generator=order).tolist()
        share = self._share
        for place, index in islice(enumerate(indices), share.start, share.stop, share.step):
            yield epoch, place, int(index)


class _WorkerSetup:
    """The set-up of a worker: one thread, as torch's own, then the user's function."""

    def __init__(self, user_function: Callable[[int], None] | None) -> None:
        self._user_function = user_function

    def __call__(self, worker_id: int) -> None:
        native.set_num_threads(1)
        if self._user_function is not None:
            self._user_function(worker_id)
