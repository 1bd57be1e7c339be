// All kernels of a GPU: packed layers, and training on bits. Each takes one struct of numbers and pointers of 8 bytes.
#include "attention.cuh"
#include "bits.cuh"
#include "product.cuh"
#include "records.cuh"
#include "training.cuh"
