// The process's one pool of worker threads.
//
// Idle workers sleep: a barrier at which they spin costs milliseconds as soon as something else
// wants the core. After a job they look out for the next for some microseconds only, since the
// layers of a small model follow each other that fast. Nobody waits for a worker that has not
// woken: the caller takes work itself until none is left, and waits only for pieces under way.
#pragma once

#include <cstddef>

namespace bignn {

// Threads a job may use, the caller's included. At first OMP_NUM_THREADS, or all cores.
void set_num_threads(int count);
int num_threads();

// Calls body(context, begin, end) for pieces of [0, count) of `grain` each, in any order, on any
// of the threads. It may be interrupted (interrupts.h). Called while another thread's job runs, it
// does all of its pieces itself. After a fork the child starts its own workers when it first needs
// them.
using Body = void (*)(void* context, std::size_t begin, std::size_t end);
void run_in_pieces(std::size_t count, std::size_t grain, Body body, void* context);

template <class Function>
void run_in_pieces(std::size_t count, std::size_t grain, Function& function) {
    run_in_pieces(
        count, grain,
        [](void* context, std::size_t begin, std::size_t end) {
            (*static_cast<Function*>(context))(begin, end);
        },
        &function);
}

// Memory of the calling thread, aligned to cache lines, which it keeps from call to call.
std::byte* thread_scratch(std::size_t size);

}  // namespace bignn
