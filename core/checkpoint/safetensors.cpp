#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/safetensors.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "checkpoint/safetensors_header.h"
#include "tensor/vector_math.h"

static_assert(std::endian::native == std::endian::little, "the format is little-endian and tensors are read as they lie");

namespace gannet {
namespace {

using safetensors::Entry;

[[noreturn]] void failed(const std::string& what, const std::string& path, int code) {
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot " + what + " " + path + ": " + std::strerror(code));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }

 private:
  int number_;
};

void read_all(int file, void* to, uint64_t bytes, const std::string& path) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::read(file, static_cast<char*>(to) + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed("read", path, errno);
    if (count == 0) throw Error(ErrorCode::kIo, path + " became shorter while it was read");
    done += count;
  }
}

void write_all(int file, const void* from, uint64_t bytes, const std::string& path) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t count = ::write(file, static_cast<const char*>(from) + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed("write", path, errno);
    done += count;
  }
}

// Largest elements first: then every tensor begins at a multiple of its element's size, whatever the shapes.
safetensors::Header lay_out(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                            std::vector<at::Tensor>& in_order) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__" || !names.insert(name).second)
      throw Error(ErrorCode::kArgument, "save_safetensors: the name '" + name +
                                            (name == "__metadata__" ? "' is the format's own" : "' is given twice"));
    if (!tensor.defined()) throw Error(ErrorCode::kArgument, "save_safetensors: tensor '" + name + "' is undefined");
    if (!safetensors::dtype_name(tensor.scalar_type()))
      throw Error(ErrorCode::kUnsupported,
                  "save_safetensors: tensor '" + name + "' has dtype " + c10::toString(tensor.scalar_type()),
                  "convert it to one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  }
  std::vector<const NamedTensors::value_type*> order;
  for (const auto& item : tensors) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return a->second.element_size() > b->second.element_size(); });

  safetensors::Header header;
  header.metadata = metadata;
  uint64_t offset = 0;
  for (const auto* item : order) {
    const auto& [name, tensor] = *item;
    const uint64_t end = offset + tensor.nbytes();
    header.entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), offset, end});
    in_order.push_back(tensor);
    offset = end;
  }
  return header;
}

}  // namespace

std::map<std::string, at::Tensor> load_safetensors(const std::string& path, std::map<std::string, std::string>* metadata) {
  settle_vector_math();  // What is loaded here may be run without an engine.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) failed("open", path, errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kIo, "cannot read " + path + ": it is not a file");

  const uint64_t file_bytes = status.st_size;
  uint64_t header_bytes = 0;
  const std::string advice = "the file is damaged or not in the safetensors format: fetch or save it again";
  if (file_bytes < sizeof(header_bytes))
    throw Error(ErrorCode::kCorrupt, path + ": a file of " + std::to_string(file_bytes) + " bytes has no room for a header",
                advice);
  read_all(file, &header_bytes, sizeof(header_bytes), path);
  if (header_bytes > safetensors::kMaxHeaderBytes)
    throw Error(ErrorCode::kCorrupt,
                path + ": its header claims " + std::to_string(header_bytes) + " bytes, the format allows 100000000", advice);
  if (header_bytes > file_bytes - sizeof(header_bytes))
    throw Error(
        ErrorCode::kCorrupt,
        path + ": its header claims " + std::to_string(header_bytes) + " bytes, the file has " + std::to_string(file_bytes),
        advice);
  std::string json(header_bytes, '\0');
  read_all(file, json.data(), header_bytes, path);
  auto header = safetensors::parse_header(json, file_bytes - sizeof(header_bytes) - header_bytes, path);

  std::map<std::string, at::Tensor> tensors;
  for (const Entry& entry : header.entries) {  // in the order of their bytes, gapless: the file is read front to back
    at::Tensor tensor = at::empty(entry.shape, entry.dtype);
    read_all(file, tensor.mutable_data_ptr(), entry.end - entry.begin, path);
    tensors.emplace(entry.name, std::move(tensor));
  }
  if (metadata) *metadata = std::move(header.metadata);
  return tensors;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> in_order;
  const std::string json = safetensors::format_header(lay_out(tensors, metadata, in_order));
  if (json.size() > safetensors::kMaxHeaderBytes)
    throw Error(ErrorCode::kUnsupported,
                path + ": the names and shapes of its tensors take " + std::to_string(json.size()) +
                    " bytes, the format allows 100000000",
                "save it as several files");

  const std::string temporary = path + ".tmp-" + std::to_string(::getpid());
  try {
    Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file < 0) failed("create", temporary, errno);
    const uint64_t header_bytes = json.size();
    write_all(file, &header_bytes, sizeof(header_bytes), temporary);
    write_all(file, json.data(), json.size(), temporary);
    for (at::Tensor& tensor : in_order) {
      const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
      tensor = at::Tensor();
      write_all(file, plain.const_data_ptr(), plain.nbytes(), temporary);
    }
    if (::fsync(file) != 0) failed("sync", temporary, errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) failed("rename " + temporary + " to", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself reaches the disk with its folder.
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory < 0 || ::fsync(directory) != 0) failed("sync the folder", folder, errno);
}

}  // namespace gannet
