#include "interrupts.h"

namespace bignn {
namespace {

constexpr auto ask_every = std::chrono::milliseconds(20);

thread_local Interruptible::Question should_end = nullptr;

}  // namespace

Interruptible::Interruptible(Question question) : before_(should_end) { should_end = question; }
Interruptible::~Interruptible() { should_end = before_; }

bool InterruptWatch::is_interrupted() {
    if (!should_end) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < ask_every) return false;
    asked_ = now;
    return should_end();
}

}  // namespace bignn
