#include "convert/deepspeed_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/catalog.h"
#include "files/bytes.h"
#include "files/io.h"
#include "files/names.h"

namespace gannet::convert {
namespace {

namespace fs = std::filesystem;

const std::regex kModelFile(R"(mp_rank_(\d+)_model_states\.pt)");
const std::regex kShardedModelFile(R"(zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt)");
const std::regex kOptimizerFile(R"((bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt)");
const std::regex kLayerFile(R"(layer_(\d+)(?:-model_(\d+))?-model_states\.pt)");
const std::regex kOtherLayerFile(R"(layer_\d+-.*model_states\.pt)");  // from a topology with other axes
const std::regex kExpertFile(R"(.*expert_\d+_mp_rank_\d+_model_states\.pt|expp_rank_.*)");

bool is_there(const fs::path& path) { return files::kind_of(path.string()).exists; }
bool is_folder(const fs::path& path) { return files::kind_of(path.string()).is_folder; }

std::vector<std::string> names_in(const fs::path& folder) { return files::names_in(folder.string()); }

bool holds_files(const fs::path& folder) {
  if (!is_folder(folder)) return false;
  const auto names = names_in(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return std::regex_match(name, kModelFile) || std::regex_match(name, kShardedModelFile) ||
           std::regex_match(name, kOptimizerFile) || std::regex_match(name, kOtherLayerFile);
  });
}

// The tag that `latest` or, without it, `latest_universal` names; "" if there is neither. Reads only a small regular file: a FIFO
// would block, and a device has no end.
std::string latest(const fs::path& dir) {
  const fs::path path = dir / (is_there(dir / "latest") ? "latest" : "latest_universal");
  if (!is_there(path)) return "";
  std::string tag = files::read_file(path.string(), checkpoint::kMaxLatestBytes);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
  return tag;
}

std::vector<std::string> tags_in(const fs::path& dir) {
  std::vector<std::string> tags;
  for (const auto& name : names_in(dir)) {
    try {
      if (holds_files(dir / name)) tags.push_back(name);
    } catch (const Error&) {  // a folder that this user may not read
    }
  }
  return tags;
}

// The folder of the tag. Never guesses a tag: a folder without `latest` may be left over from a
// save that did not finish.
fs::path choose(const fs::path& dir, const std::string& asked) {
  if (!is_folder(dir))
    throw Error(ErrorCode::kNotFound, formatted("there is no folder or file {}", dir.string()),
                "name a file of weights, a folder of them, or the folder given to DeepSpeed's save_checkpoint");
  const std::string tag = asked.empty() ? latest(dir) : asked;
  if (const std::string fault = checkpoint::tag_fault(tag); !tag.empty() && !fault.empty())
    throw Error(ErrorCode::kArgument,
                formatted("{}: {}{} is not a tag: it {}", dir.string(), files::shown(tag),
                          asked.empty() ? " in its 'latest'" : "", fault),
                "a tag is the name of a folder in it, without a '/': choose one with --tag");
  if (!tag.empty() && holds_files(dir / tag)) return dir / tag;
  if (tag.empty() && holds_files(dir)) return dir;
  const auto tags = tags_in(dir);
  const std::string there = tags.empty() ? "" : formatted("; there are: {}", join(tags, ", "));
  if (!tag.empty())
    throw Error(ErrorCode::kNotFound,
                formatted("{}{} is missing or has none of DeepSpeed's files{}", dir.string(),
                          asked.empty() ? formatted(": its 'latest' names '{}', which", tag)
                                        : formatted(" has no checkpoint '{}': it", tag),
                          there),
                tags.empty() ? "was the save interrupted, or the folder copied in part?" : "choose one with --tag");
  if (tags.empty())
    throw Error(ErrorCode::kNotFound,
                formatted("{} holds neither weights that are known nor a checkpoint of DeepSpeed; it has {}", dir.string(),
                          files::some_names(files::names_in(dir.string()), 5)),
                "name a file of weights, a folder of them, or the folder given to DeepSpeed's save_checkpoint");
  throw Error(ErrorCode::kNotFound,
              formatted("{} has no 'latest', which is written last: the save may not have ended{}", dir.string(), there),
              formatted("if it is whole, choose it with --tag {}", tags.back()));
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& next) {
  throw Error(ErrorCode::kUnsupported, formatted("{}: {}", path.string(), what), next);
}

// Files by rank, in order; a gap is reported as the missing file.
using FilesByRank = std::map<int64_t, std::string>;

// The files of one model-parallel rank: the only one, or a pipeline stage.
struct ModelRankFiles {
  std::string model;                  // the only file of the model at stages 0 to 2
  FilesByRank models, optimizers[2];  // [1]: with the prefix bf16_
};

struct FolderFiles {
  std::map<int64_t, ModelRankFiles> by_model_rank;
  std::map<int64_t, std::string> layers;
};

int64_t number_in(const fs::path& path, const std::string& name, const std::string& digits, const char* of_what) {
  if (digits.size() > 6) throw Error(ErrorCode::kCorrupt, formatted("{}: no such {}", (path / name).string(), of_what));
  return std::stoll(digits);
}

[[noreturn]] void refuse_tensor_parallelism(const fs::path& path, const std::string& name) {
  refuse(path, formatted("tensor parallelism ({})", name), "let DeepSpeed write it without model parallelism");
}

void add_layer(const fs::path& path, const std::string& name, const std::smatch& match, FolderFiles& files) {
  if (match[2].matched && match.str(2).find_first_not_of('0') != std::string::npos) refuse_tensor_parallelism(path, name);
  const auto [place, is_new] = files.layers.emplace(number_in(path, name, match[1], "layer"), name);
  if (!is_new)
    throw Error(ErrorCode::kMismatch,
                formatted("{}: two files of layer {}, {} and {}", path.string(), place->first, place->second, name),
                "remove the one that is left from another run");
}

FolderFiles sort_out(const fs::path& path, bool weights_only) {
  FolderFiles files;
  if (is_folder(path / "zero") && !names_in(path / "zero").empty())
    refuse(path, "a universal checkpoint without its zero/optimizer_state.pt, which is written last",
           "run ds_to_universal.py again, or copy the whole folder");
  if (!weights_only && is_folder(path / "offloaded_tensors"))
    refuse(path, "its optimizer states are copies of swap files (offloaded_tensors), which are not imported",
           "save with offload_optimizer on the cpu, or import with --weights-only");
  std::smatch match;
  std::string of_another_model_rank;
  for (const std::string& name : names_in(path)) {
    if (std::regex_match(name, kExpertFile))
      refuse(path, formatted("a mixture of experts ({})", name), "experts are not imported");
    if (std::regex_match(name, match, kLayerFile)) {
      add_layer(path, name, match, files);
      continue;
    }
    if (std::regex_match(name, kOtherLayerFile))
      refuse(path, formatted("a pipeline whose topology has axes besides pipe, data and model ({})", name),
             "let DeepSpeed write it with a PipeDataParallelTopology");
    const bool is_optimizer = std::regex_match(name, match, kOptimizerFile);
    const bool is_bf16 = is_optimizer && match[1].matched;
    const bool is_sharded_model = !is_optimizer && std::regex_match(name, match, kShardedModelFile);
    if (!is_optimizer && !is_sharded_model && !std::regex_match(name, match, kModelFile)) continue;
    const int64_t model_rank = number_in(path, name, match[match.size() - 1], "rank");
    if (model_rank != 0 && of_another_model_rank.empty()) of_another_model_rank = name;
    ModelRankFiles& its = files.by_model_rank[model_rank];
    if (!is_optimizer && !is_sharded_model) {
      its.model = name;
      continue;
    }
    const int64_t rank = number_in(path, name, match[is_optimizer ? 2 : 1], "rank");
    auto& places = is_optimizer ? its.optimizers[is_bf16] : its.models;
    if (!places.emplace(rank, name).second)
      throw Error(ErrorCode::kMismatch, formatted("{}: two files of rank {}, {} and {}", path.string(), rank, places[rank], name),
                  "remove the one that is left from another run");
  }
  if (files.layers.empty() && !of_another_model_rank.empty())
    refuse(
        path, formatted("tensor parallelism ({}), or a pipeline without its files of layers", of_another_model_rank),
        "let DeepSpeed write it without tensor parallelism; of a pipeline, copy layer_00-model_states.pt and all others as well");
  return files;
}

std::vector<files::Node> open_all(const fs::path& path, const FilesByRank& files) {
  std::vector<files::Node> nodes;
  for (const auto& [rank, name] : files) {
    if (rank != static_cast<int64_t>(nodes.size())) {
      std::string missing = name;
      missing.replace(missing.find("pp_rank_"), 8 + std::to_string(rank).size(), formatted("pp_rank_{}", nodes.size()));
      throw Error(ErrorCode::kNotFound, formatted("{}: {} is missing, the file of rank {}", path.string(), missing, nodes.size()),
                  "copy every rank's files into one folder");
    }
    nodes.emplace_back(std::make_shared<files::PtFile>(files::PtFile::open((path / name).string())));
  }
  return nodes;
}

// Checks that there are as many files as the save had ranks.
void check_count(const fs::path& path, const std::vector<files::Node>& nodes, int64_t expected, const std::string& says,
                 const char* kind) {
  const auto found = static_cast<int64_t>(nodes.size());
  if (found == expected) return;
  const std::string counted = formatted("{}: {} is {}, and there are {} files of {}{}", path.string(), says, expected, kind,
                                        found, found == 1 ? " rank" : " ranks");
  if (found < expected)
    throw Error(ErrorCode::kNotFound,
                formatted("{}: those of rank {}{} are missing", counted, found, expected - found > 1 ? " and later" : ""),
                "copy every rank's files into one folder");
  throw Error(ErrorCode::kMismatch, counted, "remove the files that are left from a run with more ranks");
}

int64_t partition_count(const files::Node& optimizer) {
  const files::Node count = optimizer.at("optimizer_state_dict").at("partition_count");
  if (!count.is_sequence()) return count.integer();
  const auto counts = count.items();
  if (counts.empty()) count.refuse("a list of a count for each group");
  for (const files::Node& one : counts)
    if (one.integer() != counts[0].integer())
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: {} is {}, of another group {}", optimizer.file()->path(), one.where(), one.integer(),
                            counts[0].integer()),
                  "groups of parameters on different ranks (experts) are not imported");
  return counts[0].integer();
}

