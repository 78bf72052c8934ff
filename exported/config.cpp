// Reads a folder written by gannet_export, except its weights.
#include <gannet/error.h>
#include <gannet/exported.h>
#include <gannet/safetensors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "batch.h"
#include "dtype_names.h"
#include "json_members.h"
#include "model_type.h"
#include "program.h"

namespace gannet {
namespace {

using exported::refuse_file;

constexpr const char* kGraphs[] = {"train.fp32", "eval.fp32", "train.bf16", "eval.bf16"};
constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

std::string read_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::exists(path, code))
    throw Error(ErrorCode::kNotFound, "there is no " + path, "export the model again, or copy the whole folder");
  if (!fs::is_regular_file(path, code)) throw Error(ErrorCode::kCorrupt, path + " is not a file", "copy the folder again");
  if (fs::file_size(path, code) > kMostBytes)
    throw Error(ErrorCode::kCorrupt, path + ": larger than 256 MiB, which no graph is", "was another file meant?");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file)
    throw Error(ErrorCode::kIo, path + " cannot be read: " + std::strerror(errno ? errno : EIO), "check its permissions");
  return text;
}

std::vector<int64_t> shape_of(const Value& json, const std::string& where) {
  std::vector<int64_t> shape;
  int64_t numel = 1;
  for (const Value& one : exported::list(json, "shape", where)) {
    if (!one.is_int() || one.as_int() < 0) refuse_file(where, "a size is not an integer of at least 0");
    if (__builtin_mul_overflow(numel, one.as_int(), &numel) || numel > int64_t{1} << 48)
      refuse_file(where, "the shape is too large");
    shape.push_back(one.as_int());
  }
  return shape;
}

std::vector<ExportedTensor> tensors_of(const Value& json, const char* key, const std::string& path,
                                       std::set<std::string>& known) {
  std::vector<ExportedTensor> tensors;
  for (const Value& one : exported::list(json, key, path)) {
    ExportedTensor tensor;
    tensor.name = exported::text(one, "name", path + ": " + key);
    const std::string where = path + ": " + key + ", '" + tensor.name + "'";
    if (tensor.name.empty() || tensor.name.front() == '.' || tensor.name.back() == '.' ||
        tensor.name.find("..") != std::string::npos)
      refuse_file(where, "the name has an empty part");
    if (!known.insert(tensor.name).second) refuse_file(where, "the name is there twice");
    tensor.shape = shape_of(one, where);
    if (one.as_dict().find("dtype")) tensor.dtype = exported::text(one, "dtype", where);
    if (!exported::dtype_named(tensor.dtype)) refuse_file(where, "the dtype '" + tensor.dtype + "' is unknown");
    if (const Value* flag = one.as_dict().find("requires_grad")) tensor.requires_grad = flag->is_bool() && flag->as_bool();
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Every parameter and buffer name in a graph must belong to the module.
void require_known(const exported::GraphFile& file, const ExportedConfig& config) {
  const auto has = [](const std::vector<ExportedTensor>& tensors, const std::string& name) {
    for (const ExportedTensor& one : tensors)
      if (one.name == name) return true;
    return false;
  };
  using Kind = exported::Placeholder::Kind;
  for (const exported::Placeholder& one : file.placeholders) {
    if (one.kind == Kind::kParameter && !has(config.parameters, one.target))
      refuse_file(file.path, "the parameter '" + one.target + "' is not in config.json");
    if (one.kind == Kind::kBuffer && !has(config.buffers, one.target))
      refuse_file(file.path, "the buffer '" + one.target + "' is not in config.json");
  }
}

void read_tied(const Value& json, const std::string& path, const std::set<std::string>& known, ExportedConfig& config) {
  for (const Value& one : exported::list(json, "tied", path)) {
    const bool is_pair =
        one.is_list() && one.as_list().size() == 2 && one.as_list()[0].is_string() && one.as_list()[1].is_string();
    if (!is_pair) refuse_file(path + ": tied", "it is not a pair of names");
    exported::require_name(one.as_list()[0].as_string(), path + ": tied");
    if (!known.contains(one.as_list()[1].as_string())) refuse_file(path + ": tied", "the second name is none of the tensors");
    config.tied.emplace_back(one.as_list()[0].as_string(), one.as_list()[1].as_string());
  }
}

}  // namespace

ExportedConfig ExportedConfig::from(const ModelConfig& json, const std::string& folder) {
  exported::require_exported(json);
  const std::string path = json.where();
  const Value values = json.values();
  if (const int64_t format = exported::integer(values, "format", path); format != exported::kFormat)
    throw Error(
        ErrorCode::kUnsupported,
        path + ": format " + std::to_string(format) + ", and this Gannet reads format " + std::to_string(exported::kFormat),
        "export the model again, with the gannet_export of this Gannet (python/ in its sources)");
  ExportedConfig config;
  config.folder = folder;
  std::set<std::string> known;
  config.parameters = tensors_of(values, "parameters", path, known);
  config.buffers = tensors_of(values, "buffers", path, known);
  read_tied(values, path, known, config);
  const std::string constants_file = folder + "/constants.safetensors";
  if (!std::filesystem::exists(constants_file))
    throw Error(ErrorCode::kNotFound, "there is no " + constants_file, "copy the whole folder, or export the model again");
  const auto constants = load_safetensors(constants_file);
  for (const Value& one : exported::list(values, "graphs", path)) {
    const auto is_name = [&](const char* name) { return one.is_string() && one.as_string() == name; };
    if (std::none_of(std::begin(kGraphs), std::end(kGraphs), is_name))
      refuse_file(path + ": graphs", "a graph is one of train.fp32, eval.fp32, train.bf16 and eval.bf16");
    const std::string file = folder + "/graph." + one.as_string() + ".json";
    exported::GraphFile graph = exported::read_graph(read_file(file), file);
    if (graph.mode + "." + graph.dtype != one.as_string())
      refuse_file(file, "it holds the graph " + graph.mode + "." + graph.dtype);
    require_known(graph, config);
    config.programs.push_back(std::make_shared<exported::Program>(std::move(graph), constants));
  }
  if (config.programs.empty()) refuse_file(path, "there is no graph in 'graphs'");
  return config;
}

std::vector<ExportedGraph> ExportedConfig::graphs() const {
  std::vector<ExportedGraph> graphs;
  for (const auto& program : programs) {
    const exported::GraphFile& file = program->file();
    ExportedGraph& graph = graphs.emplace_back();
    graph.name = program->name();
    graph.torch_version = file.torch_version;
    for (const exported::Graph& one : file.graphs) graph.nodes += one.nodes.size();
    for (const exported::Input& one : file.inputs) graph.inputs.push_back({one.name, one.dtype, exported::shape_text(file, one)});
    std::vector<std::string> names;
    for (const exported::Symbol& one : file.symbols) names.push_back(one.name);
    for (const exported::Relation& one : file.relations) graph.relations.push_back(exported::to_text(one, names));
  }
  return graphs;
}

}  // namespace gannet
