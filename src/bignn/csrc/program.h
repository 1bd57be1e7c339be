// A packed model bound to a graph: every layer's operands and buffers, run by one call.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "kernels.h"

namespace bignn {

// How the first layer's records are made; hidden layers' are made by the layer before.
struct Source {
    enum class Kind { none, bits, sparse } kind = Kind::none;
    const word* words = nullptr;
    Panels panels{};
    SparseRows rows{};
    SignTable table{};
    std::size_t num_rows = 0;
    std::byte* records = nullptr;
};

struct Step {
    Source source;
    Layer layer{};
    Panels next{};
};

class Program {
   public:
    explicit Program(const Kernels& kernels) : kernels_(kernels) {}

    std::vector<Step>& steps() { return steps_; }

    // Runs all steps; seconds[i] is step i's time. Returns the number of the step whose records
    // overflowed their width (then nothing after it ran), or -1.
    int run(double* seconds);

    // Rows [begin, end) of one step's layer, on the calling thread; false if they overflowed.
    bool run_rows(std::size_t step, std::size_t begin, std::size_t end);

   private:
    bool run_source(const Source& source);
    bool run_layer(const Layer& layer);

    const Kernels& kernels_;
    std::vector<Step> steps_;
};

}  // namespace bignn
