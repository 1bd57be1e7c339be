"""Binary models simulated with floats, as their authors run them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from bignn.lab.bench.contenders.base import Buffers, Contender, sign_


class Simulated(Contender):
    """A binary model in floats: signs times scales, float products, activations binarized in place.

    ``agreement`` counts how many of the packed engine's classes equal its classes.
    """

    def load(self) -> None:
        """See the base class."""
        self.signs: list[Tensor] = []
        self.alphas: list[Tensor] = []
        self.biases: list[Tensor] = []
        with torch.no_grad():
            for conv in self.problem.model.layers:
                self.take_weights(conv)
        self.x, self.beta = sign_(torch.from_numpy(self.problem.binary_input()))
        self.buffers = Buffers(self.problem.num_nodes, max(self.problem.sizes[1:]))

    @abstractmethod
    def take_weights(self, conv: Any) -> None:
        """Append the weights of a convolution; called once for each, in order."""

    @abstractmethod
    def layer(self, number: int, signs: Tensor, beta: Tensor) -> Tensor:
        """Return a layer's output [N, d] from its input's signs and scales."""

    def take(self, linear: Any, bias: Tensor | None) -> None:
        """Append a linear map's binary weights and its bias."""
        signs, alpha = linear.binary_weight()
        self.signs.append(signs.t().contiguous())
        self.alphas.append(alpha[:, 0].clone())
        self.biases.append(torch.zeros(1) if bias is None else bias.detach().clone())

    def transformed(self, number: int, signs: Tensor, beta: Tensor) -> Tensor:
        """Compute ``signs B`` with both scales into the first buffer."""
        weight = self.signs[number]
        z = torch.mm(signs, weight, out=self.buffers.take(0, weight.shape[1]))
        return z.mul_(beta).mul_(self.alphas[number])

    def run(self) -> Tensor:
        """See the base class."""
        return self.layers(len(self.signs)).argmax(dim=1)

    @torch.no_grad()
    def layers(self, count: int) -> Tensor:
        """Return the output of the first ``count`` layers [N, d]; the next call overwrites it."""
        h, beta = self.x, self.beta
        for number in range(count):
            if number > 0:
                h, beta = sign_(h)
            h = self.layer(number, h, beta)
        return h
