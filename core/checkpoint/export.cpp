#include "checkpoint/export.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/value_json.h"
#include "files/io.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTogether = 64 << 20;  // small tensors are read in groups, because a block of the checkpoint holds many

uint64_t source_bytes(const ExportItem& item) { return item.source->numel() * c10::elementSize(item.source->dtype); }

struct ExportShard {
  std::vector<ExportItem> items;
  uint64_t bytes = 0;
  std::string name;
};

std::vector<ExportShard> plan(const ExportSource& from, const ExportOptions& options) {
  std::vector<ExportShard> shards(1);
  std::set<std::string> names;
  std::map<std::string, std::vector<std::string>> aliases;
  if (options.format.has_aliases)
    for (const auto& [alias, name] : from.aliases) aliases[name].push_back(alias);
  for (const auto& [name, info] : from.tensors) {
    ExportItem item{&info, name, info.dtype};
    if (!names.insert(item.name).second)
      throw Error(ErrorCode::kArgument, formatted("{} has a parameter and a buffer of the name '{}'", from.path, item.name));
    if (options.dtype && c10::isFloatingType(info.dtype)) item.dtype = *options.dtype;
    if (!shards.back().items.empty() &&
        item.bytes() > options.max_shard_bytes - std::min(shards.back().bytes, options.max_shard_bytes))
      shards.emplace_back();
    shards.back().bytes += item.bytes();
    shards.back().items.push_back(item);
    for (const std::string& alias : aliases[name]) {
      if (!names.insert(alias).second)
        throw Error(ErrorCode::kArgument, formatted("{} has two tensors of the name '{}'", from.path, alias));
      shards.back().items.push_back({&info, alias, item.dtype, name});
    }
  }
  if (names.empty())
    throw Error(ErrorCode::kArgument,
                formatted("{} holds no weights: no tensor's name begins with 'parameter/' or 'buffer/0/'", from.path),
                "`gannet checkpoint show` lists what it holds");
  for (size_t i = 0; i < shards.size(); ++i) {
    char number[32] = "";
    if (shards.size() > 1) std::snprintf(number, sizeof(number), "-%05zu-of-%05zu", i + 1, shards.size());
    shards[i].name = options.format.stem + number + options.format.extension;
    // Tensors with the largest elements come first, so that every tensor begins at a multiple of
    // its element size.
    std::stable_sort(shards[i].items.begin(), shards[i].items.end(), [](const ExportItem& a, const ExportItem& b) {
      return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
    });
  }
  return shards;
}

// Reads a shard's tensors in groups and passes each to `use` in its exported dtype.
void each_tensor(const ExportSource& from, std::vector<ExportItem> items, const std::function<void(const at::Tensor&)>& use) {
  std::erase_if(items, [](const ExportItem& item) { return !item.alias_of.empty(); });
  for (auto item = items.begin(); item != items.end();) {
    std::vector<Target> group;
    uint64_t bytes = 0;
    const auto first = item;
    for (; item != items.end() && (group.empty() || bytes + source_bytes(*item) <= kTogether); ++item) {
      bytes += source_bytes(*item);
      group.push_back({item->source->name, 0, at::empty(item->source->shape, item->source->dtype)});
    }
    from.read(group);
    for (size_t i = 0; i < group.size(); ++i) use(std::exchange(group[i].into, {}).to(first[i].dtype));
  }
}

void write_safetensors(const std::string& path, const std::vector<ExportItem>& items, const EachTensor& each) {
  safetensors::Header header;
  header.metadata = {{"format", "pt"}};
  uint64_t end = 0;
  for (const ExportItem& item : items) {
    header.entries.push_back({item.name, item.dtype, item.source->shape, end, end + item.bytes()});
    end += item.bytes();
  }
  const std::string json = safetensors::format_header(header);
  const uint64_t length = json.size();
  files::Descriptor file = files::open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  files::write_at(file, reinterpret_cast<const char*>(&length), sizeof(length), 0, path);
  files::write_at(file, json.data(), json.size(), sizeof(length), path);
  uint64_t offset = sizeof(length) + json.size();
  each([&](const at::Tensor& tensor) {
    files::write_at(file, static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes(), offset, path);
    offset += tensor.nbytes();
  });
  files::sync(file, path);
  file.close(path);
}

std::string index_of(const std::vector<ExportShard>& shards, uint64_t bytes) try {
  nlohmann::json map = nlohmann::json::object();  // sorted by name, like Hugging Face's
  for (const ExportShard& shard : shards)
    for (const ExportItem& item : shard.items) map[item.name] = shard.name;
  return nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}}.dump(2) + "\n";
} catch (const nlohmann::json::exception& error) {
  throw Error(ErrorCode::kArgument, std::string("the tensors' names cannot be written as JSON: ") + error.what(),
              "names must be UTF-8");
}

void make_folder(const std::string& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code && !files::kind_of(folder).is_folder) files::io_failed("make the folder", folder, code.value());
}

