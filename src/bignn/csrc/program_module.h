// A program of program.h as a Python class of the extension.
#pragma once

#include <nanobind/nanobind.h>

namespace bignn {

void bind_program(nanobind::module_& m);

}  // namespace bignn
