// A parameter group of several contiguous tensors in one range, run by the contract: begin_step,
// the rounds of sums, update, end_step; in one piece or cut into several.
//
//   GroupCase group(lamb(), Dict{{"lr", 0.1}}, host, kAllTypes[0], {{"weight", {30, 7}}, {"bias", {30}}});
//   group.step();                     // all in one piece
//   group.step({0, 11, group.numel}); // in two
//
// Covers every extent of a state, and every scope of a sum except those of the group and of the
// model.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "optimizers/update_case.h"

namespace gannet::test {

class GroupCase {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    uint64_t offset = 0, numel = 1;  // filled in
  };

  using Call = std::function<void(const gannet_update_args&)>;

  // `gap`: elements between tensors that are no tensor's, as an engine's padding; `alignment`: tensors begin at multiples of it,
  // which an optimizer may ask for. Parameters are normally distributed.
  GroupCase(const LoadedPlugin& plugin, const Dict& params, TestHost& host, Types types, std::vector<Tensor> group,
            uint64_t gap = 0, uint64_t alignment = 1)
      : types(types),
        tensors(placed(std::move(group), gap, alignment)),
        numel(tensors.back().offset + tensors.back().numel),
        param(types.param, numel),
        grad(types.grad, numel),
        out(types.out, numel),
        optimizer(plugin, params, host) {
    uint64_t rows = 0, columns = 0;
    for (uint64_t t = 0; t < tensors.size(); ++t) {
      const auto& shape = tensors[t].shape;
      const size_t dimensions = shape.size();
      gannet_tensor view{};
      view.struct_size = sizeof(view);
      view.dimensions = static_cast<uint32_t>(dimensions);
      view.index = view.id = t;
      view.name = tensors[t].name.c_str();
      view.numel = tensors[t].numel;
      view.shape = shape.data();
      view.columns = dimensions > 0 ? static_cast<uint64_t>(shape[dimensions - 1]) : 1;
      view.matrix_rows = dimensions > 1 ? static_cast<uint64_t>(shape[dimensions - 2]) : 1;
      view.first_row = rows;
      view.first_column = columns;
      rows += view.numel / view.columns;
      columns += view.numel / view.matrix_rows;
      views_.push_back(view);
    }
    gannet_optimizer_context context{};
    context.struct_size = sizeof(context);
    context.group_count = context.world_size = 1;
    context.tensors = views_.data();
    context.tensor_count = views_.size();
    context.tensor_stride = sizeof(gannet_tensor);
    const gannet_optimizer_description found = optimizer.describe(context);
    capabilities = found.capabilities;
    for (uint64_t s = 0; s < found.state_count; ++s) {
      const gannet_state_spec& spec = found.states[s];
      const bool is_elements = spec.extent == GANNET_STATE_PER_ELEMENT;
      const uint32_t dtype = spec.dtype != GANNET_DTYPE_NONE ? spec.dtype : is_elements ? types.param : uint32_t{GANNET_FLOAT32};
      state_names.emplace_back(spec.name);
      const uint64_t block = is_elements ? 1 : spec.block;  // 0: it is not cut into pieces
      const uint64_t count = block > 0                                ? (numel + block - 1) / block
                             : spec.extent == GANNET_STATE_PER_ROW    ? rows
                             : spec.extent == GANNET_STATE_PER_COLUMN ? columns
                             : spec.extent == GANNET_STATE_SCALAR     ? 1
                                                                      : views_.size();
      states.emplace_back(dtype, count);
      for (uint64_t i = 0; i < count; ++i) states[s].set(i, spec.initial_value);
      cuts_.push_back({block, bytes_of(dtype)});
    }
    sum_count_ = found.sum_count;
    for (uint64_t k = 0; k < found.sum_count; ++k) {
      const gannet_sum_spec& spec = found.sums[k];
      sum_rounds_.push_back(spec.round);
      const bool of_rows = spec.scope == GANNET_SUM_OF_ROW, of_columns = spec.scope == GANNET_SUM_OF_COLUMN;
      lines_.emplace_back(of_rows ? rows : of_columns ? columns : 0);
    }
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (uint64_t i = 0; i < numel; ++i) param.set(i, normal(random));
  }

  void random_gradients(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (uint64_t i = 0; i < numel; ++i) grad.set(i, normal(random));
  }

  // `ends`: of the pieces, from 0 to numel.
  void step(std::vector<uint64_t> ends = {}) {
    if (ends.empty()) ends = {0, numel};
    ++steps;
    sums_.assign(views_.size() * sum_count_, 0);
    for (auto& line : lines_) std::fill(line.begin(), line.end(), 0);
    optimizer.begin_step(step_args(false));
    const uint32_t rounds = sum_rounds_.empty() ? 0 : sum_rounds_.back() + 1;
    for (uint32_t round = 0; round < rounds; ++round) {
      std::vector<double> parts = sums_;
      for (size_t piece = 0; piece + 1 < ends.size(); ++piece)
        run(ends[piece], ends[piece + 1], [&](const gannet_update_args& args) {
          std::vector<double> rows(args.segment_count * sum_count_);
          optimizer.sums(args, round, rows.data());
          for (uint64_t k = 0; k < rows.size(); ++k)
            if (sum_rounds_[k % sum_count_] == round)
              parts[args.segments[k / sum_count_].tensor_index * sum_count_ + k % sum_count_] += rows[k];
        });
      sums_ = parts;
    }
    for (size_t piece = 0; piece + 1 < ends.size(); ++piece)
      run(ends[piece], ends[piece + 1], [&](const gannet_update_args& args) { optimizer.update(args); });
    optimizer.end_step(step_args(true));
  }

