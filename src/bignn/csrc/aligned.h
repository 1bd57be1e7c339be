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

}  // namespace bignn
