"""Instructions of way T's gather per neighbour and column, counted in the compiler's output.

A gather of byte records is compiled alone for each instruction set, with the bits of the weights as
a constant, few enough for one multiplication per neighbour and column. Its inner loop is the one
that multiplies: the loop's instructions, all of them, are divided by its products. Needs g++ and
objdump of both architectures (Debian: g++-aarch64-linux-gnu).

    python benchmarks/instructions.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CSRC = Path(__file__).parents[1] / "src" / "bignn" / "csrc"
BITS = (5, 6, 7)


@dataclass(frozen=True)
class Target:
    """An instruction set, the struct of its kernels, and the prefix of its compiler."""

    name: str
    struct: str
    prefix: str = ""


TARGETS = (
    Target("portable", "Portable"),
    Target("avx2", "Avx2"),
    Target("avx2_vnni", "Avx2Vnni"),
    Target("avx512", "Avx512"),
    Target("neon", "Neon", "aarch64-linux-gnu-"),
    Target("neon_dot", "NeonDot", "aarch64-linux-gnu-"),
)
# Products of one instruction. Plain C++ multiplies two numbers of 64 bits by three of them.
PRODUCTS = (
    (r"\tpmuludq .*xmm", 2 / 3),
    (r"vpmaddubsw .*ymm", 32),
    (r"vpdpbusd .*ymm", 32),
    (r"vpdpbusd .*zmm", 64),
    (r"sdot\t.*\.16b", 16),
    (r"sm(la|ul)l2?\tv\d+\.8h", 8),
)

# Everything that sum_records calls becomes part of these functions, with these constants.
FUNCTION = """
__attribute__((flatten)) void gather_{bits}(const std::byte* const* rows, const std::uint32_t* q,
                                            std::size_t count, std::uint32_t total,
                                            const std::int32_t* center, std::int64_t* acc,
                                            float* sums) {{
    const Records records{{nullptr, 64, 0, 64, 1, center, 0, false, {bits}}};
    {struct}::sum_records(records, 64, rows, q, count, total, acc, sums);
}}
"""


def disassembled(target: Target, folder: Path) -> str:
    """Compile and disassemble the gathers of all numbers of bits."""
    listed = (CSRC / "instruction_sets.cmake").read_text()
    flags = dict(re.findall(r"^ *add_instruction_set\((\w+)\.cpp\s*([^)]*)\)", listed, re.M))
    options = re.findall(r"set\(KERNEL_OPTIONS ([^)]*)\)", listed)[0]
    source, made = folder / "gather.cpp", folder / "gather.o"
    functions = [FUNCTION.format(bits=bits, struct=target.struct) for bits in BITS]
    lines = [f'#include "{target.name}.cpp"', "namespace bignn {", *functions, "}"]
    source.write_text("\n".join(lines))
    every = [*options.split(), *flags[target.name].split(), "-std=c++20", "-I", str(CSRC), "-w"]
    subprocess.run([f"{target.prefix}g++", *every, "-c", str(source), "-o", str(made)], check=True)
    return subprocess.run(
        [f"{target.prefix}objdump", "-d", "--no-show-raw-insn", "-C", str(made)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def instructions_of(shown: str, function: str) -> list[str]:
    """Lines ``address: instruction`` of a function."""
    lines = shown[shown.index(f"<bignn::{function}(") :].split("\n\n")[0].splitlines()
    return [line.strip() for line in lines if ":\t" in line]


def inner_loops(lines: list[str]) -> list[list[str]]:
    """Instructions between a jump back and where it goes, of loops without other loops."""
    addresses = [int(line.split(":")[0], 16) for line in lines]
    ends = []
    for at, line in enumerate(lines):
        jump = re.search(r"\t(?:j\w+|b\.\w+|cbn?z|tbn?z)\s.*?\b([0-9a-f]+) <", line)
        if jump and (begin := int(jump[1], 16)) <= addresses[at] and begin in addresses:
            ends.append((addresses.index(begin), at))
    inner = [
        (begin, end)
        for begin, end in ends
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in ends)
    ]
    return [lines[begin : end + 1] for begin, end in inner]


def per_product(lines: list[str]) -> float:
    """Instructions per neighbour and column of the loop that multiplies; the least, if several."""
    counts = []
    for loop in inner_loops(lines):
        products = sum(
            each for line in loop for pattern, each in PRODUCTS if re.search(pattern, line)
        )
        if products:
            counts.append(len(loop) / products)
    return min(counts)


def main() -> None:
    """Print a row per instruction set, a column per number of bits."""
    print(f"{'bits of a weight':<18}" + "".join(f"{bits:>8}" for bits in BITS))
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            if shutil.which(f"{target.prefix}g++") is None:
                print(f"{target.name:<18}  needs {target.prefix}g++")
                continue
            shown = disassembled(target, Path(folder))
            found = [per_product(instructions_of(shown, f"gather_{bits}")) for bits in BITS]
            print(f"{target.name:<18}" + "".join(f"{each:>8.3f}" for each in found))


if __name__ == "__main__":
    main()
