// Stages 1 and 2: a group's parameters, concatenated and padded to a multiple of 2 * ranks elements,
// are cut into one equal partition per rank. Masters are stored without the padding, states with it.
// Stage 3: every rank has ceil(numel / ranks) elements of each parameter, padded, and concatenates
// those of a sub-group. A group ends a sub-group when a rank's elements reach sub_group_size.
// Stage 0: the optimizer's own state_dict, with numbered parameters; 16-bit runs add the masters,
// which DeepSpeed's own Adam keeps as one flat tensor for each group.
#include "convert/write_deepspeed.h"

#include <gannet/error.h>

#include <algorithm>
#include <functional>

#include "base/format.h"
#include "base/text.h"
#include "convert/deepspeed_objects.h"
#include "convert/staged_folder.h"

namespace gannet::convert {
namespace {

// With it DeepSpeed's buffers have the parameters in another order, and its record of their places has the order written here.
constexpr const char* kNotRoundRobin = "; not with round_robin_gradients";
constexpr int64_t kAlignment = 2;  // partitions begin at multiples of 4 bytes of a 16-bit dtype

struct Writing : FolderWriting {
  const DeepSpeedLayout& layout;
};

std::string count_of(uint64_t count, const char* one) { return formatted("{} {}{}", count, one, count == 1 ? "" : "s"); }

std::vector<const SourceTensor*> pointers(const SourceGroup& group) {
  std::vector<const SourceTensor*> all;
  for (const SourceTensor& tensor : group.tensors) all.push_back(&tensor);
  return all;
}

void append(TensorParts& to, TensorParts parts) { to.insert(to.end(), parts.begin(), parts.end()); }

// Elements [begin, end) of the concatenated tensors of a group.
TensorParts cut(const DeepSpeedSource& source, const std::string& kind, const SourceGroup& group, int64_t begin, int64_t end) {
  TensorParts parts;
  int64_t at = 0;
  for (const SourceTensor& tensor : group.tensors) {
    const int64_t first = std::max(begin - at, int64_t{0}), last = std::min(end - at, tensor.numel);
    if (first < last) append(parts, parts_of(source, kind, tensor, first, last));
    at += tensor.numel;
  }
  return parts;
}

// The end of ZeRO's optimizer files, which all stages have.
void finish_optimizer_file(const Writing& writing, DeepSpeedFile file, int64_t rank) {
  files::PickleWriter& pickle = file.pickle();
  pickle.end_dict();
  pickle.text("ds_config");
  file.value(Dict{{"zero_optimization", Dict{{"stage", writing.layout.stage}}}});
  pickle.text("ds_version");
  pickle.text(kDeepSpeedVersion);
  pickle.end_dict();
  writing.write(std::move(file), formatted("{}zero_pp_rank_{}_mp_rank_00_optim_states.pt",
                                           writing.source.precision == "bf16" ? "bf16_" : "", rank));
}

// ---- stages 1 and 2

struct Partition {
  int64_t begin, numel, valid;  // of the group's elements; those from `valid` on are padding
};

Partition partition_of(const SourceGroup& group, int64_t ranks, int64_t rank) {
  const int64_t total = group.numel(), unit = kAlignment * ranks;
  const int64_t part = (total + unit - 1) / unit * kAlignment;
  return {rank * part, part, std::clamp(total - rank * part, int64_t{0}, part)};
}

void write_slice_mappings(DeepSpeedFile& file, const DeepSpeedSource& source, const std::vector<Partition>& partitions) {
  files::PickleWriter& pickle = file.pickle();
  pickle.begin_list();
  for (size_t g = 0; g < partitions.size(); ++g) {
    pickle.begin_ordered_dict();
    int64_t at = 0;
    const int64_t begin = partitions[g].begin, end = begin + partitions[g].numel;
    for (const SourceTensor& tensor : source.groups[g].tensors) {
      const int64_t first = std::max(at, begin), last = std::min(at + tensor.numel, end);
      at += tensor.numel;
      if (first >= last) continue;
      pickle.text(tensor.name);
      pickle.begin_object("deepspeed.utils.tensor_fragment", "fragment_address");
      pickle.text("numel");
      pickle.integer(last - first);
      pickle.text("start");
      pickle.integer(first - begin);
      pickle.end_object();
    }
    pickle.end_ordered_dict();
  }
  pickle.end_list();
}

void write_partition(const Writing& writing, int64_t rank) {
  const DeepSpeedSource& source = writing.source;
  std::vector<Partition> partitions;
  List paddings, counts;
  std::vector<std::vector<int64_t>> numbers;
  for (const SourceGroup& group : source.groups) {
    partitions.push_back(partition_of(group, writing.layout.ranks, rank));
    paddings.push_back(partitions.back().numel - partitions.back().valid);
    counts.push_back(writing.layout.ranks);
    numbers.push_back({static_cast<int64_t>(numbers.size())});
  }
  const auto part = [&](const std::string& kind, size_t g, bool padded) {
    const auto& [begin, numel, valid] = partitions[g];
    TensorParts parts = cut(source, kind, source.groups[g], begin, begin + valid);
    if (padded) parts.push_back({"", 0, numel - valid});
    return parts;
  };
  DeepSpeedFile file;
  files::PickleWriter& pickle = file.pickle();
  pickle.begin_dict();
  pickle.text("optimizer_state_dict");
  pickle.begin_dict();
  write_scaler(file, source);
  pickle.text("clip_grad");
  pickle.number(number_of(source, "/gradient_clipping", 1.0));
  pickle.text("base_optimizer_state");
  pickle.begin_dict();
  pickle.text("state");
  pickle.begin_dict();
  for (size_t g = 0; g < partitions.size(); ++g) {
    pickle.integer(static_cast<int64_t>(g));
    write_states(file, source, {partitions[g].numel}, [&](const std::string& kind) { return part(kind, g, true); });
  }
  pickle.end_dict();
  pickle.text("param_groups");
  write_param_groups(file, source, numbers);
  pickle.end_dict();
  pickle.text("single_partition_of_fp32_groups");
  pickle.begin_list();
  for (size_t g = 0; g < partitions.size(); ++g) file.tensor(c10::kFloat, {partitions[g].valid}, part("parameter", g, false));
  pickle.end_list();
  pickle.text("zero_stage");
  pickle.enumerator("deepspeed.runtime.zero.config", "ZeroStageEnum", writing.layout.stage);
  pickle.text("group_paddings");
  file.value(paddings);
  pickle.text("partition_count");
  file.value(counts);
  pickle.text("ds_version");
  pickle.text(kDeepSpeedVersion);
  pickle.text("param_slice_mappings");
  write_slice_mappings(file, source, partitions);
  finish_optimizer_file(writing, std::move(file), rank);
}

void write_stage12(const Writing& writing) {
  ModelFileLayout model{.stage = writing.layout.stage, .ranks = writing.layout.ranks};
  for (const SourceGroup& group : writing.source.groups) model.buffers.push_back(pointers(group));
  writing.write(model_file(writing.source, model), "mp_rank_00_model_states.pt");
  for (int64_t rank = 0; rank < writing.layout.ranks; ++rank) write_partition(writing, rank);
}

// ---- stage 3

struct SubGroups {
  std::vector<std::vector<const SourceTensor*>> tensors;
  std::vector<std::vector<int64_t>> of_group;  // the sub-groups of each group
};

SubGroups sub_groups_of(const Writing& writing) {
  int64_t size = writing.layout.sub_group_size;
  if (size == 0) size = static_cast<int64_t>(number_of(writing.source, "/zero_optimization/sub_group_size", 1e9));
  SubGroups result;
  for (const SourceGroup& group : writing.source.groups) {
    auto& numbers = result.of_group.emplace_back();
    int64_t elements = size;  // begins the first sub-group
    for (const SourceTensor& tensor : group.tensors) {
      if (elements >= size) {
        numbers.push_back(static_cast<int64_t>(result.tensors.size()));
        result.tensors.emplace_back();
        elements = 0;
      }
      result.tensors.back().push_back(&tensor);
      elements += (tensor.numel + writing.layout.ranks - 1) / writing.layout.ranks;
    }
  }
  return result;
}

void write_sub_groups(const Writing& writing, const SubGroups& groups, int64_t rank) {
  const DeepSpeedSource& source = writing.source;
  const int64_t ranks = writing.layout.ranks;
  const auto parts = [&](const std::string& kind, size_t s) {
    TensorParts all;
    for (const SourceTensor* tensor : groups.tensors[s]) {
      const int64_t part = (tensor->numel + ranks - 1) / ranks;
      const int64_t begin = std::min(rank * part, tensor->numel), end = std::min(begin + part, tensor->numel);
      append(all, parts_of(source, kind, *tensor, begin, end));
      all.push_back({"", 0, part - (end - begin)});
    }
    return all;
  };
  const auto numel_of = [&](size_t s) {
    int64_t sum = 0;
    for (const TensorPart& part : parts("parameter", s)) sum += part.numel;
    return sum;
  };
  DeepSpeedFile file;
  files::PickleWriter& pickle = file.pickle();
  pickle.begin_dict();
  pickle.text("optimizer_state_dict");
  pickle.begin_dict();
  pickle.text("zero_stage");
  pickle.enumerator("deepspeed.runtime.zero.config", "ZeroStageEnum", 3);
  write_scaler(file, source);
  pickle.text("partition_count");
  pickle.integer(ranks);
  pickle.text("optimizer_state_dict");
  pickle.begin_dict();
  pickle.text("state");
  pickle.begin_dict();
  for (size_t s = 0; s < groups.tensors.size(); ++s) {
    pickle.integer(static_cast<int64_t>(s));
    write_states(file, source, {numel_of(s)}, [&](const std::string& kind) { return parts(kind, s); });
  }
  pickle.end_dict();
  pickle.text("param_groups");
  write_param_groups(file, source, groups.of_group);
  pickle.end_dict();
  pickle.text("fp32_flat_groups");
  pickle.begin_list();
  for (size_t s = 0; s < groups.tensors.size(); ++s) file.tensor(c10::kFloat, {numel_of(s)}, parts("parameter", s));
  pickle.end_list();
  finish_optimizer_file(writing, std::move(file), rank);
}

void write_stage3(const Writing& writing) {
  const SubGroups groups = sub_groups_of(writing);
  for (int64_t rank = 0; rank < writing.layout.ranks; ++rank) {
    writing.write(
        model_file(writing.source, {.stage = 3, .ranks = writing.layout.ranks, .rank = rank, .buffers = groups.tensors}),
        formatted("zero_pp_rank_{}_mp_rank_00_model_states.pt", rank));
    write_sub_groups(writing, groups, rank);
  }
}

// ---- stage 0

// A torch-style state_dict over tensors: `flat`: one for each group, else one for each parameter.
void write_state_dict(DeepSpeedFile& file, const DeepSpeedSource& source, bool flat) {
  files::PickleWriter& pickle = file.pickle();
  std::vector<std::vector<int64_t>> numbers;
  int64_t next = 0;
  pickle.begin_dict();
  pickle.text("state");
  pickle.begin_dict();
  for (const SourceGroup& group : source.groups) {
    auto& of_group = numbers.emplace_back();
    const auto add = [&](const std::vector<int64_t>& shape, const std::function<TensorParts(const std::string&)>& parts) {
      of_group.push_back(next);
      pickle.integer(next++);
      write_states(file, source, shape, parts);
    };
    if (flat)
      add({group.numel()}, [&](const std::string& kind) { return cut(source, kind, group, 0, group.numel()); });
    else
      for (const SourceTensor& tensor : group.tensors)
        add(tensor.shape, [&](const std::string& kind) { return parts_of(source, kind, tensor, 0, tensor.numel); });
  }
  pickle.end_dict();
  pickle.text("param_groups");
  write_param_groups(file, source, numbers);
  pickle.end_dict();
}

void write_loss_scale(DeepSpeedFile& file, const DeepSpeedSource& source) {
  const bool is_dynamic = source.is_scale_dynamic(), is_fp16 = source.precision == "fp16";
  Dict scale{{"dynamic_loss_scale", is_dynamic},
             {"cur_scale", is_fp16 ? source.scaler("scale").as_number() : 1.0},
             {"cur_iter", is_fp16 ? source.scaler("iteration").as_int() : source.global_steps}};
  if (is_dynamic) {
    scale["last_overflow_iter"] = source.scaler("last_overflow_iteration");
    scale["scale_factor"] = 2.0;
    scale["scale_window"] = static_cast<int64_t>(number_of(source, "/fp16/loss_scale_window", 1000));
  }
  for (const auto& [key, value] : scale.entries()) {
    file.pickle().text(key);
    file.value(value);
  }
}

void write_whole_optimizer(DeepSpeedFile& file, const DeepSpeedSource& source) {
  files::PickleWriter& pickle = file.pickle();
  if (source.precision == "fp32") return write_state_dict(file, source, /*flat=*/false);
  const bool flat = source.family == OptimizerFamily::kAdam && !source.is_torch_optimizer;
  pickle.begin_dict();
  if (!flat || source.precision == "fp16") write_loss_scale(file, source);
  pickle.text("optimizer_state_dict");
  write_state_dict(file, source, flat);
  pickle.text(flat ? "fp32_groups_flat" : "fp32_groups");
  pickle.begin_list();
  for (const SourceGroup& group : source.groups) {
    if (flat) {
      file.tensor(c10::kFloat, {group.numel()}, cut(source, "parameter", group, 0, group.numel()));
      continue;
    }
    pickle.begin_list();
    for (const SourceTensor& tensor : group.tensors)
      file.tensor(c10::kFloat, tensor.shape, parts_of(source, "parameter", tensor, 0, tensor.numel));
    pickle.end_list();
  }
  pickle.end_list();
  if (flat) {
    pickle.text("clip_grad");
    pickle.number(number_of(source, "/gradient_clipping", 1.0));
  }
  pickle.end_dict();
}

void write_stage0(const Writing& writing) {
  writing.write(model_file(writing.source, {.stage = 0, .ranks = writing.layout.ranks},
                           [&](DeepSpeedFile& file) { write_whole_optimizer(file, writing.source); }),
                "mp_rank_00_model_states.pt");
}

}  // namespace

ToDeepSpeedReceipt write_deepspeed(const checkpoint::Opened& from, const std::string& out, const DeepSpeedLayout& layout,
                                   const ToDeepSpeedOptions& options) {
  if (layout.stage < 0 || layout.stage > 3)
    throw Error(ErrorCode::kArgument, formatted("--stage {}: ZeRO has the stages 0 to 3", layout.stage),
                "give the stage of DeepSpeed's run");
  if (layout.ranks < 1 || layout.ranks > 100'000)
    throw Error(ErrorCode::kArgument, formatted("--ranks {}: from 1 to 100000", layout.ranks),
                "give the number of ranks of DeepSpeed's run");
  if (layout.sub_group_size > 0 && layout.stage != 3)
    throw Error(ErrorCode::kArgument, formatted("--sub-group-size is for stage 3, not for stage {}", layout.stage),
                "leave --sub-group-size out");
  const DeepSpeedSource source = deepspeed_source(from, options);
  ToDeepSpeedReceipt receipt{from.path(), formatted("{}/{}", out, from.tag())};
  receipt.left_out = source.left_out;
  StagedFolder folder(out, from.tag());
  receipt.other_exports = folder.others();
  const Writing writing{{source, folder.path(), receipt.files, receipt.bytes}, layout};
  layout.stage == 0 ? write_stage0(writing) : layout.stage == 3 ? write_stage3(writing) : write_stage12(writing);
  folder.commit("latest");
  if (layout.stage == 0 && source.precision == "fp16")
    receipt.left_out.push_back("overflows until the loss scale is halved: stage 0 of DeepSpeed does not hold them");
  receipt.written = written_lines(source);
  receipt.written.push_back(
      formatted("for ZeRO stage {} on {}, in {}: DeepSpeed finds parameters by their order, which must be "
                "that of `gannet checkpoint show`{}",
                layout.stage, count_of(layout.ranks, "rank"), source.precision,
                layout.stage == 1 || layout.stage == 2 ? kNotRoundRobin : ""));
  return receipt;
}

std::vector<std::string> written_lines(const DeepSpeedSource& source) {
  int64_t numel = 0;
  size_t tensors = 0;
  for (const SourceGroup& group : source.groups) {
    numel += group.numel();
    tensors += group.tensors.size();
  }
  std::vector<std::string> lines = {
      formatted("{}, {} elements as fp32, in {}; {} frozen; {}", count_of(tensors, "trained parameter"), numel,
                count_of(source.groups.size(), "group"), source.frozen.size(), count_of(source.buffers.size(), "buffer"))};
  if (!source.states.empty())
    lines.push_back(formatted("optimizer states {}, step {}", join(source.states, ", "), source.applied_steps));
  lines.push_back(formatted("step {}, {} skipped, {} samples seen; the schedule's position, {}", source.global_steps,
                            source.skipped_steps, source.global_samples, source.schedule_position));
  if (source.precision == "fp16") lines.push_back(formatted("loss scale {}", source.scaler("scale").to_json()));
  return lines;
}

std::string ToDeepSpeedReceipt::to_string() const {
  std::string text =
      formatted("exported {} as {}, {}, {}\n", source, path, count_of(static_cast<uint64_t>(files), "file"), size_text(bytes));
  for (const auto& line : written) text += formatted("  written: {}\n", line);
  for (const auto& line : left_out) text += formatted("  left out: {}\n", line);
  for (const auto& folder : other_exports)
    text += formatted("  note: {} is from an export that was interrupted or still runs; if none runs, remove it\n", folder);
  return text;
}

}  // namespace gannet::convert
