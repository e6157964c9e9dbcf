"""Compiled CPU kernels: plain C++ built on this machine, called on the tensors' memory."""
