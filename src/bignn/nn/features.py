"""Constant feature matrices in the forms that a first layer multiplies fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bignn import bits, ops
from bignn.binarize import sign
from bignn.bits import Words
from bignn.kernels import default_backend, native
from bignn.nn.dropout import dropout
from bignn.nn.packed_arithmetic import mean_in_order
from bignn.nn.sparse import SparseMatrix

T = TypeVar("T")


class BinaryRows:
    """The signs F of a feature matrix and their row scales β: ``H̃_i = β_i F_i``.

    A model's input does not change from epoch to epoch: it is binarized once, and the forms
    that products need are made when they are first used.

    Args:
        signs: ±1 as floats [N, d].
        beta: [N, 1].

    """

    def __init__(self, signs: Tensor, beta: Tensor) -> None:
        self._signs: Tensor | None = signs
        self._values = signs
        self.beta = beta
        self._made: dict[str, Any] = {}
        #: What the gradient of the values H goes to, where only bits of them are kept.
        self.carrier: Tensor | None = None
        #: Where layers that read these rows put the gradient of H in a form of their own
        #: (:mod:`bignn.nn.saved_bits.layer`); None where it must go through the carrier.
        self.gradients: Any = None
        self._is_packed = False
        # The rows that these were taken from, and which of them; None of rows of their own.
        self._taken_from: tuple[BinaryRows, Tensor] | None = None

    @classmethod
    def of_values(cls, h: Tensor) -> BinaryRows:
        """Binarize rows h as packed models do, without gradients.

        Native code makes bits and β in one pass; floats of the signs are made if they are used.
        """
        if h.device.type != "cpu" or h.dtype != torch.float32 or not native.is_available():
            return cls(sign(h), mean_in_order(h))
        words, beta = native.binarize(h.detach().contiguous().numpy(), default_backend())
        rows = cls(h, torch.from_numpy(beta).unsqueeze(1))
        rows._signs = None
        rows._made["words"] = torch.from_numpy(words.view("int64"))
        return rows

    @classmethod
    def of_bits(cls, words: Words, beta: NDArray[np.float32], num_bits: int) -> BinaryRows:
        """Take packed rows [N, ceil(d / 64)] and their scales [N]; signs are unpacked."""
        signs = torch.from_numpy(bits.unpack(words, num_bits)).float()
        rows = cls(signs, torch.from_numpy(beta).unsqueeze(1))
        rows._made["words"] = torch.from_numpy(words.view("int64"))
        return rows

    def to(self, device: torch.device) -> BinaryRows:
        """Return the rows on a device; themselves if they are there."""
        if self.beta.device == device:
            return self
        return BinaryRows(self.signs.to(device), self.beta.to(device))

    @classmethod
    def of_words(
        cls,
        words: Tensor,
        beta: Tensor,
        num_bits: int,
        carrier: Tensor | None = None,
        inside: Tensor | None = None,
    ) -> BinaryRows:
        """Take signs as packed rows; floats of them are made if they are used.

        Args:
            words: [N, words].
            beta: [N, 1].
            num_bits: d.
            carrier: what stands for the values H [N, d] in torch's graph of gradients; None for
                constants.
            inside: packed rows of 1 where ``|H| <= 1``, which gradients pass.

        """
        rows = cls._without_floats(beta, num_bits)
        rows._is_packed = True
        rows._made["words"] = words
        rows.carrier = carrier
        if inside is not None:
            rows._made["inside"] = inside
        return rows

    @classmethod
    def _without_floats(cls, beta: Tensor, num_bits: int) -> BinaryRows:
        """Make rows whose floats are made if they are used."""
        rows = cls(beta.new_zeros(()).expand(len(beta), num_bits), beta)
        rows._signs = None
        return rows

    @classmethod
    def of_learned(cls, h: Tensor) -> BinaryRows:
        """Binarize rows h that want a gradient, and keep bits of them alone."""
        beta = h.detach().abs().mean(dim=-1, keepdim=True).clamp_(min=torch.finfo(h.dtype).tiny)
        inside = ops.pack_signs(1 - h.detach().abs())
        carrier: Tensor = _Stand.apply(h)  # type: ignore[no-untyped-call]
        return cls.of_words(ops.pack_signs(h), beta, h.shape[1], carrier, inside)

    @property
    def inside(self) -> Tensor:
        """Packed rows of 1 where gradients pass to the values."""
        inside: Tensor = self._made["inside"]
        return inside

    def _once(self, name: str, make: Callable[[], T]) -> T:
        if torch.compiler.is_compiling():
            return make()
        if name not in self._made:
            # Inference mode would taint what is kept for training.
            with torch.inference_mode(False), torch.no_grad():
                self._made[name] = make()
        return cast(T, self._made[name])

    @property
    def shape(self) -> torch.Size:
        """[N, d]."""
        return self._values.shape

    @property
    def signs(self) -> Tensor:
        """The signs ±1 as floats [N, d]."""
        if self._signs is None and self._taken_from is not None:
            whole, nodes = self._taken_from
            with torch.inference_mode(False), torch.no_grad():  # as what is made once
                self._signs = whole.signs[nodes]
        elif self._signs is None:
            self._signs = _unpacked(self) if self._is_packed else sign(self._values)
        return self._signs

    @property
    def learns(self) -> bool:
        """Whether the signs want a gradient."""
        known = self._signs if self.carrier is None else self.carrier
        return known is not None and known.requires_grad

    def rows(self, nodes: Tensor) -> BinaryRows:
        """Take the rows of some nodes, in their order; usual signs stay those of all nodes.

        Where few entries deviate from these, products read no others: floats and words are then
        taken only if they are used.
        """
        if self._is_packed and self.carrier is None:
            taken = self.of_words(self.words[nodes], self.beta[nodes], self.shape[1])
        elif self.learns:
            taken = BinaryRows(self.signs[nodes], self.beta[nodes])
        else:
            taken = self._without_floats(self.beta[nodes], self.shape[1])
            taken._taken_from = self, nodes
        few = self.deviations
        taken._made |= {"usual": self.usual, "deviations": few if few is None else few.rows(nodes)}
        return taken

    def packed(self) -> BinaryRows:
        """Return the rows as bits, without floats of them; those with few deviations as they are.

        Batches take their rows of it at a thirty-second of the bytes.
        """
        if self.learns or self.deviations is not None:
            return self
        made = self.of_words(self.words, self.beta, self.shape[1])
        made._made |= {"usual": self.usual, "deviations": None}
        return made

    @property
    def words(self) -> Tensor:
        """The signs as packed rows."""

        def make() -> Tensor:
            if self._taken_from is None:
                made: Tensor = ops.pack_rows(self.signs.detach())
                return made
            whole, nodes = self._taken_from
            return whole.words[nodes]

        return self._once("words", make)

    @property
    def everywhere(self) -> Tensor:
        """Packed rows of 1 wherever there is an entry."""

        def make() -> Tensor:
            row: Tensor = ops.pack_rows(self.signs.new_ones(1, self.shape[1]))
            return row.expand(self.words.shape).contiguous()

        return self._once("everywhere", make)

    @property
    def usual(self) -> Tensor:
        """The sign of most rows, per column [1, d]."""
        return self._once("usual", lambda: sign(self.signs.sum(dim=0, keepdim=True)))

    def set_usual(self, usual: Tensor) -> None:
        """Set the usual signs [1, d] of rows that are a part of all rows."""
        self._made["usual"] = usual

    @property
    def deviating(self) -> Tensor:
        """Packed rows of 1 where a sign is not its column's usual one."""
        made: Tensor = self._once("deviating", lambda: self.words ^ ops.pack_rows(self.usual))
        return made

    @property
    def deviations(self) -> SparseFeatures | None:
        """The difference ``signs - usual`` if fewer than one entry in 64 differs, else None.

        Adding up so few entries costs less than counting the bits of words.
        """

        def make() -> SparseFeatures | None:
            difference = self.signs.detach() - self.usual
            count = int(difference.count_nonzero())
            return SparseFeatures(difference) if 64 * count < difference.numel() else None

        return self._once("deviations", make)


