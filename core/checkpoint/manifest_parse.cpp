// Parses a manifest's text into validated entries.
#include <gannet/error.h>

#include <algorithm>
#include <set>

#include "base/format.h"
#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
namespace {

constexpr size_t kChecksumLine = kChecksumBegin.size() + 32 + std::string_view("\",\n").size();

[[noreturn]] void corrupt(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, formatted("{}: {}", path, what));
}

// Reads the members of a JSON object and requires their types.
class MemberReader {
 public:
  MemberReader(const Json& object, const std::string& path, std::string where)
      : object_(object), path_(path), where_(std::move(where)) {
    if (!object.is_object()) corrupt(path_, formatted("{} is not a dictionary", where_));
  }

  const Json& member(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) corrupt(path_, formatted("{} has no '{}'", where_, key));
    return *found;
  }
  int64_t size(const char* key, uint64_t limit = INT64_MAX) const { return size_of(member(key), key, limit); }
  int64_t size_of(const Json& value, const char* key, uint64_t limit = INT64_MAX) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > limit)
      corrupt(path_, formatted("{}: '{}' is not a size up to {}: {}", where_, key, limit, shown(value)));
    return static_cast<int64_t>(value.get<uint64_t>());
  }
  const std::string& text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string()) corrupt(path_, formatted("{}: '{}' is not a text: {}", where_, key, shown(value)));
    return value.get_ref<const std::string&>();
  }
  const Json& list(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) corrupt(path_, formatted("{}: '{}' is not a list: {}", where_, key, shown(value)));
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const { corrupt(path_, formatted("{} {}", where_, what)); }

 private:
  static std::string shown(const Json& value) { return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80); }

  const Json& object_;
  const std::string& path_;
  std::string where_;
};

Dict document_of(const Json& json, const std::string& path, const std::string& where) {
  if (!json.is_object()) corrupt(path, formatted("{} is not a dictionary", where));
  Value value = from_json(json);
  if (!value.is_dict()) corrupt(path, formatted("{} is not a dictionary", where));  // it was only {"$number": ...}
  return std::move(value.as_dict());
}

uint64_t parse_hex(const Json& value, const MemberReader& reader) {
  const std::string* text = value.is_string() ? &value.get_ref<const std::string&>() : nullptr;
  if (!text || text->size() != 16 || text->find_first_not_of("0123456789abcdef") != std::string::npos)
    reader.fail("has a checksum that is not 16 hexadecimal digits");
  return std::stoull(*text, nullptr, 16);
}

