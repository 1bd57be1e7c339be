"""The option of the bits that a binary model makes of its input, such as ``"learned:4"``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from bignn.errors import input_error, printable

#: The option's value that leaves the choice to what the features are like.
AUTO = "auto"
#: The option's value of one bit per feature.
SIGN = "sign"
#: Bits per feature, at most; a short option could otherwise ask for any amount of memory.
MOST_BITS_PER_FEATURE = 64
#: Features that are rotated or projected, at most, since that takes a matrix of floats.
MOST_ROTATED = 1024

InputBitsKind = Literal["rotate", "threshold", "learned"]
_FORM = re.compile(r"(rotate|threshold|learned):([1-9][0-9]?)")


@dataclass(frozen=True)
class InputBits:
    """A choice of input bits.

    Attributes:
        kind: ``"rotate"``, signs of random rotations, ``"threshold"``, comparisons of every
            feature with some of its quantiles, or ``"learned"``, signs of projections that are
            trained with the model.
        per_feature: how many bits there are for each feature.

    """

    kind: InputBitsKind
    per_feature: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.per_feature}"

    def num_bits(self, num_features: int) -> int:
        """Return the number of bits of a row of features."""
        return self.per_feature * num_features


def parse_input_bits(
    text: object, num_features: int | None = None, *, has_auto: bool = True
) -> InputBits | None:
    """Read a choice other than ``"auto"``; None stands for ``"sign"``.

    Without ``has_auto`` the message does not offer ``"auto"``.
    """
    if text == SIGN:
        return None
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    kind: Any = found[1] if found else ""
    per_feature = int(found[2]) if found else 0
    if not 1 <= per_feature <= MOST_BITS_PER_FEATURE:
        auto = f"'{AUTO}', " if has_auto else ""
        raise input_error(
            "input_bits",
            f"{auto}'{SIGN}', 'learned:K', 'rotate:K' or 'threshold:K' with K bits per feature, "
            f"1 to {MOST_BITS_PER_FEATURE}",
            printable(repr(text)),
        )
    if kind != "threshold" and num_features is not None and num_features > MOST_ROTATED:
        fix = f"take '{SIGN}' or 'threshold:{per_feature}'"
        got = f"'{text}' for {num_features}"
        what = "rotation" if kind == "rotate" else "projection"
        raise input_error("input_bits", f"no {what} of over {MOST_ROTATED} features", got, fix)
    return InputBits(kind, per_feature)


def check_input_bits(text: object, num_features: int | None = None) -> None:
    """Refuse a value that the option cannot have."""
    if text != AUTO:
        parse_input_bits(text, num_features)


def num_input_bits(text: str, num_features: int) -> int:
    """Return the number of bits of a row; before ``"auto"`` is decided, one per feature."""
    chosen = None if text == AUTO else parse_input_bits(text, num_features)
    return num_features if chosen is None else chosen.num_bits(num_features)