DeepSpeedFolder open_model_rank(const fs::path& path, const ModelRankFiles& files, int64_t model_rank) {
  if (!files.optimizers[0].empty() && !files.optimizers[1].empty())
    throw Error(ErrorCode::kMismatch,
                formatted("{}: optimizer files of a bf16 run ({}) and of another ({})", path.string(),
                          files.optimizers[1].begin()->second, files.optimizers[0].begin()->second),
                "remove those that are left from the other run");
  if (!files.model.empty() && !files.models.empty())
    throw Error(ErrorCode::kMismatch,
                formatted("{}: the model of stage 3 ({}) and of another stage ({})", path.string(), files.models.begin()->second,
                          files.model),
                "remove the files that are left from the other run");
  DeepSpeedFolder folder{path.string(), files::last_name(path.string()), {}, {}, {}, {}, {}};
  folder.models = open_all(path, files.model.empty() ? files.models : FilesByRank{{0, files.model}});
  if (folder.models.empty())
    throw Error(ErrorCode::kNotFound,
                formatted("{}: there is no file of the model (mp_rank_{:02}_model_states.pt{})", path.string(), model_rank,
                          model_rank == 0 ? ", or zero_pp_rank_0_mp_rank_00_model_states.pt at stage 3" : ""),
                "copy every rank's files into one folder");
  folder.optimizers = open_all(path, files.optimizers[files.optimizers[0].empty()]);
  return folder;
}

