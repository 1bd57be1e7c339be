// A packed model bound to a graph: every layer's operands and buffers, run by one call.
#pragma once

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
    Scores scores{};  // of attention; of none, count is 0
    Layer layer{};
    Panels next{};
};

class Program {
   public:
    explicit Program(const Kernels& kernels) : kernels_(kernels) {}

    std::vector<Step>& steps() { return steps_; }

    // Runs the first num_steps steps, and makes what a further one takes from; seconds[i] is step
    // i's time. The last step's rows go to the caller's buffer, values or classes (the other is
    // null). Returns the number of the step whose records overflowed their bytes (then nothing
    // after it ran), or -1.
    int run(std::size_t num_steps, float* values, std::int64_t* classes, double* seconds);

    // Rows [begin, end) of the last step, whose sources the steps before it have made, into a
    // caller's buffer of end - begin rows of values.
    void run_rows(std::size_t begin, std::size_t end, float* values);

   private:
    bool prepare(const Step& step);
    bool run_layer(const Layer& layer, std::size_t begin, std::size_t end);

    const Kernels& kernels_;
    std::vector<Step> steps_;
};

}  // namespace bignn
