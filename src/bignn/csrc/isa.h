// What an instruction set is to the kernels: a struct of static functions.
//
//     struct Portable : Plain<Portable> {};
//     struct Avx512 : With<Plain<Avx512>, avx512::XnorPieces, avx512::WeightPieces, ...> {};
//
// Plain<Isa> has every piece of a layer as a plain loop. An instruction set inherits from it and
// replaces the pieces that it has vectors for; whoever calls a piece calls Isa::piece. The layer
// loop (rows.h) and training (training.h) are templates over Isa, written in terms of its pieces.
// They and the pieces are compiled once per instruction set, in a file with its own flags.
//
// The structs stand in the anonymous namespace of their file, so that no instance of a template
// over Isa is visible outside of it. Otherwise the linker would keep one copy of what several files
// have, perhaps the one that the CPU cannot run. For the same reason, functions in the kernels'
// headers are static where they are not members of such a template, helper structs outside of one
// have no functions or stand in an anonymous namespace, and no template of the standard library is
// used.
//
// A new instruction set takes: a file like portable.cpp, a line with its flags in
// instruction_sets.cmake, its table's name in kernels.h, a line in dispatch.cpp, and its name in
// kernels/native.py.
#pragma once

#include "kernels.h"

namespace bignn {

// Base with pieces replaced: each Replacement<Base> inherits from Base and redefines some of them,
// so that Base::piece is the piece it replaces. `Isa` is a member of Plain and stays the struct
// at the end of the chain.
template <class Base, template <class> class... Replacements>
struct Replaced {
    using Type = Base;
};

template <class Base, template <class> class Replacement, template <class> class... Others>
struct Replaced<Base, Replacement, Others...> : Replaced<Replacement<Base>, Others...> {};

template <class Base, template <class> class... Replacements>
using With = typename Replaced<Base, Replacements...>::Type;

// A constant that is passed to a lambda as a type: the loop inside is compiled for its value.
template <int number>
struct Number {
    static constexpr int value = number;
};

}  // namespace bignn
