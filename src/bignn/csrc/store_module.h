// What stores of features and edges on disk need, in Python.
#pragma once

#include <nanobind/nanobind.h>

namespace bignn {

void bind_store(nanobind::module_& m);

}  // namespace bignn
