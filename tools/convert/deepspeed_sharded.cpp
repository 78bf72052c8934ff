// ZeRO stages 1 to 3: cuts flat buffers that are sharded over the ranks back into parameters.
//
// Stages 1 and 2, and BF16_Optimizer: a group's parameters are concatenated in the order of
// param_shapes, padded, and split into `ranks` equal parts of `part` elements: element e of the
// group is element e % part of rank e / part. Masters may lack the padding at the end; states have
// it. For a group of 3 elements, padded to 8, four ranks store masters of 2, 1, 0 and 0 elements
// and states of 2 each.
// Stage 3: every rank has ceil(numel / ranks) elements of each parameter, concatenated over all
// sub-groups; the last ones are padding.
#include <algorithm>

#include "base/format.h"
#include "convert/deepspeed_state.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

struct NamedShape {
  std::string name;
  std::vector<int64_t> sizes;
  int64_t numel;
};

std::vector<NamedShape> shapes_of(const files::Node& group) {
  std::vector<NamedShape> shapes;
  for (const auto& [name, node] : group.entries()) {
    const std::vector<int64_t> sizes = node.shape();
    shapes.push_back({name, sizes, numel_of(node, sizes)});
  }
  return shapes;
}

// A pipeline in bf16 with ZeRO off has no param_shapes. Its optimizers record where each parameter
// is in their partitions, which gives the order and the sizes, but not the shapes: each parameter
// is one row until sort_out_pipeline finds it in a layer's file.
std::vector<std::vector<NamedShape>> rows_of_partitions(const DeepSpeedFolder& folder) {
  std::vector<std::vector<NamedShape>> groups;
  for (const files::Node& optimizer : folder.optimizers) {
    const auto mappings = optimizer.at("optimizer_state_dict").at("param_slice_mappings").items();
    groups.resize(std::max(groups.size(), mappings.size()));
    for (size_t g = 0; g < mappings.size(); ++g) {
      std::vector<std::pair<int64_t, NamedShape>> found;
      for (const auto& [name, place] : mappings[g].entries())
        found.push_back({place.at("start").integer(), {name, {}, place.at("numel").integer()}});
      std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (auto& [start, row] : found) {
        if (groups[g].empty() || groups[g].back().name != row.name)
          groups[g].push_back(std::move(row));
        else if (__builtin_add_overflow(groups[g].back().numel, row.numel, &groups[g].back().numel))
          mappings[g].refuse("sizes that fit into memory");
      }
    }
  }
  for (auto& group : groups)
    for (NamedShape& row : group) row.sizes = {row.numel};
  return groups;
}

[[noreturn]] void differ(const files::Node& place, const std::string& what) {
  throw Error(ErrorCode::kMismatch, formatted("{}: {}", place.file()->path(), what), "are the files of one save, and whole?");
}

// All ranks step together, so the steps counted for one flat buffer are equal on all of them. A rank without elements may
// have none, and one of DeepSpeed's optimizers counts in a single state and leaves zeros in the others.
class StepsOfRanks {
 public:
  void add(const files::Node& optimizer, size_t buffer, const std::set<double>& steps) {
    for (const double step : steps) {
      if (step == 0) continue;
      const auto& [other, counted] = first_.try_emplace(buffer, optimizer, step).first->second;
      if (counted != step)
        throw Error(ErrorCode::kMismatch,
                    formatted("{}: its optimizer counts {} steps, and that of {} {}", optimizer.file()->path(), step,
                              files::last_name(other.file()->path()), counted),
                    "they are files of two saves: copy every rank's files of one save into one folder");
    }
  }

 private:
  std::map<size_t, std::pair<files::Node, double>> first_;
};

// A flat buffer of fp32 masters and its optimizer states, each concatenated from pieces: one
// group's partitions on all ranks (stages 1 and 2), or all sub-groups of one rank (stage 3).
// Element i of a state belongs to element i of the masters; a state may have padding at the end.
struct FlatStates {
  files::ConcatenatedTensors masters;
  std::map<std::string, files::ConcatenatedTensors> states;
  c10::ScalarType dtype = c10::kFloat;

  // `numel`: the number of elements of `master`; a missing state counts as that many zeros.
  void add(const files::Node& master, const std::map<std::string, files::Node>& tensors, const std::set<std::string>& names,
           int64_t numel) {
    dtype = master_dtype(floating(master).dtype);
    masters.add(master);
    for (const auto& name : names) {
      const auto found = tensors.find(name);
      if (found == tensors.end())
        states[name].add_zeros(numel);
      else
        states[name].add(found->second);
    }
  }
};

