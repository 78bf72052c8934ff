// Makes elementwise CPU functions give the same bits on their first call as on every later one.
#pragma once

namespace gannet {

// Calls each of LibTorch's MKL-backed elementwise functions once, on one element and thus on one thread; later calls of
// this function return at once. The MKL inside LibTorch's wheels (2024.2) chooses a function's kernel during the first
// call; when several threads make that call together, one of them can run a kernel with errors near 1e-4 over its part
// of the tensor, so that a busy machine changes the first step's loss (pytorch/pytorch issue 188792).
void settle_vector_math();

}  // namespace gannet