class _Stand(torch.autograd.Function):
    """A tensor without memory in the place of h; what it gets is the gradient of h."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.new_zeros(()).expand(h.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class _SignsOfBits(torch.autograd.Function):
    """F of packed rows, with the gradient of :func:`bignn.binarize.binarize_features`."""

    @staticmethod
    def forward(ctx: Any, carrier: Tensor, rows: BinaryRows) -> Tensor:
        ctx.inside, ctx.beta = rows.inside, rows.beta
        return torch.where(ops.unpack_bits(rows.words, rows.shape[1]), 1.0, -1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0] * ctx.beta.reciprocal()
        return torch.where(ops.unpack_bits(ctx.inside, grad.shape[1]), grad, 0.0), None


def _unpacked(rows: BinaryRows) -> Tensor:
    if rows.carrier is None:
        return torch.where(ops.unpack_bits(rows.words, rows.shape[1]), 1.0, -1.0)
    signs: Tensor = _SignsOfBits.apply(rows.carrier, rows)  # type: ignore[no-untyped-call]
    return signs


class SparseFeatures:
    """A float feature matrix with few entries.

    Dropping a zero changes nothing, so dropout draws for the entries only.
    """

    def __init__(self, x: Tensor) -> None:
        row, column = x.nonzero(as_tuple=True)
        shape = (x.shape[0], x.shape[1])
        # Torch has no sparse product in half precision.
        values = x[row, column].to(torch.promote_types(x.dtype, torch.float32))
        self._all = SparseMatrix.from_entries(row, column, values, shape)

    @staticmethod
    def pays_for(x: Tensor) -> bool:
        """Whether x is sparse enough for this form to be faster."""
        return x.numel() > 0 and int(x.count_nonzero()) < 0.25 * x.numel()

    @property
    def shape(self) -> torch.Size:
        """[N, d]."""
        return self._all.shape

    @property
    def matrix(self) -> SparseMatrix:
        """All entries."""
        return self._all

    def matmul(self, weight: Tensor, p: float, *, training: bool) -> Tensor:
        """Compute ``dropout(X) weight`` for a weight [d, d_out]."""
        if not training or p == 0:
            return self._all @ weight
        kept = dropout(self._all.matrix.values(), p, training=True)
        return self._all.weighted(kept, weight)

    def rows(self, nodes: Tensor) -> SparseFeatures:
        """Take the rows of some nodes, in their order."""
        taken = SparseFeatures.__new__(SparseFeatures)
        taken._all = self._all.take_rows(nodes)
        return taken