// Every rank and every stage of a pipeline saves the run's counters.
void check_counters(const files::Node& model, const files::Node& first) {
  for (const char* key : {"global_steps", "skipped_steps", "global_samples"}) {
    const auto found = model.find(key), wanted = first.find(key);
    if (!found || !wanted || found->integer() == wanted->integer()) continue;
    throw Error(ErrorCode::kMismatch,
                formatted("{}: {} is {}, and {} in {}", model.file()->path(), key, found->integer(), wanted->integer(),
                          files::last_name(first.file()->path())),
                "they are files of two saves: copy every rank's files of one save into one folder");
  }
}

// Checks the files of one model-parallel rank against the counts recorded in them.
void check_model(const fs::path& path, const DeepSpeedFolder& folder, bool is_pipeline) {
  const files::Node& model = folder.models[0];
  for (const files::Node& of_rank : folder.models) check_counters(of_rank, model);
  if (const auto dimensions = model.find("checkpoint_parallel_dimensions"))
    for (const auto& [name, degree] : dimensions->entries())
      if (degree.integer() > 1 && !(is_pipeline && name == "pp_degree"))
        refuse(path, formatted("{} is {}", name, degree.integer()),
               name == "pp_degree" ? "copy the pipeline's files of layers (layer_00-model_states.pt ...) into the folder"
                                   : "let DeepSpeed write it without tensor parallelism");
  if (model.find("num_experts") && !model.at("num_experts").items().empty())
    refuse(path, "a mixture of experts (num_experts in its model file)", "experts are not imported");
  if (!is_pipeline && !model.find("module"))
    throw Error(ErrorCode::kCorrupt, formatted("{}: there is no 'module' in it", model.file()->path()),
                "was it written by DeepSpeed's save_checkpoint?");
  const bool has_shapes = model.find("param_shapes").has_value();
  if (has_shapes && folder.optimizers.empty()) {
    std::string name = files::last_name(model.file()->path());  // mp_rank_00_model_states.pt
    name = formatted("zero_pp_rank_0_{}_optim_states.pt",
                     name.substr(name.find("mp_rank_"), name.find("_model_states") - name.find("mp_rank_")));
    throw Error(ErrorCode::kNotFound, formatted("{}: the ranks' optimizer files ({} ...) are missing", path.string(), name),
                "copy every rank's files into one folder");
  }
  if (folder.optimizers.empty()) return;
  check_count(path, folder.optimizers, partition_count(folder.optimizers[0]), "partition_count", "optimizer");
  for (const files::Node& one : folder.optimizers)
    if (partition_count(one) != partition_count(folder.optimizers[0]))
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: partition_count is {}, rank 0's {}", one.file()->path(), partition_count(one),
                            partition_count(folder.optimizers[0])),
                  "are the files of one save?");
  if (const auto ranks = model.find("dp_world_size"))
    check_count(path, folder.optimizers, ranks->integer(), "dp_world_size", "optimizer");
  if (files::last_name(model.file()->path()).starts_with("zero_"))
    check_count(path, folder.models, static_cast<int64_t>(folder.optimizers.size()), "partition_count", "model");
}

