"""The operations as Triton kernels: one file an operation, tile choice in ``tiles``.

Each file has the kernel and a function that describes its launch for given tensors; the backend
runs the description, the ahead-of-time check compiles the same one without a device.
"""