FileEntry parse_file(const Json& json, size_t index, uint64_t block_bytes, const std::string& path) {
  const MemberReader reader(json, path, formatted("file {}", index));
  FileEntry file;
  file.name = reader.text("name");
  if (file.name.empty() || file.name.front() == '.' || file.name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    reader.fail("has a name that is not one of a file beside the manifest");
  file.bytes = reader.size("bytes");
  const Json& blocks = reader.list("blocks");
  if (blocks.size() != block_count(file.bytes, block_bytes))
    reader.fail(
        formatted("of {} bytes has {} checksums, expected {}", file.bytes, blocks.size(), block_count(file.bytes, block_bytes)));
  for (const Json& block : blocks) file.blocks.push_back(parse_hex(block, reader));
  if (json.contains("keeper")) file.keeper = static_cast<uint32_t>(reader.size("keeper", UINT32_MAX));
  return file;
}

// Parses the mesh of format 2. In format 1, the ranks form one axis.
MeshShape parse_mesh(const Json& json, const std::string& path) try {
  const MemberReader reader(json, path, "'mesh'");
  std::vector<MeshAxis> axes;
  for (const Json& axis : reader.list("axes")) {
    if (!axis.is_array() || axis.size() != 2 || !axis[0].is_string()) reader.fail("has an axis that is not a name and a size");
    axes.push_back({axis[0], static_cast<uint32_t>(reader.size_of(axis[1], "axes", UINT32_MAX))});
  }
  std::vector<uint32_t> ranks;
  if (json.contains("ranks"))
    for (const Json& rank : reader.list("ranks"))
      ranks.push_back(static_cast<uint32_t>(reader.size_of(rank, "ranks", UINT32_MAX)));
  return MeshShape(std::move(axes), std::move(ranks));
} catch (const Error& error) {
  if (error.code() != ErrorCode::kArgument) throw;
  corrupt(path, formatted("'mesh': {}", error.message()));
}

std::vector<int64_t> parse_sizes(const MemberReader& reader, const char* key) {
  std::vector<int64_t> sizes;
  for (const Json& size : reader.list(key)) sizes.push_back(reader.size_of(size, key));
  return sizes;
}

Split parse_split(const Json& json, const MemberReader& slice, const std::vector<int64_t>& shape, const std::string& path) {
  Split split;
  if (!json.contains("boxes")) return split;
  for (const Json& item : slice.list("boxes")) {
    const MemberReader box(item, path, "a box");
    split.boxes.push_back({parse_sizes(box, "offsets"), parse_sizes(box, "sizes")});
  }
  if (split.boxes.empty()) slice.fail("has an empty list of boxes");
  if (split.boxes.size() > 1) split.dim = slice.size("dim");
  if (const std::string fault = split_fault(shape, split); !fault.empty()) slice.fail(fault);
  return split;
}

TensorEntry parse_tensor(const Json& json, size_t index, const std::vector<FileEntry>& files, const std::string& path) {
  const std::string& name = MemberReader(json, path, formatted("tensor {}", index)).text("name");
  const MemberReader reader(json, path, formatted("tensor '{}'", name));
  const auto dtype = safetensors::dtype_of(reader.text("dtype"));
  if (!dtype) reader.fail(formatted("has dtype '{}', which is not known", reader.text("dtype").substr(0, 40)));
  TensorEntry tensor{{name, *dtype, {}}, {}};
  tensor.info.shape = parse_sizes(reader, "shape");
  const int64_t numel = checked_numel(tensor.info.shape, *dtype);
  if (numel < 0) reader.fail("has a shape larger than any memory");

  for (const Json& item : reader.list("slices")) {
    const MemberReader slice(item, path, formatted("a slice of tensor '{}'", name));
    SliceEntry entry{slice.size("begin"), slice.size("numel"), static_cast<size_t>(slice.size("file")),
                     static_cast<uint64_t>(slice.size("offset"))};
    if (entry.file >= files.size()) slice.fail(formatted("is in file {} of {}", entry.file, files.size()));
    entry.split = parse_split(item, slice, tensor.info.shape, path);
    const int64_t most = numel_of(local_shape(tensor.info.shape, entry.split));
    if (entry.begin > most || entry.numel > most - entry.begin)
      slice.fail(formatted("reaches from element {} over {}, {} {}", entry.begin, entry.numel,
                           entry.split.is_whole() ? "the tensor has" : "its boxes have", most));
    const FileEntry& file = files[entry.file];
    const uint64_t bytes = static_cast<uint64_t>(entry.numel) * c10::elementSize(*dtype);
    if (entry.offset > file.bytes || bytes > file.bytes - entry.offset)
      slice.fail(formatted("ends beyond {}, which has {} bytes", file.name, file.bytes));
    tensor.slices.push_back(entry);
  }
  const std::string fault = coverage_fault(tensor.slices, tensor.info.shape);
  if (!fault.empty()) reader.fail(fault);
  return tensor;
}

// Refuses slices that share bytes of a file: they would be one tensor under two names.
void check_apart(const Manifest& manifest, const std::string& path) {
  struct Span {
    size_t file;
    uint64_t begin, end;
    const TensorEntry* tensor;
  };
  std::vector<Span> spans;
  for (const TensorEntry& tensor : manifest.tensors)
    for (const SliceEntry& slice : tensor.slices)
      if (slice.numel > 0)
        spans.push_back({slice.file, slice.offset, slice.offset + slice.numel * c10::elementSize(tensor.info.dtype), &tensor});
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::pair(a.file, a.begin) < std::pair(b.file, b.begin); });
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].file == spans[i - 1].file && spans[i].begin < spans[i - 1].end)
      corrupt(path, formatted("tensors '{}' and '{}' overlap in {}", spans[i - 1].tensor->info.name, spans[i].tensor->info.name,
                              manifest.files[spans[i].file].name));
}

