#include "files/weight_files.h"

#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "files/bytes.h"
#include "files/io.h"
#include "files/known_folder.h"
#include "files/names.h"
#include "files/pieces.h"
#include "files/safetensors_file.h"
#include "files/state_dict.h"
#include "files/weight_index.h"

namespace gannet::files {
namespace {

using safetensors::SafetensorsFile;

// The files of a model, and the tensors expected in each if an index lists them.
struct ModelFileLayout {
  std::string taken_from, index;
  std::map<std::string, std::vector<std::string>> files;
};

class SafetensorsBytes : public StoredBytes {
 public:
  SafetensorsBytes(std::shared_ptr<const SafetensorsFile> file, safetensors::Entry entry)
      : file_(std::move(file)), entry_(std::move(entry)) {}
  void copy_out(uint64_t begin, uint64_t bytes, char* to) const override { file_->read(entry_, begin, bytes, to); }
  void copy_in(uint64_t, uint64_t, const char*) const override {
    throw Error(ErrorCode::kInternal, formatted("{} is not written to", file_->path()));
  }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
  safetensors::Entry entry_;
};

constexpr const char* kFetchAgain = "fetch the folder again";

const std::regex& shard_pattern() {
  static const std::regex& pattern = *new std::regex(R"((.+)-(\d{5})-of-(\d{5})(\.safetensors|\.bin))");
  return pattern;
}

bool exists(const std::string& path) { return files::kind_of(path).exists; }

ModelFileLayout of_index(const std::string& folder, const std::string& index) {
  ModelFileLayout layout{index, index, {}};
  for (auto& [file, names] : files::files_of_index(index)) {
    const std::string path = formatted("{}/{}", folder, file);
    if (!exists(path)) throw Error(ErrorCode::kNotFound, formatted("{} is missing, which {} lists", path, index), kFetchAgain);
    layout.files[path] = std::move(names);
  }
  return layout;
}

// Finds a complete set of shards without an index; nullopt if there is none, or several. Throws
// Error(kNotFound) if a shard is missing, Error(kCorrupt) if a shard's number exceeds the count.
std::optional<ModelFileLayout> of_shards(const std::string& folder) {
  std::map<std::pair<std::string, std::string>, std::set<int>> sets;  // the shards found, by stem and "-of-00003.bin"
  std::smatch match;
  for (const std::string& name : files::names_in(folder))
    if (std::regex_match(name, match, shard_pattern()))
      sets[{match[1].str(), formatted("-of-{}{}", match[3].str(), match[4].str())}].insert(std::stoi(match[2].str()));
  if (sets.size() != 1) return std::nullopt;
  const auto& [stem, rest] = sets.begin()->first;
  const int count = std::stoi(rest.substr(4, 5));
  if (const int last = *sets.begin()->second.rbegin(); last > count)
    throw Error(ErrorCode::kCorrupt, formatted("{}/{}* has a shard {} of {}", folder, stem, last, count), kFetchAgain);
  ModelFileLayout layout{formatted("{}/{}-*{}", folder, stem, rest), "", {}};
  for (int shard = 1; shard <= count; ++shard) {
    char number[16];
    std::snprintf(number, sizeof(number), "-%05d", shard);
    const std::string file = formatted("{}/{}{}{}", folder, stem, number, rest);
    if (!sets.begin()->second.contains(shard))
      throw Error(ErrorCode::kNotFound, formatted("{} is missing, one of {} shards", file, count), kFetchAgain);
    layout.files[file];
  }
  return layout;
}

std::optional<ModelFileLayout> find_in(const std::string& folder) {
  for (const std::string name : {"model.safetensors", "pytorch_model.bin"}) {
    const std::string file = formatted("{}/{}", folder, name), index = formatted("{}.index.json", file);
    if (exists(file)) return ModelFileLayout{file, "", {{file, {}}}};
    if (exists(index)) return of_index(folder, index);
  }
  return of_shards(folder);
}

ModelFileLayout find(const std::string& path) {
  const files::PathKind kind = files::kind_of(path);
  if (kind.is_folder) {
    if (auto layout = find_in(path)) return std::move(*layout);
    refuse_known_folder(path);
    const std::vector<std::string> names = files::names_in(path);
    for (const std::string& name : names)
      if (!exists(formatted("{}/{}", path, name)))
        throw Error(ErrorCode::kNotFound, formatted("{}/{} is a link to a file that is not there", path, name), kFetchAgain);
    throw Error(ErrorCode::kArgument,
                formatted("{} holds no weights that are known: no model.safetensors, no pytorch_model.bin, no index and no whole "
                          "set of shards of either; it has {}",
                          path, some_names(names, 5)),
                "give the file that holds them to load_weights or `gannet checkpoint import`, or name it model.safetensors (of "
                "torch.save: pytorch_model.bin)");
  }
  const size_t slash = path.rfind('/');
  if (kind.exists && path.ends_with(".index.json")) return of_index(slash == path.npos ? "." : path.substr(0, slash), path);
  std::smatch match;
  const std::string name = path.substr(slash + 1);
  if (kind.exists && std::regex_match(name, match, shard_pattern()) && match[3] != "00001")
    throw Error(ErrorCode::kArgument, formatted("{} is one of {} shards of a model", path, std::stoi(match[3].str())),
                "give their folder");
  return {path, "", {{path, {}}}};
}

}  // namespace

bool is_safetensors(const std::string& path) {
  const auto bytes = open_bytes(path);
  char head[9] = {};
  bytes->read(head, std::min<uint64_t>(sizeof(head), bytes->size()), 0);
  // This is the byte after the 8-byte header length. Neither of torch.save's formats has a '{'
  // there.
  if (head[8] == '{') return true;
  // The file is truncated or damaged at the start. The name decides, unless this is a torch.save
  // file with the wrong name.
  const bool is_torch_file = (head[0] == 'P' && head[1] == 'K') || head[0] == '\x80';
  return path.ends_with(".safetensors") && !is_torch_file;
}

namespace {

class WeightFilesBuilder {
 public:
  explicit WeightFilesBuilder(WeightFiles& all) : all_(all) {}

