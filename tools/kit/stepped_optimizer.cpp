#include "kit/stepped_optimizer.h"

#include <gannet/error.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>

#include "base/format.h"
#include "base/parallel.h"
#include "interfaces/seeds.h"
#include "interfaces/tensor_lines.h"
#include "plugin/plugin.h"

namespace gannet::kit {
namespace {

constexpr uint64_t kGrain = 16384, kColumns = 1024, kTensors = 16;

// Sets a state's initial values, for the types that represent them exactly.
void fill_state(void* data, uint32_t dtype, uint64_t numel, double value) {
  if (value == 0) return;
  for (uint64_t i = 0; i < numel; ++i) {
    if (dtype == GANNET_FLOAT64)
      static_cast<double*>(data)[i] = value;
    else if (dtype == GANNET_FLOAT32)
      static_cast<float*>(data)[i] = static_cast<float>(value);
    else if (dtype == GANNET_INT64)
      static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
    else
      return;
  }
}

}  // namespace

uint64_t size_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
    case GANNET_INT64:
      return 8;
    case GANNET_FLOAT32:
    case GANNET_INT32:
      return 4;
    case GANNET_FLOAT16:
    case GANNET_BFLOAT16:
    case GANNET_INT16:
      return 2;
    default:
      return 1;
  }
}

Memory::Memory(uint64_t bytes) : bytes_(std::max<uint64_t>(bytes, 1)) {
  place_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place_ == MAP_FAILED)
    throw Error(ErrorCode::kOutOfMemory, formatted("{} bytes cannot be allocated", bytes_), "set --numel lower");
  madvise(place_, bytes_, MADV_HUGEPAGE);
}
Memory::~Memory() { munmap(place_, bytes_); }

// Writes numbers of moderate size: for fp32, fp64 and bf16 they differ; for fp16 they are all the
// same.
void fill(void* data, uint32_t dtype, uint64_t numel, float scale) {
  gannet::parallel_for(0, numel, kGrain, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const float value = scale * (1 + static_cast<float>(i % 61)) * (i % 3 == 0 ? -1.0f : 1.0f);
      if (dtype == GANNET_FLOAT64)
        static_cast<double*>(data)[i] = value;
      else if (dtype == GANNET_FLOAT32)
        static_cast<float*>(data)[i] = value;
      else
        static_cast<uint16_t*>(data)[i] = dtype == GANNET_BFLOAT16 ? static_cast<uint16_t>(0x3c00 + i % 64) : 0x2000;
    }
  });
}

SteppedOptimizer::SteppedOptimizer(const plugin::Plugin& plugin, const Dict& params, DTypes types, uint64_t numel)
    : types_(types),
      numel_(numel / (kTensors * kColumns) * (kTensors * kColumns)),
      optimizer_(plugin, plugin::parse_params(plugin, params, [](const std::string&) { return "--params"; }), host_),
      param_(numel_ * size_of(types.param)),
      grad_(numel_ * size_of(types.grad)),
      out_(numel_ * size_of(types.out)) {
  Optimizer::Context context;
  const uint64_t rows = numel_ / (kTensors * kColumns);
  for (uint64_t t = 0; t < kTensors; ++t)
    context.tensors.push_back({formatted("h.{}.weight", t), t, {static_cast<int64_t>(rows), int64_t{kColumns}}, rows * kColumns});
  optimizer_.describe(context);
  tensors_ = std::move(context.tensors);
  TensorLines lines;
  for (const auto& tensor : tensors_) {
    lines = TensorLines::of(tensor.shape, tensor.numel, lines);
    gannet_segment segment{};
    segment.struct_size = sizeof(segment);
    segment.dimensions = 2;
    segment.tensor_index = segment.tensor_id = tensor.id;
    segment.offset = tensor.id * tensor.numel;
    segment.numel = segment.tensor_numel = tensor.numel;
    segment.shape = tensor.shape.data();
    segment.name = tensor.name.c_str();
    segment.seed = tensor_seed(tensor.name);
    lines.write_to(segment);
    segments_.push_back(segment);
  }
  fill(param_.data(), types.param, numel_, 1e-2f);
  fill(grad_.data(), types.grad, numel_, 1e-4f);
  add_states();
  for (const auto& sum : optimizer_.sums()) {
    lines_.emplace_back(sum.is_of_lines() ? optimizer_.line_count(sum) : 0);
    line_places_.push_back(lines_.back().empty() ? nullptr : lines_.back().data());
  }
  sums_.resize(kTensors * optimizer_.sums().size());
  workspace_ = std::make_unique<Memory>(optimizer_.workspace_bytes(numel_));
}

