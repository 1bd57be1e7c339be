// Ctrl-C while native code runs: jobs of several pieces ask between them whether they should end.
// threads.cpp asks, and packed_layers_module.cpp answers and makes Python's exception of it.
#pragma once

#include <chrono>

namespace bignn {

// While it lives, jobs of this thread ask, some fifty times a second, whether they should end; when
// they should, pieces under way are finished and run_in_pieces throws Interrupted.
class Interruptible {
   public:
    using Question = bool (*)();
    explicit Interruptible(Question question);
    ~Interruptible();
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;

   private:
    Question before_;
};

struct Interrupted {};

// Asks the question of this thread's Interruptible, if there is one, and only every so often, since
// taking the interpreter's lock is not free.
class InterruptWatch {
   public:
    bool is_interrupted();

   private:
    std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace bignn
