// Fields and signatures: APPNOTE.TXT, "4.3 General Format of a .ZIP file". Contents are aligned to
// 64 bytes, as in torch.save's files, so that a file may be mapped.
#include "files/pt_writer.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/format.h"
#include "base/text.h"
#include "files/pickle_writer.h"

namespace gannet::files {
namespace {

constexpr uint64_t kAlignment = 64, kPart = 64 << 20, kLocalBytes = 30, kLarge = 0xffffffff;
// Bit 11 of the general purpose flag marks names as UTF-8. The versions needed to extract are 2.0,
// and 4.5 for zip64 (4.4.3).
constexpr uint16_t kUtf8 = 1 << 11, kVersion = 20, kVersion64 = 45;
constexpr const char* kArchive = "archive/";

template <class... Numbers>
std::string fields(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
  return bytes;
}

uint32_t narrow(uint64_t value) { return static_cast<uint32_t>(std::min(value, kLarge)); }
uint16_t length(const std::string& text) { return static_cast<uint16_t>(text.size()); }

// The entry's header, with zip64 sizes if 32 bits do not suffice, and padding up to the content.
std::string local_header(const std::string& name, uint64_t offset, uint64_t bytes, uint32_t crc) {
  std::string extra;
  if (bytes >= kLarge) extra = fields(uint16_t{1}, uint16_t{16}, bytes, bytes);
  const uint64_t padding = (kAlignment - (offset + kLocalBytes + name.size() + extra.size() + 4) % kAlignment) % kAlignment;
  // "FB" is the extra field that PyTorch itself uses to align contents
  // (caffe2/serialize/inline_container.cc).
  extra += formatted("FB{}{}", fields(static_cast<uint16_t>(padding)), std::string(padding, 'Z'));
  return fields(uint32_t{0x04034b50}, bytes >= kLarge ? kVersion64 : kVersion, kUtf8, uint16_t{0}, uint32_t{0}, crc,
                narrow(bytes), narrow(bytes), length(name), length(extra)) +
         name + extra;
}

std::string central_header(const std::string& name, uint64_t offset, uint64_t bytes, uint32_t crc) {
  std::string wide;
  if (bytes >= kLarge) wide += fields(bytes, bytes);
  if (offset >= kLarge) wide += fields(offset);
  const std::string extra = wide.empty() ? "" : fields(uint16_t{1}, length(wide)) + wide;
  const uint16_t version = wide.empty() ? kVersion : kVersion64;
  return fields(uint32_t{0x02014b50}, version, version, kUtf8, uint16_t{0}, uint32_t{0}, crc, narrow(bytes), narrow(bytes),
                length(name), length(extra), uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, narrow(offset)) +
         name + extra;
}

int64_t numel_of(const PtEntry& entry) {
  int64_t numel = 1;
  for (const int64_t size : entry.shape) numel *= size;
  return numel;
}

}  // namespace

PtWriter::PtWriter(std::string path, std::vector<PtEntry> entries) : PtWriter(std::move(path), entries, pickle_of(entries)) {}

PtWriter::PtWriter(std::string path, std::vector<PtEntry> entries, const std::string& pickle)
    : path_(std::move(path)), entries_(std::move(entries)) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t same = entries_[i].same_as;
    if (same >= 0 && (same >= static_cast<int64_t>(i) || entries_[same].dtype != entries_[i].dtype ||
                      numel_of(entries_[same]) != numel_of(entries_[i])))
      throw Error(ErrorCode::kArgument, formatted("{}: the entry '{}' should share the storage of one that is not like it", path_,
                                                  join(entries_[i].keys, "/")));
  }
  file_ = files::open_file(path_, O_WRONLY | O_CREAT | O_TRUNC);
  add("data.pkl", pickle.data(), pickle.size());
  add(".format_version", "1", 1);
  add(".storage_alignment", "64", 2);
  add("byteorder", "little", 6);
}

void PtWriter::add(const std::string& name, uint64_t bytes,
                   const std::function<const char*(uint64_t begin, uint64_t bytes)>& part) {
  ZipRecord record{kArchive + name, end_, bytes, 0};
  // The content is written first, because the header needs its checksum, which does not change the
  // header's length.
  const uint64_t begin = end_ + local_header(record.name, end_, bytes, 0).size();
  uLong crc = ::crc32(0, nullptr, 0);
  for (uint64_t done = 0; done < bytes; done += kPart) {  // each part is checksummed while it is in the cache
    const uint64_t size = std::min(kPart, bytes - done);
    const char* const from = part(done, size);
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(from), size);
    files::write_at(file_, from, size, begin + done, path_);
  }
  record.crc = static_cast<uint32_t>(crc);
  const std::string header = local_header(record.name, end_, bytes, record.crc);
  files::write_at(file_, header.data(), header.size(), end_, path_);
  end_ = begin + bytes;
  records_.push_back(std::move(record));
}

