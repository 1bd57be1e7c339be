#include "threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "aligned.h"
#include "interrupts.h"

namespace bignn {
namespace {

// How long a worker looks out for a job, and the caller for workers to end theirs, before they let
// others have the core.
constexpr auto look_out = std::chrono::microseconds(100);
constexpr auto look_back = std::chrono::microseconds(20);

inline void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// A worker counts itself in before it looks at the job; the caller closes the job, then waits until
// nobody is counted in, before it lets the job's data go.
class Pool {
   public:
    explicit Pool(int num_workers) {
        try {
            for (int worker = 0; worker < num_workers; ++worker) {
                workers_.emplace_back([this] { work(); });
            }
        } catch (const std::system_error&) {
            // The system grants no more threads: these have to do.
        }
    }

    ~Pool() {
        stopping_ = true;
        wake();
        for (std::thread& worker : workers_) worker.join();
    }

    void run(std::size_t count, std::size_t grain, Body body, void* context) {
        count_ = count;
        grain_ = grain;
        body_ = body;
        context_ = context;
        next_ = 0;
        failed_ = false;
        open_ = true;
        wake();
        InterruptWatch watch;
        const bool ended = take_pieces([&] { return watch.is_interrupted(); });
        open_ = false;
        const auto until = std::chrono::steady_clock::now() + look_back;
        while (inside_ != 0) {
            std::chrono::steady_clock::now() < until ? pause_briefly() : std::this_thread::yield();
        }
        if (failed_) throw std::bad_alloc();
        if (ended) throw Interrupted();
    }

   private:
    void wake() {
        ++job_;
        job_.notify_all();
    }

    // Takes pieces until none is left or `should_stop()`, after which nobody takes another; true in
    // that case. All that a body can throw is that there is no memory for its scratch.
    template <class Stop>
    bool take_pieces(Stop should_stop) {
        try {
            for (;;) {
                const std::size_t begin = next_.fetch_add(grain_);
                if (begin >= count_) return false;
                body_(context_, begin, std::min(begin + grain_, count_));
                if (should_stop()) {
                    next_ = count_;
                    return true;
                }
            }
        } catch (const std::bad_alloc&) {
            failed_ = true;
            next_ = count_;
        }
        return false;
    }

    void work() {
        unsigned seen = 0;
        for (;;) {
            const auto until = std::chrono::steady_clock::now() + look_out;
            while (job_ == seen && std::chrono::steady_clock::now() < until) pause_briefly();
            job_.wait(seen);
            seen = job_;
            if (stopping_) return;
            ++inside_;
            if (open_) take_pieces([] { return false; });
            --inside_;
        }
    }

    std::vector<std::thread> workers_;
    std::atomic<unsigned> job_{0};
    std::atomic<int> inside_{0};
    std::atomic<bool> open_{false};
    std::atomic<bool> stopping_{false};
    std::atomic<bool> failed_{false};
    std::atomic<std::size_t> next_{0};
    std::size_t count_ = 0;
    std::size_t grain_ = 1;
    Body body_ = nullptr;
    void* context_ = nullptr;
};

constexpr int most_threads = 1024;

int default_num_threads() {
    if (const char* text = std::getenv("OMP_NUM_THREADS")) {
        const int wanted = std::atoi(text);
        if (wanted > 0) return std::min(wanted, most_threads);
    }
#if defined(__linux__)
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return std::max(1, CPU_COUNT(&cpus));
#endif
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

struct State {
    std::mutex busy;
    std::unique_ptr<Pool> pool;
    int wanted_workers = 0;  // there may be fewer
};

State& state() {
    static State* current = [] {
        static State* held = new State;
        // The parent's workers do not exist in a child, and its mutex may be held by one of the
        // parent's threads: the child forgets both (a few hundred bytes) and starts afresh.
        pthread_atfork(nullptr, nullptr, [] { new (held) State; });
        return held;
    }();
    return *current;
}

std::atomic<int> wanted_threads{0};

}  // namespace

void set_num_threads(int count) { wanted_threads = std::max(1, count); }

int num_threads() {
    if (wanted_threads == 0) set_num_threads(default_num_threads());
    return wanted_threads;
}

void run_in_pieces(std::size_t count, std::size_t grain, Body body, void* context) {
    const int workers = num_threads() - 1;
    State& current = state();
    std::unique_lock<std::mutex> lock(current.busy, std::defer_lock);
    if (workers == 0 || count <= grain || !lock.try_lock()) {
        InterruptWatch watch;
        for (std::size_t begin = 0; begin < count; begin += grain) {
            body(context, begin, std::min(begin + grain, count));
            if (watch.is_interrupted()) throw Interrupted();
        }
        return;
    }
    if (!current.pool || current.wanted_workers != workers) {
        current.pool.reset();
        current.pool = std::make_unique<Pool>(workers);
        current.wanted_workers = workers;
    }
    current.pool->run(count, grain, body, context);
}

std::byte* thread_scratch(std::size_t size) {
    thread_local Aligned<std::byte> bytes;
    if (size > bytes.size()) bytes = Aligned<std::byte>((size + 4095) / 4096 * 4096);
    return bytes.data();
}

}  // namespace bignn
