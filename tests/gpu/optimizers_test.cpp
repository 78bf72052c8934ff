// The CUDA kernels against the CPU's loops, which have a reference of their own (tests/optimizers).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>

#include <cmath>

#include "gpu/gpu_test.h"
#include "optimizers/update_case.h"
#include "tensor/dtype.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

using OptimizersOnGpu = GpuTest;

// Buffers of an UpdateCase, `offset` elements into memory of the device.
struct DeviceCase {
  DeviceCase(UpdateCase& host, uint64_t offset) : host(host), offset(offset) {
    param = upload(host.param, host.types.param);
    grad = upload(host.grad, host.types.grad);
    if (host.types.out != GANNET_DTYPE_NONE) out = upload(host.out, host.types.out);
    for (auto& state : host.states) states.push_back(upload(state, host.types.param));
  }
  void update(const OptimizerUnderTest& optimizer, uint64_t step) {
    std::vector<void*> pointers;
    for (auto& state : states) pointers.push_back(state.data_ptr());
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = host.types.param;
    args.grad_dtype = host.types.grad;
    args.out_dtype = host.types.out;
    args.numel = host.numel;
    args.param = param.data_ptr();
    args.grad = grad.data_ptr();
    args.out = out.defined() ? out.data_ptr() : nullptr;
    args.states = pointers.data();
    args.state_count = pointers.size();
    args.grad_scale = host.grad_scale;
    args.step = step;
    args.hyper = optimizer.params.hyper.data();
    args.hyper_count = optimizer.params.hyper.size();
    optimizer.update(args);
  }
  // Back to the host, over the values that went up.
  void download() {
    copy(param, host.param);
    if (out.defined()) copy(out, host.out);
    for (size_t s = 0; s < states.size(); ++s) copy(states[s], host.states[s]);
  }

  at::Tensor view(Buffer& buffer, at::ScalarType type) {
    return at::from_blob(buffer.at(0), {static_cast<int64_t>(host.numel)}, at::TensorOptions().dtype(type));
  }
  at::Tensor upload(Buffer& buffer, uint32_t dtype) {
    const auto type = to_scalar_type(static_cast<gannet_dtype>(dtype));
    at::Tensor whole =
        at::empty({static_cast<int64_t>(host.numel + offset)}, at::TensorOptions().dtype(type).device(at::Device(at::kCUDA, 0)));
    at::Tensor part = whole.narrow(0, static_cast<int64_t>(offset), static_cast<int64_t>(host.numel));
    part.copy_(view(buffer, type));
    return part;
  }
  void copy(const at::Tensor& from, Buffer& to) { view(to, from.scalar_type()).copy_(from); }

  UpdateCase& host;
  uint64_t offset;
  at::Tensor param, grad, out;
  std::vector<at::Tensor> states;
};

// The rules are one text, and both sides round once per operation of it: on a CPU with fused multiply-add, bitwise the same.
// Without one the CPU rounds the product too, and so a sum that cancels may differ in its last bits.
void expect_same(const Buffer& device, const Buffer& cpu, uint64_t numel, double unit, const std::string& what) {
  for (uint64_t i = 0; i < numel; ++i)
    ASSERT_NEAR(device.get(i), cpu.get(i), unit * 8 * (1 + std::abs(cpu.get(i)))) << what << ", element " << i;
}

void compare(const std::string& room, const std::string& type, const Dict& params) {
  const LoadedPlugin on_cpu("optimizer_" + room, type), on_gpu("optimizer_" + room + "_cuda", type);
  for (const auto& types : kAllTypes) {
    // One element, a tail, more elements than one wave of threads, and an odd start.
    for (const auto& [numel, offset] : {std::pair<uint64_t, uint64_t>{1, 0}, {1023, 0}, {3'000'001, 0}, {4097, 1}}) {
      TestHost host;
      OptimizerUnderTest cpu(on_cpu, params, host), gpu(on_gpu, params, host);
      ASSERT_EQ(cpu.states(), gpu.states());
      ASSERT_EQ(cpu.params.hyper, gpu.params.hyper);
      UpdateCase expected(types, numel, cpu.states().size()), found = expected;
      expected.grad_scale = found.grad_scale = 0.37;
      DeviceCase device(found, offset);
      for (uint64_t step = 1; step <= 3; ++step) {
        expected.update(cpu, step);
        device.update(gpu, step);
      }
      device.download();
      const double unit = types.param == GANNET_FLOAT64 ? 0x1p-53 : 0x1p-24;
      const std::string what = type + " with types " + std::to_string(types.param) + " " + std::to_string(types.grad) + " " +
                               std::to_string(types.out);
      expect_same(found.param, expected.param, numel, unit, what + ": parameter");
      for (size_t s = 0; s < found.states.size(); ++s)
        expect_same(found.states[s], expected.states[s], numel, unit, what + ": state");
      const double out_unit = types.out == GANNET_BFLOAT16 ? 0x1p-8 : 0x1p-11;
      if (types.out != GANNET_DTYPE_NONE) expect_same(found.out, expected.out, numel, out_unit / 8, what + ": copy");
    }
  }
}

TEST_F(OptimizersOnGpu, AdamEqualsTheCpus) {
  compare("adam", "AdamW", Dict{{"lr", 0.02}, {"weight_decay", 0.3}});
  compare("adam", "Adam", Dict{{"lr", 0.02}, {"weight_decay", 0.3}, {"adam_w_mode", false}});
  compare("adam", "Adam", Dict{{"lr", 0.02}, {"bias_correction", false}});
  compare("adam", "AdamW", Dict{{"lr", 0.02}, {"torch_adam", true}});
}

TEST_F(OptimizersOnGpu, SgdEqualsTheCpus) {
  compare("sgd", "SGD", Dict{{"lr", 0.02}, {"weight_decay", 0.3}});
  compare("sgd", "SGD", Dict{{"lr", 0.02}, {"momentum", 0.9}, {"dampening", 0.1}, {"maximize", true}});
  compare("sgd", "SGD", Dict{{"lr", 0.02}, {"momentum", 0.9}, {"nesterov", true}});
}

TEST_F(OptimizersOnGpu, TwiceTheSameUpdateIsBitwiseTheSame) {
  const LoadedPlugin plugin("optimizer_adam_cuda", "AdamW");
  TestHost host;
  OptimizerUnderTest adam(plugin, Dict{{"lr", 0.02}}, host);
  UpdateCase first(kAllTypes[4], 100'001, 2), second = first;
  for (UpdateCase* run : {&first, &second}) {
    DeviceCase device(*run, 0);
    device.update(adam, 1);
    device.download();
  }
  EXPECT_TRUE(first.same_result(second));
}

TEST_F(OptimizersOnGpu, MemoryOfTheHostIsRefused) {
  for (const auto& [room, type] : {std::pair<std::string, std::string>{"adam", "AdamW"}, {"sgd", "SGD"}}) {
    const LoadedPlugin plugin("optimizer_" + room + "_cuda", type);
    TestHost host;
    OptimizerUnderTest optimizer(plugin, Dict{{"lr", 0.02}}, host);
    UpdateCase run(kAllTypes[0], 10, 2);
    try {
      run.update(optimizer, 1);
      ADD_FAILURE() << "host memory was taken";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("the parameters are in host memory"));
    }
  }
}

}  // namespace
}  // namespace gannet::test