void PtWriter::add(const std::string& name, const void* content, uint64_t bytes) {
  add(name, bytes, [from = static_cast<const char*>(content)](uint64_t begin, uint64_t) { return from + begin; });
}

const PtEntry& PtWriter::next() {
  while (next_ < entries_.size() && entries_[next_].same_as >= 0) ++next_;
  if (next_ == entries_.size()) throw Error(ErrorCode::kOrder, formatted("{}: every tensor of it was written already", path_));
  return entries_[next_];
}

void PtWriter::write(const at::Tensor& tensor) {
  const PtEntry& entry = next();
  if (tensor.scalar_type() != entry.dtype || tensor.sizes() != at::IntArrayRef(entry.shape))
    throw Error(ErrorCode::kArgument, formatted("{}: '{}' should have dtype {} and shape {}, found {} and {}", path_,
                                                join(entry.keys, "/"), c10::toString(entry.dtype), shape_text(entry.shape),
                                                c10::toString(tensor.scalar_type()), shape_text(tensor.sizes())));
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  add(formatted("data/{}", storages_++), plain.const_data_ptr(), plain.nbytes());
  ++next_;
}

void PtWriter::write(const std::function<void(int64_t begin, const at::Tensor& into)>& read) {
  const PtEntry& entry = next();
  const auto element = static_cast<uint64_t>(c10::elementSize(entry.dtype));  // divides kPart
  at::Tensor buffer;
  add(formatted("data/{}", storages_++), numel_of(entry) * element, [&](uint64_t begin, uint64_t bytes) {
    const auto numel = static_cast<int64_t>(bytes / element);
    if (!buffer.defined() || buffer.numel() != numel) buffer = at::empty({numel}, entry.dtype);
    read(static_cast<int64_t>(begin / element), buffer);
    return static_cast<const char*>(buffer.const_data_ptr());
  });
  ++next_;
}

void PtWriter::finish() {
  while (next_ < entries_.size() && entries_[next_].same_as >= 0) ++next_;
  if (next_ < entries_.size())
    throw Error(ErrorCode::kOrder, formatted("{}: '{}' was not written", path_, join(entries_[next_].keys, "/")));
  add("version", "3\n", 2);
  std::string directory;
  for (const ZipRecord& record : records_) directory += central_header(record.name, record.offset, record.bytes, record.crc);
  const uint64_t count = records_.size(), begin = end_, end64 = end_ + directory.size();
  directory += fields(uint32_t{0x06064b50}, uint64_t{44}, kVersion64, kVersion64, uint32_t{0}, uint32_t{0}, count, count,
                      end64 - begin, begin);
  directory += fields(uint32_t{0x07064b50}, uint32_t{0}, end64, uint32_t{1});
  const auto count16 = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  directory += fields(uint32_t{0x06054b50}, uint32_t{0}, count16, count16, narrow(end64 - begin), narrow(begin), uint16_t{0});
  files::write_at(file_, directory.data(), directory.size(), end_, path_);
  files::sync(file_, path_);
  file_.close(path_);
}

void save_pt(const std::string& path, const NamedTensors& tensors) {
  std::vector<PtEntry> entries;
  // A lazy conjugate or negative shares its view with the source but has other values, so it is
  // never tied.
  using View = std::tuple<const void*, int64_t, c10::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<View, int64_t> views;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) throw Error(ErrorCode::kArgument, formatted("{}: the tensor '{}' is undefined", path, name));
    const View view{tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(), tensor.sizes().vec(),
                    tensor.strides().vec()};
    const bool is_plain = !tensor.is_conj() && !tensor.is_neg();
    const auto found = is_plain ? views.find(view) : views.end();
    entries.push_back({{name}, tensor.scalar_type(), tensor.sizes().vec(), found == views.end() ? -1 : found->second});
    if (is_plain) views.emplace(view, static_cast<int64_t>(entries.size()) - 1);
  }
  files::replace_file(path, [&](const std::string& beside) {
    PtWriter writer(beside, entries);
    for (size_t i = 0; i < tensors.size(); ++i)
      if (entries[i].same_as < 0) writer.write(tensors[i].second);
    writer.finish();
  });
}

}  // namespace gannet::files
