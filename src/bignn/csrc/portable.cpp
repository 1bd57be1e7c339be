// Plain C++: runs on any CPU, and is what the vector files are compared with.
#include "table.h"

namespace bignn {
namespace {

struct Portable : Plain<Portable> {};

}  // namespace

constinit const Kernels portable_kernels = kernels_of<Portable>("portable");

}  // namespace bignn
