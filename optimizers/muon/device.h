// Muon on a device. It copies nothing to the host and never waits for the device.
//
// Between steps, the object keeps device memory for two copies of its largest matrix in fp32 (four
// for an fp64 matrix) and for four square matrices of its smaller dimension. A matrix costs 20 to
// 27 launches; the matrices of one tensor are processed one after another.
#pragma once

#include "optimizers/device/part.h"
#include "optimizers/device/team.h"
#include "optimizers/muon/base.h"
#include "optimizers/muon/newton_schulz.h"
#include "optimizers/muon/product_kernel.h"

namespace gannet::rules {
namespace device {

#include "optimizers/adam/rule.h"
#include "optimizers/muon/rule.h"

// Computes the sum of squares of each block of kBlock elements of x, in double.
struct SquaresKernel {
  static constexpr unsigned kThreads = 256;
  static constexpr uint64_t kBlock = sdk::kGrain;
  struct Shared {
    double sums[kThreads];
  };
  const float* x;
  uint64_t numel;
  double* sums;  // one per block

  static uint64_t blocks(uint64_t numel) { return ceil_div(numel, kBlock); }
  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t block, Shared& shared) const {
    team.each([&](unsigned t) {
      const uint64_t begin = block * kBlock, end = begin + kBlock < numel ? begin + kBlock : numel;
      Scalar<double> sum = 0;
      for (uint64_t i = begin + t; i < end; i += kThreads) sum = fma(Scalar<double>(x[i]), Scalar<double>(x[i]), sum);
      shared.sums[t] = sum.value;
    });
    add_up<kThreads>(team, shared.sums);
    team.each([&](unsigned t) {
      if (t == 0) sums[block] = shared.sums[0];
    });
  }
};

// Computes the factor that normalizes x, from the sums of its blocks. Runs as one thread block.
struct NormalizingKernel {
  static constexpr unsigned kThreads = 256;
  struct Shared {
    double sums[kThreads];
  };
  const double* sums;
  uint64_t count;
  float* factor;

  template <class Team>
  GANNET_DEVICE void operator()(const Team& team, uint64_t, Shared& shared) const {
    team.each([&](unsigned t) {
      double sum = 0;
      for (uint64_t i = t; i < count; i += kThreads) sum += sums[i];
      shared.sums[t] = sum;
    });
    add_up<kThreads>(team, shared.sums);
    team.each([&](unsigned t) {
      if (t == 0) *factor = muon_normalizing_factor(sqrt(Scalar<double>(shared.sums[0])).value);
    });
  }
};

struct ScaleByFactor {
  float* x;
  const float* factor;
  GANNET_DEVICE void operator()(uint64_t i) const { x[i] *= *factor; }
};

// Computes q = z + a I, [n, n].
struct AddToDiagonal {
  const float* z;
  uint64_t n;
  float a;
  float* q;
  GANNET_DEVICE void operator()(uint64_t i) const { q[i] = i / n == i % n ? z[i] + a : z[i]; }
};

template <class To, class From>
struct ConvertElements {
  const From* from;
  To* to;
  GANNET_DEVICE void operator()(uint64_t i) const { to[i] = static_cast<To>(from[i]); }
};

// The arithmetic that NewtonSchulz needs. `work` belongs to the current call.
template <class Work>
struct Arithmetic {
  static constexpr size_t kFirstSlot = 0, kSlots = 5;
  Work* work = nullptr;

  float* floats(size_t slot, uint64_t count) { return work->template memory<float>(kFirstSlot + slot, count); }
  void multiply(const Product& product) {
    const ProductKernel kernel{product};
    work->run(kernel, kernel.blocks());
  }
  void add_to_diagonal(const float* z, uint64_t n, float a, float* q) { run_each(*work, n * n, AddToDiagonal{z, n, a, q}); }
};

}  // namespace device

template <class Device>
class MuonOn : public MuonBase {
 public:
  using MuonBase::MuonBase;

  void update(const gannet_update_args& args) {
    if (args.numel == 0) return;
    Work work(device_, args);
    orthogonalize_.arithmetic().work = &work;
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      const bool is_wide = args.param_dtype == GANNET_FLOAT64;
      if (is_adams(part))
        is_wide ? update_by_adam<double>(work, args, part) : update_by_adam<float>(work, args, part);
      else
        is_wide ? update_by_muon<double>(work, args, part) : update_by_muon<float>(work, args, part);
    }
  }

 private:
  using Work = typename Device::Work;
  using Arithmetic = device::Arithmetic<Work>;
  enum Memory : size_t { kDirection = Arithmetic::kSlots, kWide, kSquares, kFactor };

  template <class T>
  void update_by_adam(Work& work, const gannet_update_args& args, const gannet_segment& segment) const {
    const UpdatePart<2> part(args, segment.offset, segment.numel);
    work.each(device::AdamRule<T>(adam_step_of(args)), part.args);
  }

  // T is the master's type. The direction has that type and is orthogonalized in fp32.
  template <class T>
  void update_by_muon(Work& work, const gannet_update_args& all, const gannet_segment& segment) {
    const Matrices matrices = matrices_of(segment.shape, segment.dimensions);
    const uint64_t numel = matrices.rows * matrices.columns;
    if (numel == 0) return;
    const MuonStep step = muon_step_of(all, matrices);
    const MuonNumbers<T> numbers = muon_numbers<T>(step);
    float* const x = work.template memory<float>(kDirection, numel);
    T* const direction = direction_memory(work, x, numel, T());
    for (uint64_t m = 0; m < matrices.count; ++m) {
      const UpdatePart<1> part(all, segment.offset + m * numel, numel);
      gannet_update_args args = part.args;
      args.param = direction;
      args.out = nullptr;
      args.out_dtype = GANNET_DTYPE_NONE;
      if (step.nesterov)
        work.each(device::MuonDirectionRule<T, true>{numbers}, args);
      else
        work.each(device::MuonDirectionRule<T, false>{numbers}, args);
      convert(work, direction, x, numel);
      normalize(work, x, numel);
      const float* u = orthogonalize_(x, matrices.rows, matrices.columns, {config().ns_steps, config().gram});
      convert(work, u, direction, numel);

      args = part.args;
      args.grad = std::is_same_v<T, float> ? static_cast<const void*>(u) : direction;
      args.grad_dtype = all.param_dtype;
      args.grad_scale = 1;
      work.each(device::MuonApplyRule<T>{numbers}, args);
    }
  }

  // For fp32 masters the direction is x itself.
  static float* direction_memory(Work&, float* x, uint64_t, float) { return x; }
  static double* direction_memory(Work& work, float*, uint64_t numel, double) {
    return work.template memory<double>(kWide, numel);
  }
  static void convert(Work&, const float*, float*, uint64_t) {}
  template <class From, class To>
  static void convert(Work& work, const From* from, To* to, uint64_t numel) {
    device::run_each(work, numel, device::ConvertElements<To, From>{from, to});
  }

  static void normalize(Work& work, float* x, uint64_t numel) {
    const uint64_t blocks = device::SquaresKernel::blocks(numel);
    double* const squares = work.template memory<double>(kSquares, blocks);
    float* const factor = work.template memory<float>(kFactor, 1);
    work.run(device::SquaresKernel{x, numel, squares}, blocks);
    work.run(device::NormalizingKernel{squares, blocks, factor}, 1);
    device::run_each(work, numel, device::ScaleByFactor{x, factor});
  }

  Device device_;
  NewtonSchulz<Arithmetic> orthogonalize_;
};

}  // namespace gannet::rules