void check_folder(const std::string& folder, const ExportFormat& format) {
  if (folder.empty()) throw Error(ErrorCode::kArgument, "the name of the folder to write into is empty", "name a folder");
  make_folder(folder);
  for (const std::string& name : files::names_in(folder)) {
    if (name.starts_with(format.stem) &&
        (name.ends_with(format.extension) || name.ends_with(formatted("{}.index.json", format.extension))))
      throw Error(ErrorCode::kArgument, formatted("{} holds a model already ({})", folder, name),
                  "remove it, or export into another folder");
  }
}

ExportResult write(const ExportSource& from, const std::string& folder, const ExportOptions& options,
                   const std::vector<ExportShard>& shards) {
  ExportResult result;
  for (const ExportShard& shard : shards) {
    result.tensors += shard.items.size();
    result.bytes += shard.bytes;
    result.files.push_back(shard.name);
  }
  if (!options.format.has_aliases)
    for (const auto& [alias, name] : from.aliases)
      result.left_out.push_back(
          formatted("{}: another name of {}, which a {} file has once", alias, name, options.format.extension));
  const uint64_t free = free_bytes(folder);
  if (free < result.bytes)
    throw Error(ErrorCode::kIo, formatted("the model does not fit: it takes {}, in {} are {} free; nothing was written",
                                          size_text(result.bytes), folder, size_text(free)));
  if (shards.size() > 1) result.files.push_back(formatted("{}{}.index.json", options.format.stem, options.format.extension));

  const std::string own = formatted("{:08x}", std::random_device()());  // process ids of two containers may be equal
  auto staged = [&](const std::string& name) { return formatted("{}/.{}.tmp-{}", folder, name, own); };
  try {
    for (const ExportShard& shard : shards)
      options.format.write(staged(shard.name), shard.items, [&](const auto& use) { each_tensor(from, shard.items, use); });
    if (shards.size() > 1) files::write_synced(staged(result.files.back()), index_of(shards, result.bytes));
    for (const std::string& name : result.files) files::rename_file(staged(name), formatted("{}/{}", folder, name));
  } catch (...) {
    for (const std::string& name : result.files) ::unlink(staged(name).c_str());
    throw;
  }
  files::sync_folder(folder);
  return result;
}

}  // namespace

uint64_t ExportItem::bytes() const { return source->numel() * c10::elementSize(dtype); }

const ExportFormat& safetensors_format() {
  static const ExportFormat& format = *new ExportFormat{"model", ".safetensors", false, write_safetensors};
  return format;
}

std::vector<ExportSource::Tensor> weights_of(const Opened& from) {
  std::vector<ExportSource::Tensor> all;
  std::set<std::string> buffers;
  for (const TensorInfo& tensor : from.tensors()) {
    if (tensor.name.starts_with("parameter/")) all.push_back({tensor.name.substr(10), tensor});
    if (!tensor.name.starts_with("buffer/0/") && !tensor.name.starts_with("buffer/0.")) continue;
    std::string name = tensor.name.substr(tensor.name.find('/', 7) + 1);
    if (buffers.insert(name).second) all.push_back({std::move(name), tensor});
  }
  return all;
}

std::vector<ExportSource::Tensor> averages_of(const Opened& from) {
  std::vector<ExportSource::Tensor> all = weights_of(from);
  bool has_one = false;
  for (ExportSource::Tensor& tensor : all)
    if (const TensorInfo* average = tensor.info.name.starts_with("parameter/") ? from.find("average/" + tensor.name) : nullptr) {
      tensor.info = *average;
      has_one = true;
    }
  if (!has_one)
    throw Error(ErrorCode::kNotFound, formatted("checkpoint {} has no moving average of the parameters", from.path()),
                "train with \"gannet\": {\"ema\": {\"decay\": 0.999}}, or leave --ema out");
  return all;
}

ExportSource export_source(const Opened& from, bool averages) {
  return {from.path(), averages ? averages_of(from) : weights_of(from), {}, [&from](const std::vector<Target>& targets) {
            from.read(targets);
          }};
}

ExportResult export_model(const Opened& from, const std::string& folder, const ExportOptions& options) {
  return export_model(export_source(from), folder, options);
}

ExportResult export_model(const ExportSource& from, const std::string& folder, const ExportOptions& options) {
  const std::vector<ExportShard> shards = plan(from, options);
  check_folder(folder, options.format);
  return write(from, folder, options, shards);
}

ExportResult export_file(const ExportSource& from, const std::string& file, const ExportOptions& options) {
  if (files::kind_of(file).exists)
    throw Error(ErrorCode::kArgument, formatted("{} is there already", file), "remove it, or choose another name");
  ExportOptions whole = options;
  whole.max_shard_bytes = UINT64_MAX;
  std::vector<ExportShard> shards = plan(from, whole);
  const size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
  make_folder(folder);
  shards[0].name = file.substr(slash + 1);
  return write(from, folder, whole, shards);
}

uint64_t parse_size(const std::string& text) {
  if (const auto bytes = parse_bytes(text)) return *bytes;
  throw Error(ErrorCode::kArgument, formatted("'{}' is not a size", text), "write it like 5GB, 500MB or 2GiB");
}

}  // namespace gannet::checkpoint
