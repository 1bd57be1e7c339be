// The samplers of sampling.h as Python functions of the extension.
#pragma once

#include <nanobind/nanobind.h>

namespace bignn {

void bind_sampling(nanobind::module_& m);

}  // namespace bignn
