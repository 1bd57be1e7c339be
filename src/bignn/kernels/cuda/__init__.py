"""Packed layers on a GPU: kernels in CUDA C++, what compiles and runs them, and their buffers.

Nothing here needs torch. The package ``cuda-bindings`` is imported when a GPU is asked for, and
its absence is a line of ``bignn doctor``, never an error of an import.
"""
