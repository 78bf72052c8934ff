// LibTorch without Gannet, doing one addition: the startup cost of any program that uses it.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

int main() { return (at::ones({2}) + at::ones({2})).sum().item<float>() == 4 ? 0 : 1; }
