// The CUDA kernels of optimizers that are more than a rule of one element, beside the same kernels on the host
// (optimizers/hosted.h), whose bits they must give, and beside the CPU's loops.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <cstring>

#include "gpu/gpu_test.h"
#include "optimizers/hosted_cases.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

using GroupOptimizersOnGpu = GpuTest;

// A copy of an array of the host in device memory, between canaries.
class DeviceArray {
 public:
  // `shift`: bytes, so that the array is not aligned to more than its elements.
  DeviceArray(const void* from, uint64_t bytes, uint64_t shift) : bytes_(bytes), shift_(shift) {
    if (bytes == 0) return;
    std::vector<char> all(bytes + shift + 2 * kMargin, kCanary);
    std::memcpy(all.data() + kMargin + shift, from, bytes);
    memory_ =
        at::empty({static_cast<int64_t>(all.size())}, at::TensorOptions().dtype(at::kByte).device(at::Device(at::kCUDA, 0)));
    memory_.copy_(view(all));
  }
  void* data() const { return memory_.defined() ? static_cast<char*>(memory_.data_ptr()) + kMargin + shift_ : nullptr; }
  // Over what went up. Throws where a canary was written.
  void download(void* to) {
    if (bytes_ == 0) return;
    std::vector<char> all(bytes_ + shift_ + 2 * kMargin);
    view(all).copy_(memory_);
    for (uint64_t i = 0; i < all.size(); ++i)
      if ((i < kMargin + shift_ || i >= kMargin + shift_ + bytes_) && all[i] != kCanary)
        throw std::runtime_error("a kernel wrote outside of an array of " + std::to_string(bytes_) + " bytes, at byte " +
                                 std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(kMargin + shift_)));
    std::memcpy(to, all.data() + kMargin + shift_, bytes_);
  }

 private:
  static constexpr uint64_t kMargin = 256;
  static constexpr char kCanary = 0x5a;
  static at::Tensor view(std::vector<char>& all) {
    return at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::TensorOptions().dtype(at::kByte));
  }
  uint64_t bytes_, shift_;
  at::Tensor memory_;
};

// GroupCase::place: the arrays of a piece in device memory, `shift` elements off what is aligned, on `stream`.
auto on_device(const GroupCase& group, uint64_t shift = 0, void* stream = nullptr) {
  return [&group, shift, stream](const gannet_update_args& args, const GroupCase::Call& call) {
    const auto array = [&](const void* from, uint32_t dtype) {
      return DeviceArray(from, from ? args.numel * bytes_of(dtype) : 0, shift * bytes_of(dtype));
    };
    DeviceArray param = array(args.param, args.param_dtype), grad = array(args.grad, args.grad_dtype),
                out = array(args.out, args.out_dtype);
    std::vector<DeviceArray> states;
    std::vector<void*> pointers(args.states, args.states + args.state_count);
    for (uint64_t s = 0; s < args.state_count; ++s) {
      const uint64_t bytes = group.state_bytes(s, args.numel);
      states.emplace_back(pointers[s], bytes, bytes > 0 ? shift * group.states[s].element_bytes() : 0);
      if (bytes > 0) pointers[s] = states.back().data();
    }
    gannet_update_args copy = args;
    copy.param = param.data();
    copy.grad = grad.data();
    copy.out = out.data();
    copy.states = pointers.data();
    copy.stream = stream;
    Gpu::instance().accelerator->synchronize(0);
    call(copy);
    Gpu::instance().accelerator->synchronize(0);
    param.download(args.param);
    if (args.out) out.download(args.out);
    for (uint64_t s = 0; s < args.state_count; ++s) states[s].download(args.states[s]);
  };
}

LoadedPlugin on_gpu(const HostedCase& each) { return LoadedPlugin("optimizer_" + each.folder + "_cuda", each.type); }

void train(GroupCase& group, const HostedCase& each, uint32_t steps) {
  group.grad_scale = 0.37;
  for (uint32_t step = 1; step <= steps; ++step) {
    group.random_gradients(step);
    group.step(each.ends(group, step));
  }
}

TEST_F(GroupOptimizersOnGpu, GiveTheBitsOfTheSameKernelsOnTheHost) {
  for (const HostedCase& each : hosted_cases()) {
    const LoadedPlugin cuda = on_gpu(each), hosted(hosted_file(each), each.type);
    for (const auto& types : kAllTypes) {
      if (!each.takes(types)) continue;
      for (const uint64_t shift : {uint64_t{0}, uint64_t{1}}) {
        TestHost host;
        const auto found = each.group(cuda, host, types), expected = each.group(hosted, host, types);
        found->place = on_device(*found, shift);
        train(*found, each, 20);
        train(*expected, each, 20);
        EXPECT_TRUE(found->same_result(*expected))
            << each << " with types " << types.param << " " << types.grad << " " << types.out << ", shifted by " << shift << ": "
            << relative_distance(found->values(), expected->values());
      }
    }
  }
}

