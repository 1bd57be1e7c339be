// Binds layer weights, edges, features and the native model; called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace bignn {

void bind_packed_layers(nanobind::module_& m);

}  // namespace bignn
