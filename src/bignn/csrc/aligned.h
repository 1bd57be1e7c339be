// Memory that begins on a cache line, so that vector loads do not straddle two.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bignn {

// An array of a plain type. Its items are not initialised: buffers are written before they are
// read, and pages that nobody touches cost nothing.
template <class T>
class Aligned {
   public:
    Aligned() = default;
    explicit Aligned(std::size_t count) : size_(count) {
        if (count == 0) return;
        const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
        data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
        if (!data_) throw std::bad_alloc();
    }

    T* data() const { return data_.get(); }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) const { return data_.get()[i]; }

   private:
    struct Free {
        void operator()(T* items) const { std::free(items); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0;
};

// An allocator of memory that begins on a cache line, for vectors that grow. Large ones are on
// large pages where the system has them: rows are read at random, and most would miss the page
// table.
template <class T>
struct OnLines {
    using value_type = T;
    OnLines() = default;
    template <class U>
    OnLines(const OnLines<U>&) {}
    T* allocate(std::size_t count) {
        constexpr std::size_t page = std::size_t{1} << 21;
        const std::size_t unit = count * sizeof(T) < 2 * page ? 64 : page;
        const std::size_t bytes = (count * sizeof(T) + unit - 1) / unit * unit;
        void* items = std::aligned_alloc(unit, bytes);
        if (!items) throw std::bad_alloc();
#if defined(__linux__)
        if (unit == page) madvise(items, bytes, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(items);
    }
    void deallocate(T* items, std::size_t) { std::free(items); }
    bool operator==(const OnLines&) const { return true; }
};

template <class T>
using LineVector = std::vector<T, OnLines<T>>;

}  // namespace bignn