TEST_F(GroupOptimizersOnGpu, TrainAsTheCpuDoes) {
  for (const HostedCase& each : hosted_cases()) {
    const LoadedPlugin cuda = on_gpu(each), on_cpu("optimizer_" + each.folder, each.type);
    for (const auto& types : kAllTypes) {
      if (!each.takes(types)) continue;
      TestHost host;
      const auto found = each.group(cuda, host, types), expected = each.group(on_cpu, host, types);
      found->place = on_device(*found);
      train(*found, each, 25);
      train(*expected, each, 25);
      const std::string what = each.name + " with types " + std::to_string(types.param) + " " + std::to_string(types.grad) + " " +
                               std::to_string(types.out);
      if (each.is_exact && __builtin_cpu_supports("fma")) {
        EXPECT_TRUE(found->same_arrays(*expected)) << what;
      } else {
        // Sums in another order: what follows from them may be rounded otherwise in every step.
        const double unit = types.param == GANNET_FLOAT64 ? 0x1p-53 : 0x1p-24;
        EXPECT_LT(relative_distance(found->values(), expected->values()), 25 * unit) << what;
      }
    }
  }
}

TEST_F(GroupOptimizersOnGpu, GiveTheSameBitsAgainAndOnAnotherStream) {
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
  const c10::Device device(c10::DeviceType::CUDA, 0);
  const c10::Stream other = impl.getStreamFromGlobalPool(device);
  for (const HostedCase& each : hosted_cases()) {
    const LoadedPlugin cuda = on_gpu(each);
    TestHost host;
    const auto run = [&](void* stream) {
      auto group = each.group(cuda, host, kAllTypes[4]);
      group->place = on_device(*group, 0, stream);
      train(*group, each, 5);
      return group;
    };
    const auto first = run(nullptr);
    EXPECT_TRUE(run(nullptr)->same_result(*first)) << each;
    EXPECT_TRUE(run(other.native_handle())->same_result(*first)) << each;
  }
}

// One object, whose memory both calls use, while the first stream is still at work.
TEST_F(GroupOptimizersOnGpu, ACallOnAnotherStreamWaitsForTheLastOne) {
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
  const c10::Device device(c10::DeviceType::CUDA, 0);
  void* const streams[] = {impl.getStreamFromGlobalPool(device).native_handle(),
                           impl.getStreamFromGlobalPool(device).native_handle()};
  const HostedCase each{.name = "Muon", .folder = "muon", .type = "Muon", .params = Dict{{"lr", 0.1}}};
  const LoadedPlugin cuda = on_gpu(each);
  const auto run = [&](bool alternates) {
    TestHost host;
    GroupCase group(cuda, each.params, host, kAllTypes[0], {{"weight", {500, 700}}});
    group.random_gradients(1);
    const int64_t numel = static_cast<int64_t>(group.numel);
    const auto options = at::TensorOptions().dtype(at::kFloat).device(at::Device(at::kCUDA, 0));
    // Two copies of the group: each call updates one of them, so that nothing but the object's memory is shared.
    at::Tensor param[2], momentum[2], grad = at::empty({numel}, options);
    grad.copy_(at::from_blob(group.grad.at(0), {numel}, at::TensorOptions().dtype(at::kFloat)));
    for (int i = 0; i < 2; ++i) {
      param[i] = at::empty({numel}, options).fill_(0);
      momentum[i] = at::empty({numel}, options).fill_(0);
    }
    Gpu::instance().accelerator->synchronize(0);
    int call = 0;
    group.place = [&](const gannet_update_args& args, const GroupCase::Call& update) {
      gannet_update_args copy = args;
      void* state = momentum[call % 2].data_ptr();
      copy.param = param[call % 2].data_ptr();
      copy.grad = grad.data_ptr();
      copy.states = &state;
      copy.stream = streams[alternates ? call % 2 : 0];
      ++call;
      update(copy);
    };
    for (int i = 0; i < 20; ++i) group.step();
    Gpu::instance().accelerator->synchronize(0);
    return std::pair(param[0].cpu(), param[1].cpu());
  };
  const auto expected = run(false), found = run(true);
  EXPECT_TRUE(at::equal(found.first, expected.first));
  EXPECT_TRUE(at::equal(found.second, expected.second));
}

TEST_F(GroupOptimizersOnGpu, MemoryOfTheHostIsRefused) {
  for (const HostedCase& each : hosted_cases()) {
    const LoadedPlugin cuda = on_gpu(each);
    TestHost host;
    const auto group = each.group(cuda, host, kAllTypes[0]);
    try {
      group->step();
      ADD_FAILURE() << each << ": host memory was taken";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("the parameters are in host memory")) << each;
    }
  }
}

}  // namespace
}  // namespace gannet::test
