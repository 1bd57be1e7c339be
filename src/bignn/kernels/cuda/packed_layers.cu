// All kernels of packed layers on a GPU. Each takes one struct of numbers and pointers of 8 bytes.
#include "attention.cuh"
#include "bits.cuh"
#include "product.cuh"
#include "records.cuh"
