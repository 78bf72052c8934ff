// LibTorch alone, doing one addition: what any program that uses it pays at its start.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

int main() { return (at::ones({2}) + at::ones({2})).sum().item<float>() == 4 ? 0 : 1; }
