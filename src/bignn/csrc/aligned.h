// Memory that begins on a cache line, so that vector loads do not straddle two.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

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

// An allocator of memory that begins on a cache line, for vectors that grow.
template <class T>
struct OnLines {
    using value_type = T;
    OnLines() = default;
    template <class U>
    OnLines(const OnLines<U>&) {}
    T* allocate(std::size_t count) {
        return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
    }
    void deallocate(T* items, std::size_t) { ::operator delete(items, std::align_val_t{64}); }
    bool operator==(const OnLines&) const { return true; }
};

}  // namespace bignn