// Checks the offsets computed from the shapes against DeepSpeed's own record of each parameter's
// offset in a rank's partition.
void check_places(const files::Node& optimizer, size_t group, const std::vector<NamedShape>& shapes, int64_t rank, int64_t part) {
  const auto mappings = optimizer.at("optimizer_state_dict").find("param_slice_mappings");
  if (!mappings) return;
  const auto groups = mappings->items();
  if (group >= groups.size()) differ(*mappings, formatted("param_slice_mappings has {} groups", groups.size()));
  int64_t at = 0;
  for (const NamedShape& shape : shapes) {
    const int64_t from = std::max(at, rank * part), to = std::min(at + shape.numel, (rank + 1) * part);
    const auto noted = groups[group].find(shape.name);
    const int64_t numel = noted ? noted->at("numel").integer() : 0;
    if (numel != std::max<int64_t>(to - from, 0) || (numel > 0 && noted->at("start").integer() != from - rank * part))
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: param_slice_mappings places {} differently from the order of param_shapes",
                            groups[group].file()->path(), shape.name),
                  "zero_optimization.round_robin_gradients makes such files, which are not imported: DeepSpeed's zero_to_fp32.py "
                  "takes their weights; without that key: are the files of one save, and whole?");
    at += shape.numel;
  }
}

void add_partitions(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state) {
  const bool has_shapes = state.has_shapes = folder.models[0].find("param_shapes").has_value();
  std::vector<std::vector<NamedShape>> shape_groups;
  if (has_shapes)
    for (const files::Node& group : folder.models[0].at("param_shapes").items()) shape_groups.push_back(shapes_of(group));
  else
    shape_groups = rows_of_partitions(folder);
  const auto ranks = static_cast<int64_t>(folder.optimizers.size()), alignment = 2 * ranks;
  std::vector<std::vector<files::Node>> partitions;  // [rank][group]
  std::vector<OptimizerStates> optimizers;
  for (const files::Node& optimizer : folder.optimizers) {
    const files::Node saved = optimizer.at("optimizer_state_dict");
    const files::Node groups = saved.at("single_partition_of_fp32_groups");
    partitions.push_back(groups.items());
    if (partitions.back().size() != shape_groups.size())
      differ(groups, formatted("it has partitions of {} groups, and param_shapes has {} groups", partitions.back().size(),
                               shape_groups.size()));
    optimizers.push_back(weights_only ? OptimizerStates() : OptimizerStates(saved.at("base_optimizer_state")));
  }
  state.groups = optimizers[0].groups();

  StepsOfRanks counted;
  for (size_t g = 0; g < shape_groups.size(); ++g) {
    const std::vector<NamedShape>& shapes = shape_groups[g];
    std::vector<std::map<std::string, files::Node>> tensors(ranks);
    std::set<std::string> names;
    for (int64_t r = 0; r < ranks && !weights_only; ++r) {
      const auto indices = optimizers[r].indices(g);
      if (indices.size() != 1)
        differ(optimizers[r].groups()[g], formatted("a group of {} tensors, where ZeRO has one flat buffer", indices.size()));
      const int64_t numel = partitions[r][g].tensor().numel();
      // The padding is at the end: on the last rank that is not empty.
      const bool is_last = r + 1 == ranks || partitions[r + 1][g].tensor().numel() == 0;
      std::set<double> steps;
      tensors[r] = optimizers[r].tensors(indices[0], numel, is_last ? numel + alignment - 1 : numel, steps);
      counted.add(folder.optimizers[r], g, steps);
      state.steps.merge(steps);
      for (const auto& [name, tensor] : tensors[r]) names.insert(name);
    }
    FlatStates flat;
    const int64_t part = partitions[0][g].tensor().numel();
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t numel = partitions[r][g].tensor().numel();
      const int64_t before = r == 0 ? part : partitions[r - 1][g].tensor().numel();
      if (numel > part || (before < part && numel > 0))
        differ(partitions[r][g],
               formatted("a partition of {} elements; rank 0's has {}, and the one before it {}", numel, part, before));
      flat.add(partitions[r][g], tensors[r], names, numel);
    }
    int64_t total = 0;
    for (const NamedShape& shape : shapes)
      if (__builtin_add_overflow(total, shape.numel, &total)) folder.models[0].refuse("shapes that fit into memory");
    if (const int64_t there = flat.masters.numel(); there < total || there >= total + alignment)
      differ(partitions[0][g],
             formatted("the parameters of group {} have {} elements by param_shapes, and the partitions of {}{}{}", g, total,
                       ranks, ranks == 1 ? " rank " : " ranks ", there));
    for (int64_t r = 0; r < ranks; ++r) check_places(folder.optimizers[r], g, shapes, r, ranks == 1 ? total : part);

    int64_t at = 0;
    for (const NamedShape& shape : shapes) {
      ImportedTensor& tensor = state.trained.emplace_back(
          ImportedTensor{shape.name, shape.sizes, flat.dtype, flat.masters.cut(at, shape.numel), {}, static_cast<int64_t>(g)});
      for (const auto& [name, values] : flat.states) tensor.states.emplace(name, values.cut(at, shape.numel));
      at += shape.numel;
    }
    state.has_states |= !names.empty();
  }
}

