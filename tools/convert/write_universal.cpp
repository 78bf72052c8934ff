// <out>/<tag>_universal/
//   zero/<parameter>/fp32.pt, exp_avg.pt ...                 {"param": the whole tensor, "cat_dim": 0}
//   zero/<parameter>/step.pt                                 a number
//   zero/optimizer_state.pt                                  parameter groups, loss scale, step
//   mp_rank_00_model_states.pt                               counters and schedule, for stages 1 and 2
//   zero_pp_rank_0_mp_rank_00_model_states.pt                the same for stage 3
// <out>/latest_universal                                     <tag>_universal
#include <gannet/error.h>

#include <filesystem>

#include "base/format.h"
#include "convert/deepspeed_objects.h"
#include "convert/staged_folder.h"
#include "convert/write_deepspeed.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

void make_folder(const std::string& path) {
  std::error_code failure;
  std::filesystem::create_directories(path, failure);
  if (failure) files::io_failed("make the folder", path, failure.value());
}

void write_parameter(const FolderWriting& writing, const SourceTensor& tensor) {
  if (tensor.name.find('/') != std::string::npos)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: the parameter '{}' has a '/' in its name, which names a folder here", writing.source.from.path(),
                          tensor.name),
                "rename it with --rename, or export with --format deepspeed");
  const std::string folder = formatted("zero/{}", tensor.name);
  // At stages 1 and 2 DeepSpeed cuts every tensor along its first dimension, which a scalar lacks.
  const std::vector<int64_t> shape = tensor.shape.empty() ? std::vector<int64_t>{1} : tensor.shape;
  make_folder(formatted("{}/{}", writing.folder, folder));
  const auto write = [&](const std::string& kind, const std::string& file_name) {
    DeepSpeedFile file;
    file.pickle().begin_dict();
    file.pickle().text("param");
    file.tensor(c10::kFloat, shape, parts_of(writing.source, kind, tensor, 0, tensor.numel));
    file.pickle().text("cat_dim");
    file.pickle().integer(0);
    file.pickle().end_dict();
    writing.write(std::move(file), formatted("{}/{}.pt", folder, file_name));
  };
  write("parameter", "fp32");
  for (const std::string& state : writing.source.states) write(formatted("state/{}", state), state);
  if (has_step(writing.source)) {
    DeepSpeedFile step;
    write_step(step, writing.source);
    writing.write(std::move(step), formatted("{}/step.pt", folder));
  }
  files::sync_folder(formatted("{}/{}", writing.folder, folder));
}

void write_optimizer_state(const FolderWriting& writing) {
  const DeepSpeedSource& source = writing.source;
  std::vector<std::vector<int64_t>> numbers;
  for (size_t g = 0; g < source.groups.size(); ++g) numbers.push_back({static_cast<int64_t>(g)});
  DeepSpeedFile file;
  files::PickleWriter& pickle = file.pickle();
  pickle.begin_dict();
  write_scaler(file, source);
  pickle.text("clip_grad");
  pickle.number(number_of(source, "/gradient_clipping", 1.0));
  pickle.text("zero_stage");
  pickle.enumerator("deepspeed.runtime.zero.config", "ZeroStageEnum", 1);
  pickle.text("ds_version");
  pickle.text(kDeepSpeedVersion);
  pickle.text("param_groups");  // read at stages 1 and 2
  write_param_groups(file, source, numbers);
  pickle.text("optimizer_state_dict");  // read at stage 3
  pickle.begin_dict();
  pickle.text("state");
  pickle.begin_dict();
  pickle.integer(0);
  pickle.begin_dict();
  if (has_step(source)) {
    pickle.text("step");
    write_step(file, source);
  }
  pickle.end_dict();
  pickle.end_dict();
  pickle.text("param_groups");
  write_param_groups(file, source, numbers);
  pickle.end_dict();
  pickle.end_dict();
  writing.write(std::move(file), "zero/optimizer_state.pt");
}

void add_notes(const DeepSpeedSource& source, std::vector<std::string>& notes) {
  if (!source.frozen.empty() || !source.buffers.empty())
    notes.push_back(
        "frozen parameters and buffers: DeepSpeed does not read them from a universal checkpoint; they are in module of "
        "mp_rank_00_model_states.pt, for the program to load");
  if (source.family != OptimizerFamily::kAdam)
    notes.push_back("at stage 3 DeepSpeed reads only Adam's states; use --format deepspeed for this optimizer there");
  if (source.groups.size() > 1)
    notes.push_back("at stage 3 DeepSpeed gives every group the hyperparameters of the first; use --format deepspeed there");
}

}  // namespace

ToDeepSpeedReceipt write_universal(const checkpoint::Opened& from, const std::string& out, const ToDeepSpeedOptions& options) {
  const DeepSpeedSource source = deepspeed_source(from, options);
  const std::string name = formatted("{}_universal", from.tag());
  ToDeepSpeedReceipt receipt{from.path(), formatted("{}/{}", out, name)};
  receipt.left_out = source.left_out;
  StagedFolder folder(out, name);
  receipt.other_exports = folder.others();
  const FolderWriting writing{source, folder.path(), receipt.files, receipt.bytes};
  make_folder(formatted("{}/zero", folder.path()));
  ModelFileLayout model{.stage = 2, .is_universal = true};
  for (const SourceGroup& group : source.groups) {
    auto& buffer = model.buffers.emplace_back();
    for (const SourceTensor& tensor : group.tensors) {
      buffer.push_back(&tensor);
      write_parameter(writing, tensor);
    }
  }
  write_optimizer_state(writing);
  files::sync_folder(formatted("{}/zero", folder.path()));
  writing.write(model_file(source, model), "mp_rank_00_model_states.pt");
  model.stage = 3;
  writing.write(model_file(source, model), "zero_pp_rank_0_mp_rank_00_model_states.pt");
  folder.commit("latest_universal");
  receipt.written = written_lines(source);
  receipt.written.push_back(
      "for ZeRO stages 1 to 3 and any number of ranks, with \"checkpoint\": {\"load_universal\": true}; not with "
      "round_robin_gradients");
  add_notes(source, receipt.left_out);
  return receipt;
}

}  // namespace gannet::convert
