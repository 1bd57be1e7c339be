// The arrays that Python passes, on the CPU, without gaps, and their checks; arrays that it gets.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bits.h"

namespace bignn {

template <typename T>
using Matrix = nanobind::ndarray<T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Vector = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

[[noreturn]] inline void refuse(const std::string& line) { throw std::invalid_argument(line); }

// The array's items, if there are at least `size` of them and they are aligned.
template <class Array>
auto* checked(const char* name, const Array& array, std::size_t size) {
    using Item = std::remove_pointer_t<decltype(array.data())>;
    if (array.size() < size) {
        refuse(std::string("'") + name + "' has fewer than " + std::to_string(size) + " items");
    }
    if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(Item) != 0) {
        refuse(std::string("'") + name + "' is not aligned");
    }
    return array.data();
}

template <class T>
std::vector<T> copied(const char* name, const Vector<const T>& array, std::size_t size) {
    if (array.size() != size) {
        refuse(std::string("'") + name + "' must have " + std::to_string(size) + " items");
    }
    const T* items = checked(name, array, size);
    return {items, items + size};
}

inline std::vector<word> copied_words(const char* name, const Matrix<const word>& words,
                                      std::size_t num_rows, std::size_t num_bits) {
    if (words.shape(0) != num_rows || words.shape(1) != words_per_row(num_bits)) {
        refuse(std::string("'") + name + "' must be packed rows of " + std::to_string(num_bits) +
               " bits");
    }
    const word* items = checked(name, words, words.size());
    return {items, items + words.size()};
}

// Makes an array that owns its items.
template <class Items>
auto handed_over(Items&& items) {
    auto* held = new Items(std::move(items));
    nanobind::capsule owner(held, [](void* p) noexcept { delete static_cast<Items*>(p); });
    using Item = typename Items::value_type;
    return nanobind::ndarray<nanobind::numpy, Item, nanobind::ndim<1>>(held->data(), {held->size()},
                                                                       owner);
}

}  // namespace bignn