void add_sub_groups(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state) {
  const auto ranks = static_cast<int64_t>(folder.optimizers.size());
  std::vector<FlatStates> flats(ranks);
  std::set<std::string> names;
  StepsOfRanks counted;
  for (int64_t r = 0; r < ranks; ++r) {
    const files::Node saved = folder.optimizers[r].at("optimizer_state_dict");
    const auto masters = saved.at("fp32_flat_groups").items();
    const OptimizerStates optimizer = weights_only ? OptimizerStates() : OptimizerStates(saved.at("optimizer_state_dict"));
    std::vector<std::map<std::string, files::Node>> tensors(masters.size());
    for (size_t i = 0; i < masters.size() && !weights_only; ++i) {
      const int64_t numel = masters[i].tensor().numel();
      std::set<double> steps;
      tensors[i] = optimizer.tensors(static_cast<int64_t>(i), numel, numel, steps);
      counted.add(folder.optimizers[r], i, steps);
      state.steps.merge(steps);
      for (const auto& [name, tensor] : tensors[i]) names.insert(name);
    }
    for (size_t i = 0; i < masters.size(); ++i) flats[r].add(masters[i], tensors[i], names, masters[i].tensor().numel());
    if (r == 0) state.groups = optimizer.groups();
  }

  int64_t at = 0, sub_group = -1;
  for (const files::Node& group : folder.models[0].at("param_shapes").items()) {
    ++sub_group;
    for (const NamedShape& shape : shapes_of(group)) {
      const int64_t part = (shape.numel + ranks - 1) / ranks;
      ImportedTensor tensor{shape.name, shape.sizes, flats[0].dtype, {}, {}, group_with(state.groups, sub_group)};
      for (int64_t r = 0; r < ranks; ++r) {
        const int64_t begin = std::min(r * part, shape.numel), numel = std::min(part, shape.numel - begin);
        if (at + part > flats[r].masters.numel())
          differ(folder.optimizers[r],
                 formatted("its fp32_flat_groups have {} elements, and end inside of {}", flats[r].masters.numel(), shape.name));
        const auto append = [&](files::StoredPieces& pieces, const files::ConcatenatedTensors& from) {
          for (files::StoredPiece& piece : from.cut(at, numel)) pieces.push_back(std::move(piece));
        };
        append(tensor.pieces, flats[r].masters);
        for (const auto& name : names)
          if (flats[r].states.count(name) && flats[r].states[name].numel() == flats[r].masters.numel())
            append(tensor.states[name], flats[r].states[name]);
          else
            differ(folder.optimizers[r], formatted("the state '{}' is not on every rank", name));
      }
      state.trained.push_back(std::move(tensor));
      at += part;
    }
  }
  for (int64_t r = 0; r < ranks; ++r)
    if (flats[r].masters.numel() != at)
      differ(folder.optimizers[r],
             formatted("its fp32_flat_groups have {} elements, and a rank's part of the parameters has {} by param_shapes",
                       flats[r].masters.numel(), at));
  state.has_states = !names.empty();
}

}  // namespace

void add_sharded(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state) {
  const files::Node saved = folder.optimizers[0].at("optimizer_state_dict");
  const auto stage = saved.find("zero_stage");
  state.stage = stage ? stage->integer() : 1;  // BF16_Optimizer is stage 1 and does not store it
  for (const files::Node& optimizer : folder.optimizers)
    if (const auto of_rank = optimizer.at("optimizer_state_dict").find("zero_stage");
        of_rank && of_rank->integer() != state.stage)
      differ(*of_rank, formatted("zero_stage is {}, and rank 0's {}", of_rank->integer(), state.stage));
  if (const auto scaler = saved.find("loss_scaler")) state.scaler = {*scaler};
  if (state.stage == 3)
    add_sub_groups(folder, weights_only, state);
  else
    add_partitions(folder, weights_only, state);
}

}  // namespace gannet::convert