  std::vector<double> values() const {
    std::vector<double> all;
    for (uint64_t i = 0; i < numel; ++i) all.push_back(param.get(i));
    return all;
  }
  double sum(uint64_t tensor, uint64_t which) const { return sums_[tensor * sum_count_ + which]; }
  bool same_result(const GroupCase& other) const { return same_arrays(other) && sums_ == other.sums_ && lines_ == other.lines_; }
  bool same_arrays(const GroupCase& other) const { return param == other.param && out == other.out && states == other.states; }
  // Bytes of a state for a piece of `piece_numel` elements; 0: it is not cut, and in host memory.
  uint64_t state_bytes(size_t s, uint64_t piece_numel) const {
    return cuts_[s].block == 0 ? 0 : (piece_numel + cuts_[s].block - 1) / cuts_[s].block * cuts_[s].bytes;
  }

  Types types;
  std::vector<Tensor> tensors;
  uint64_t numel;
  Buffer param, grad, out;
  std::vector<std::string> state_names;
  std::vector<Buffer> states;  // [numel] or [tensors]
  OptimizerUnderTest optimizer;
  uint64_t capabilities = 0, steps = 0;
  double grad_scale = 1;
  // Where given, makes each call of sums() and update(): with copies of the arrays in a device's memory.
  std::function<void(const gannet_update_args&, const Call&)> place;

 private:
  struct Cut {
    uint64_t block, bytes;  // of a value
  };
  static std::vector<Tensor> placed(std::vector<Tensor> group, uint64_t gap, uint64_t alignment) {
    uint64_t offset = 0;
    for (Tensor& tensor : group) {
      offset = (offset + alignment - 1) / alignment * alignment;
      tensor.offset = offset;
      for (const int64_t size : tensor.shape) tensor.numel *= static_cast<uint64_t>(size);
      offset += tensor.numel + gap;
    }
    return group;
  }
  gannet_step_args step_args(bool is_end) {
    step_states_.clear();
    for (size_t s = 0; s < states.size(); ++s) step_states_.push_back(cuts_[s].block > 0 ? nullptr : states[s].at(0));
    gannet_step_args args{};
    args.struct_size = sizeof(args);
    args.step = steps;
    args.grad_scale = grad_scale;
    args.hyper = optimizer.params.hyper.data();
    args.hyper_count = optimizer.params.hyper.size();
    args.tensors = views_.data();
    args.tensor_count = views_.size();
    args.tensor_stride = sizeof(gannet_tensor);
    args.states = step_states_.data();
    args.state_count = step_states_.size();
    args.sums = is_end ? sums_.data() : nullptr;
    args.sum_count = sum_count_;
    args.lines = is_end ? lines() : nullptr;
    return args;
  }
  // gannet_update_args::lines
  double* const* lines() {
    line_places_.clear();
    for (auto& line : lines_) line_places_.push_back(line.empty() ? nullptr : line.data());
    return line_places_.data();
  }
  // Elements [begin, end) as one piece.
  void run(uint64_t begin, uint64_t end, const Call& body) {
    std::vector<gannet_segment> segments;
    std::vector<double> rows;
    for (uint64_t t = 0; t < tensors.size(); ++t) {
      const uint64_t first = std::max(begin, tensors[t].offset), last = std::min(end, tensors[t].offset + tensors[t].numel);
      if (first >= last) continue;
      gannet_segment part{};
      part.struct_size = sizeof(part);
      part.dimensions = views_[t].dimensions;
      part.tensor_index = part.tensor_id = t;
      part.offset = first - begin;
      part.numel = last - first;
      part.tensor_offset = first - tensors[t].offset;
      part.tensor_numel = tensors[t].numel;
      part.shape = views_[t].shape;
      part.name = views_[t].name;
      part.columns = views_[t].columns;
      part.matrix_rows = views_[t].matrix_rows;
      part.first_row = views_[t].first_row;
      part.first_column = views_[t].first_column;
      segments.push_back(part);
      rows.insert(rows.end(), sums_.begin() + static_cast<long>(t * sum_count_),
                  sums_.begin() + static_cast<long>((t + 1) * sum_count_));
    }
    std::vector<void*> pointers;
    for (size_t s = 0; s < states.size(); ++s) pointers.push_back(states[s].at(cuts_[s].block > 0 ? begin / cuts_[s].block : 0));
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = types.param;
    args.grad_dtype = types.grad;
    args.out_dtype = types.out;
    args.numel = end - begin;
    args.param = param.at(begin);
    args.grad = grad.at(begin);
    args.out = types.out == GANNET_DTYPE_NONE ? nullptr : out.at(begin);
    args.states = pointers.data();
    args.state_count = pointers.size();
    args.grad_scale = grad_scale;
    args.step = steps;
    args.hyper = optimizer.params.hyper.data();
    args.hyper_count = optimizer.params.hyper.size();
    args.segments = segments.data();
    args.segment_count = segments.size();
    args.segment_stride = sizeof(gannet_segment);
    args.sums = rows.data();
    args.sum_count = sum_count_;
    args.lines = lines();
    if (place)
      place(args, body);
    else
      body(args);
  }

  std::vector<gannet_tensor> views_;
  std::vector<Cut> cuts_;  // [states]
  std::vector<void*> step_states_;
  uint64_t sum_count_ = 0;
  std::vector<uint32_t> sum_rounds_;        // [sum_count_]
  std::vector<double> sums_;                // [tensors][sum_count_] of the last step
  std::vector<std::vector<double>> lines_;  // [sum_count_] [rows or columns] likewise
  std::vector<double*> line_places_;
};

// The 2-norm of a - b over that of b.
inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace gannet::test
