// The instruction sets of this build, and which of them this CPU has.
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

// The fastest kernels that this CPU runs.
const Kernels& best_kernels();

// The kernels of this name; throws if this build has none, or this CPU cannot run them.
const Kernels& kernels_named(const std::string& name);

}  // namespace bignn
