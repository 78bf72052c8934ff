// Updates device-resident tensors on the host, piece by piece.
#include "update/host_update.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>

#include <vector>

#include "accelerators/every.h"

namespace gannet::test {
namespace {

class HostUpdateTest : public EveryAccelerator {};

// The last kernel that wrote the gradients was launched and not awaited.
TEST_P(HostUpdateTest, TakesWhatTheStreamHasJustWrittenAndBringsTheParametersBack) {
  constexpr int64_t kPieces = 5, kNumel = 1000;
  HostUpdate host(opened(), {.numel = kNumel, .grad_dtype = at::kFloat, .reads_param = true});
  for (int step = 0; step < 2; ++step) {
    std::vector<at::Tensor> grads, params, expected;
    for (int64_t i = 0; i < kPieces; ++i) {
      const at::Tensor grad = at::rand({kNumel}), param = at::rand({kNumel});
      grads.push_back(grad.to(device(), /*non_blocking=*/false, /*copy=*/true));
      params.push_back(param.to(device(), false, true));
      expected.push_back(param - 3 * grad);
    }
    for (at::Tensor& grad : grads) grad.mul_(3);
    const auto fetch = [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      host.fetch(at, grads[at], params[at], compute_stream());
    };
    fetch(0);
    for (int64_t i = 0; i < kPieces; ++i) {
      const auto at = static_cast<size_t>(i);
      if (i + 1 < kPieces) fetch(i + 1);
      host.wait(at);
      at::from_blob(host.param(at), {kNumel}).sub_(at::from_blob(host.grad(at), {kNumel}));
      host.give_back(at);
    }
    host.finish();
    for (size_t i = 0; i < kPieces; ++i) EXPECT_TRUE(at::equal(params[i].cpu(), expected[i])) << "piece " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, HostUpdateTest, kEveryAccelerator, [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gannet::test