double SteppedOptimizer::update_bytes() const {
  const double both_ways = static_cast<double>(numel_ * size_of(types_.param) + state_bytes_);
  return 2 * both_ways / static_cast<double>(numel_) + static_cast<double>(size_of(types_.grad)) +
         (types_.out == GANNET_DTYPE_NONE ? 0 : static_cast<double>(size_of(types_.out)));
}
std::pair<double, double> SteppedOptimizer::run() {
  const auto begin = std::chrono::steady_clock::now();
  ++step_;
  const auto args = arguments();
  for (auto& each : lines_) std::fill(each.begin(), each.end(), 0);
  const auto& specs = optimizer_.sums();
  for (size_t i = 0; i < sums_.size(); ++i) {  // sums over no elements
    const gannet_reduce_op op = specs[i % specs.size()].op;
    sums_[i] = op == GANNET_MAX   ? -std::numeric_limits<double>::infinity()
               : op == GANNET_MIN ? std::numeric_limits<double>::infinity()
                                  : 0;
  }
  step_group(&Optimizer::begin_step, nullptr);
  for (uint32_t round = 0; !sums_.empty() && round <= optimizer_.sums().back().round; ++round) {
    optimizer_.sums(args, round, sums_.data());
    combine(round);
  }
  const auto summed = std::chrono::steady_clock::now();
  optimizer_.update(args);
  step_group(&Optimizer::end_step, sums_.data());
  const auto end = std::chrono::steady_clock::now();
  return {std::chrono::duration<double>(summed - begin).count(), std::chrono::duration<double>(end - begin).count()};
}

void SteppedOptimizer::add_states() {
  const auto& specs = optimizer_.states();
  for (const auto& state : specs) {
    const uint32_t dtype = state.dtype != GANNET_DTYPE_NONE           ? uint32_t{state.dtype}
                           : state.extent == GANNET_STATE_PER_ELEMENT ? types_.param
                                                                      : uint32_t{GANNET_FLOAT32};
    const uint64_t count = state.has_matrices() ? 0 : state.is_cut() ? state.values_of(numel_) : optimizer_.group_numel(state);
    states_.push_back(std::make_unique<Memory>(count * size_of(dtype)));
    places_.push_back(state.has_matrices() ? nullptr : states_.back()->data());
    if (state.is_cut()) state_bytes_ += count * size_of(dtype);
    if (state.has(GANNET_STATE_FROM_PARAMETER) && dtype == types_.param)
      std::memcpy(states_.back()->data(), param_.data(), count * size_of(dtype));
    else
      fill_state(states_.back()->data(), dtype, count, state.initial_value);
  }
  if (!optimizer_.has_matrix_states()) return;
  for (uint64_t t = 0; t < kTensors; ++t)
    for (const auto& state : specs) {
      const Optimizer::Matrices of = optimizer_.matrices_of(state, t);
      const uint32_t dtype = state.dtype == GANNET_DTYPE_NONE ? uint32_t{GANNET_FLOAT32} : uint32_t{state.dtype};
      matrices_.push_back(std::make_unique<Memory>(of.numel() * size_of(dtype)));
      matrix_places_.push_back(of.numel() == 0 ? nullptr : matrices_.back()->data());
      if (!state.is_square()) fill_state(matrices_.back()->data(), dtype, of.numel(), state.initial_value);
      for (uint64_t i = 0; state.is_square() && dtype == GANNET_FLOAT32 && i < of.numel(); i += of.rows + 1)
        static_cast<float*>(matrices_.back()->data())[i] = static_cast<float>(state.initial_value);
    }
}

