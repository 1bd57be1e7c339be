// The arrays that Python passes: on the CPU, without gaps.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace bignn {

template <typename T>
using Matrix = nanobind::ndarray<T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Vector = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

}  // namespace bignn
