// Binds the native live graph; called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace bignn {

void bind_live_layers(nanobind::module_& m);

}  // namespace bignn
