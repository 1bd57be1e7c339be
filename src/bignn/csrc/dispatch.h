// Which instruction sets this CPU has.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace bignn {

struct InstructionSet {
    const Kernels* kernels;
    bool supported;       // by this CPU and operating system
    std::string missing;  // the features it lacks, for people to read
};

// Every instruction set that this build has kernels for, slowest first.
const std::vector<InstructionSet>& instruction_sets();

// The fastest supported one.
const Kernels& best_kernels();

// The one of this name; throws if there is none, or this CPU lacks it.
const Kernels& kernels_named(const std::string& name);

}  // namespace bignn