Manifest parse_body(const Json& json, const std::string& path) {
  const MemberReader reader(json, path, "the manifest");
  const int64_t format = reader.size("format");
  const std::string& gannet = reader.text("gannet");
  if (format > kFormat)
    throw Error(ErrorCode::kUnsupported,
                formatted("{} is of format {}, written by Gannet {}; this one ({}) reads up to format {}", path, format,
                          gannet.substr(0, 40), GANNET_VERSION, kFormat),
                formatted("load it with Gannet {} or a newer one", gannet.substr(0, 40)));
  if (format < 1) reader.fail(formatted("is of format {}, which there never was", format));

  Manifest manifest;
  manifest.gannet = gannet;
  manifest.tag = reader.text("tag");
  manifest.saved_at = reader.text("saved_at");
  manifest.sequence = reader.size("sequence");
  manifest.world_size = static_cast<uint32_t>(reader.size("world_size", UINT32_MAX));
  manifest.block_bytes = reader.size("block_bytes", kMaxBlockBytes);
  if (manifest.block_bytes == 0 || manifest.block_bytes % 4096 != 0)
    reader.fail(formatted("has blocks of {} bytes, not a multiple of 4096", manifest.block_bytes));
  manifest.document = document_of(reader.member("document"), path, "'document'");
  const Json& rank_documents = reader.list("rank_documents");
  if (manifest.world_size == 0 || rank_documents.size() != manifest.world_size)
    reader.fail(formatted("has {} rank documents for {} ranks", rank_documents.size(), manifest.world_size));
  manifest.mesh = format >= 2 ? parse_mesh(reader.member("mesh"), path) : MeshShape({{kDataAxis, manifest.world_size}});
  if (manifest.mesh.world_size() != manifest.world_size)
    reader.fail(formatted("has a mesh of {} for {} ranks", manifest.mesh.text(), manifest.world_size));
  for (const Json& document : rank_documents) manifest.rank_documents.push_back(document_of(document, path, "a rank's document"));

  std::set<std::string> names;
  for (const Json& file : reader.list("files")) {
    manifest.files.push_back(parse_file(file, manifest.files.size(), manifest.block_bytes, path));
    if (!names.insert(manifest.files.back().name).second)
      reader.fail(formatted("names the file {} twice", manifest.files.back().name));
  }
  names.clear();
  for (const Json& tensor : reader.list("tensors")) {
    manifest.tensors.push_back(parse_tensor(tensor, manifest.tensors.size(), manifest.files, path));
    if (!names.insert(manifest.tensors.back().info.name).second)
      reader.fail(formatted("names the tensor '{}' twice", manifest.tensors.back().info.name));
  }
  check_apart(manifest, path);
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path) {
  if (text.size() < kChecksumLine || text.substr(0, kChecksumBegin.size()) != kChecksumBegin)
    corrupt(path, "it does not begin with the checksum of a manifest");
  const std::string_view rest = text.substr(kChecksumLine);
  if (text.substr(0, kChecksumLine) != checksum_line(rest))
    corrupt(path, formatted("its checksum is not that of its {} bytes: it is damaged or was edited", text.size()));
  try {
    return parse_body(parse_json(text), path);
  } catch (const Json::exception& error) {
    corrupt(path, std::string("it is not JSON as it should be: ") + error.what());
  }
}

}  // namespace gannet::checkpoint