// Does the host's part of a round. With one piece, only the sums of the group and of the model need
// to be combined; every tensor gets the result.
void SteppedOptimizer::combine(uint32_t round) {
  const auto& specs = optimizer_.sums();
  for (size_t k = 0; k < specs.size(); ++k) {
    if (specs[k].round != round || specs[k].scope == GANNET_SUM_OF_TENSOR || specs[k].is_of_lines()) continue;
    double total = sums_[k];
    for (size_t t = 1; t < kTensors; ++t) {
      const double part = sums_[t * specs.size() + k];
      total = specs[k].op == GANNET_MAX   ? std::max(total, part)
              : specs[k].op == GANNET_MIN ? std::min(total, part)
                                          : total + part;
    }
    for (size_t t = 0; t < kTensors; ++t) sums_[t * specs.size() + k] = total;
  }
}

gannet_update_args SteppedOptimizer::arguments() {
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = types_.param;
  args.grad_dtype = types_.grad;
  args.out_dtype = types_.out;
  args.numel = numel_;
  args.param = param_.data();
  args.grad = grad_.data();
  args.out = types_.out == GANNET_DTYPE_NONE ? nullptr : out_.data();
  args.states = places_.data();
  args.state_count = places_.size();
  args.grad_scale = 0.5;
  args.step = step_;
  args.hyper = optimizer_.hyper_values().data();
  args.hyper_count = optimizer_.hyper_values().size();
  args.segments = segments_.data();
  args.segment_count = segments_.size();
  args.segment_stride = sizeof(gannet_segment);
  args.sums = sums_.data();
  args.sum_count = optimizer_.sums().size();
  args.lines = line_places_.data();
  args.seed = step_seed(1, static_cast<int64_t>(step_));
  args.workspace_bytes = optimizer_.workspace_bytes(numel_);
  args.workspace = args.workspace_bytes == 0 ? nullptr : workspace_->data();
  args.squares = matrix_places_.empty() ? nullptr : matrix_places_.data();
  args.loss = 1;
  if (optimizer_.takes_device_numbers()) {
    numbers_ = {0, args.grad_scale, static_cast<double>(step_)};
    numbers_.insert(numbers_.end(), optimizer_.hyper_values().begin(), optimizer_.hyper_values().end());
    args.device_numbers = numbers_.data();
    args.device_number_count = numbers_.size();
  }
  return args;
}

void SteppedOptimizer::step_group(void (Optimizer::*function)(gannet_step_args), const double* sums) {
  std::vector<void*> of_group = places_;
  for (size_t s = 0; s < of_group.size(); ++s)
    if (!optimizer_.states()[s].is_of_group()) of_group[s] = nullptr;
  gannet_step_args args{};
  args.step = step_;
  args.grad_scale = 0.5;
  args.hyper = optimizer_.hyper_values().data();
  args.hyper_count = optimizer_.hyper_values().size();
  args.states = of_group.data();
  args.state_count = of_group.size();
  args.sums = sums;
  args.sum_count = optimizer_.sums().size();
  args.lines = sums ? line_places_.data() : nullptr;
  args.seed = step_seed(1, static_cast<int64_t>(step_));
  args.workspace_bytes = optimizer_.workspace_bytes(0);
  args.workspace = args.workspace_bytes == 0 ? nullptr : workspace_->data();
  args.loss = 1;
  const Host::OpenMetrics metrics(host_, [](const std::string&, double) {});
  (optimizer_.*function)(args);
}

}  // namespace gannet::kit