  void safetensors(const std::string& path) {
    const auto file = std::make_shared<const SafetensorsFile>(path);
    for (const auto& entry : file->header().entries) {
      int64_t numel = 1;
      for (const int64_t size : entry.shape) numel *= size;
      add(path, {entry.name, entry.shape, entry.dtype, numel, std::make_shared<SafetensorsBytes>(file, entry)});
    }
  }

  void pt(const std::string& path) {
    StateDict weights;
    add_state_dict(path, weights);
    all_.not_tensors += weights.not_tensors;
    if (all_.taken_from == path) all_.taken_from = weights.taken_from;
    std::map<std::string, std::string> places;
    ReadAmount amount;
    for (const std::string& name : weights.order) {
      const auto& tensor = weights.tensors.at(name);
      const StoredTensor& there = tensor.stored;
      const auto [first, is_new] = places.try_emplace(place_of(there), name);
      if (there.numel() > 0 && !is_new) {
        all_.aliases.emplace_back(name, first->second);
        remember(path, name);
        continue;
      }
      const StoredPieces pieces = {{there.numel(), tensor.file, there, 0}};
      amount.add(pieces);
      add(path, {name, there.sizes, there.dtype, there.numel(), stored(pieces, there.dtype)});
    }
    amount.check();
  }

  bool has(const std::string& name) const { return names_.contains(name); }

 private:
  void remember(const std::string& path, const std::string& name) {
    if (!names_.insert(name).second)
      throw Error(ErrorCode::kCorrupt, formatted("{} has the tensor {}, which another shard has too", path, shown(name)),
                  kFetchAgain);
  }
  void add(const std::string& path, WeightTensor tensor) {
    remember(path, tensor.name);
    all_.tensors.push_back(std::move(tensor));
  }

  WeightFiles& all_;
  std::set<std::string> names_;
};

}  // namespace

bool is_weights_folder(const std::string& folder) { return files::kind_of(folder).is_folder && find_in(folder).has_value(); }

WeightFiles open_weight_files(const std::string& path) {
  const ModelFileLayout layout = find(path);
  WeightFiles all;
  all.path = path;
  all.taken_from = layout.taken_from;
  WeightFilesBuilder adding(all);
  for (const auto& [file, names] : layout.files) {
    if (is_safetensors(file))
      adding.safetensors(file);
    else
      adding.pt(file);
    for (const std::string& name : names)
      if (!adding.has(name))
        throw Error(ErrorCode::kCorrupt, formatted("{} says that '{}' is in {}, where it is not", layout.index, name, file),
                    kFetchAgain);
  }
  return all;
}

void refuse_other_kinds(const std::string& taken_from, const std::vector<Conversion>& conversions) {
  enum class Kind { kInteger, kFloat, kFloat8, kComplex };
  const auto kind_of = [](c10::ScalarType dtype) {
    return c10::isIntegralType(dtype, /*includeBool=*/true) ? Kind::kInteger
           : c10::isFloat8Type(dtype)                       ? Kind::kFloat8
           : c10::isComplexType(dtype)                      ? Kind::kComplex
                                                            : Kind::kFloat;
  };
  std::vector<std::string> others;
  for (const auto& [name, from, to] : conversions)
    if (kind_of(from) != kind_of(to))
      others.push_back(formatted("{} ({} there, {} here)", name, c10::toString(from), c10::toString(to)));
  if (others.empty()) return;
  throw Error(ErrorCode::kMismatch,
              formatted("the weights of {} do not fit the model: other kinds of numbers there than here: {}", taken_from,
                        some_names(others)),
              "integers and float8 are codes of a quantized model: load the weights before they were quantized (docs/models.md)");
}

}  // namespace gannet::files