// The number of stages recorded in a stage's file; 0: not recorded.
int64_t stages_counted(const files::Node& model) {
  if (const auto dimensions = model.find("checkpoint_parallel_dimensions"))
    if (const auto degree = dimensions->find("pp_degree")) return degree->integer();
  const auto ranks = model.find("mp_world_size");  // pipe size times model size
  return ranks ? ranks->integer() : 0;
}

bool is_universal(const fs::path& path) { return is_there(path / "zero" / "optimizer_state.pt"); }

// The model's files are copies of those of the checkpoint that was converted: of every rank at stage
// 3, and of every model-parallel rank. The first one's counters hold for all.
DeepSpeedFolder open_universal(const fs::path& path) {
  ModelRankFiles files;
  std::smatch match;
  for (const std::string& name : names_in(path)) {
    const bool is_sharded = std::regex_match(name, match, kShardedModelFile);
    if (!is_sharded && !std::regex_match(name, match, kModelFile)) continue;
    if (number_in(path, name, match[match.size() - 1], "rank") != 0) continue;
    if (is_sharded)
      files.models.emplace(number_in(path, name, match[1], "rank"), name);
    else
      files.model = name;
  }
  if (!files.model.empty()) files.models.clear();  // Gannet writes both
  DeepSpeedFolder folder = open_model_rank(path, files, 0);
  folder.universal = (path / "zero").string();
  folder.is_universal_of_pipeline = stages_counted(folder.models[0]) > 1;
  return folder;
}

DeepSpeedFolder open_pipeline(const fs::path& path, const FolderFiles& files) {
  std::vector<DeepSpeedFolder> stages;
  for (const auto& [model_rank, its] : files.by_model_rank) {
    const auto stage = static_cast<int64_t>(stages.size());
    if (!its.models.empty())
      refuse(path, formatted("a pipeline with files of ZeRO stage 3 ({})", its.models.begin()->second),
             "DeepSpeed's pipelines have stages 0 and 1: remove the files that are left from another run");
    if (model_rank != stage) open_model_rank(path, {}, stage);  // throws: the file of this stage is missing
    stages.push_back(open_model_rank(path, its, stage));
    check_model(path, stages.back(), /*is_pipeline=*/true);
    check_counters(stages.back().models[0], stages[0].models[0]);
    if (stages.back().optimizers.size() != stages[0].optimizers.size())
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: stage {} of the pipeline has {} optimizer files, and stage 0 {}", path.string(), stage,
                            stages.back().optimizers.size(), stages[0].optimizers.size()),
                  "copy every rank's files of one save into one folder");
  }
  if (stages.empty()) open_model_rank(path, {}, 0);  // throws: there is no file of the model
  const auto found = static_cast<int64_t>(stages.size());
  for (const DeepSpeedFolder& stage : stages)
    if (const int64_t counted = stages_counted(stage.models[0]); counted > found)
      open_model_rank(path, {}, found);
    else if (counted > 0 && counted < found)
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: it counts {} stages of a pipeline, and there are the files of {}",
                            stage.models[0].file()->path(), counted, found),
                  "remove the files that are left from a run with more stages");
  DeepSpeedFolder folder = stages[0];
  folder.stages = std::move(stages);
  for (const auto& [number, name] : files.layers)
    folder.layers.push_back({number, files::Node(std::make_shared<files::PtFile>(files::PtFile::open((path / name).string())))});
  return folder;
}

}  // namespace

bool is_deepspeed_folder(const std::string& dir) {
  if (!is_folder(dir)) return false;
  if (holds_files(dir)) return true;
  const std::string tag = latest(dir);
  return !checkpoint::tag_fault(tag).empty() ? !tags_in(dir).empty() : holds_files(fs::path(dir) / tag);
}

DeepSpeedFolder open_deepspeed(const std::string& dir, const std::string& tag, bool weights_only) {
  const fs::path path = choose(dir, tag);
  if (is_universal(path)) return open_universal(path);
  const FolderFiles files = sort_out(path, weights_only);
  if (files.layers.empty()) {
    const auto found = files.by_model_rank.find(0);
    DeepSpeedFolder folder = open_model_rank(path, found == files.by_model_rank.end() ? ModelRankFiles() : found->second, 0);
    check_model(path, folder, /*is_pipeline=*/false);
    return folder;
  }
  return open_pipeline(path, files);
}

}  // namespace gannet::convert
