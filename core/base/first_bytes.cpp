#include "base/first_bytes.h"

#include <gannet/error.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  Format format;
  const char *what, *next_step;
};

constexpr const char* kUnpack = "unpack it, and give what was in it";
constexpr const char* kConvert = "convert it to safetensors, or save its weights with torch.save";
constexpr Magic kMagics[] = {
    {"PK\3\4"sv, Format::kZip, "a zip archive", "give a file of safetensors or of torch.save"},
    {"PK\5\6"sv, Format::kOther, "an empty zip archive", "fetch or save it again"},
    {"\x1f\x8b"sv, Format::kOther, "compressed with gzip", kUnpack},
    {"\x28\xb5\x2f\xfd"sv, Format::kOther, "compressed with zstd", kUnpack},
    {"\xfd"
     "7zXZ\0"sv,
     Format::kOther, "compressed with xz", kUnpack},
    {"BZh"sv, Format::kOther, "compressed with bzip2", kUnpack},
    {"7z\xbc\xaf\x27\x1c"sv, Format::kOther, "a 7z archive", kUnpack},
    {"\x04\x22\x4d\x18"sv, Format::kOther, "compressed with lz4", kUnpack},
    {"GGUF"sv, Format::kOther, "a GGUF file, of llama.cpp", "fetch the model's safetensors: GGUF files are mostly quantised"},
    {"\x89HDF\r\n\x1a\n"sv, Format::kOther, "an HDF5 file, as Keras writes them", kConvert},
    {"\x93NUMPY"sv, Format::kOther, "a NumPy array (.npy)", kConvert},
    {"PAR1"sv, Format::kOther, "a Parquet file", "it holds data, not weights"},
    {"\x7f"
     "ELF"sv,
     Format::kOther, "a program or a plugin (ELF)", "give a file of weights or of settings"},
};

constexpr std::string_view kLfs = "version https://git-lfs.github.com/spec/";

std::string_view trimmed(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  return text;
}

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b)));
         });
}

// Describes a Git LFS pointer. Its third line is "size 548118077".
RecognizedFormat lfs_pointer(std::string_view head) {
  RecognizedFormat found{Format::kLfsPointer, "a Git LFS pointer, which stands for a file that was not fetched",
                         "run `git lfs install` and `git lfs pull` in the repository, or download the file itself"};
  const size_t at = head.find("\nsize ");
  if (at == head.npos) return found;
  uint64_t bytes = 0;
  const std::string_view digits = head.substr(at + 6);
  if (std::from_chars(digits.data(), digits.data() + digits.size(), bytes).ec == std::errc())
    found.what = formatted("a Git LFS pointer, to a file of {} that was not fetched",
                           bytes < 1'000'000 ? formatted("{} bytes", bytes) : formatted("{} MB", bytes / 1'000'000));
  return found;
}

// Whether the first line that is not a comment is "key: value" or "key:" in printable text, or a
// document marker.
bool is_yaml(std::string_view text) {
  while (text.starts_with('#')) text = trimmed(text.substr(std::min(text.find('\n'), text.size())));
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  if (line == "---" || line.starts_with("--- ")) return true;
  const size_t colon = line.find(':');
  if (colon == line.npos || colon == 0 || !std::isalpha(static_cast<unsigned char>(line[0]))) return false;
  if (colon + 1 < line.size() && line[colon + 1] != ' ') return false;
  const auto is_key = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return std::all_of(line.begin(), line.begin() + static_cast<ptrdiff_t>(colon), is_key) &&
         std::all_of(line.begin(), line.end(), [](unsigned char c) { return c >= ' ' || c == '\t'; });
}

// Whether the text is at least 12 characters of ASCII. Shorter text may be the start of any format.
bool is_text(std::string_view text) {
  return text.size() >= 12 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= ' ' && c < 0x7f) || c == '\t' || c == '\n' || c == '\r';
         });
}

// Whether the file begins like safetensors: 8 bytes with the length of a JSON object, then the
// object.
bool is_safetensors(std::string_view head) {
  uint64_t length = 0;
  if (head.size() < 9) return false;
  std::memcpy(&length, head.data(), sizeof(length));
  return head[8] == '{' && length <= 100'000'000;
}

}  // namespace

RecognizedFormat recognized(std::string_view head, uint64_t file_bytes) {
  if (file_bytes == 0) return {Format::kEmpty, "empty, of 0 bytes", "fetch or save it again"};
  if (is_safetensors(head)) return {Format::kSafetensors, "a safetensors file", "give it where weights are read"};
  for (const Magic& magic : kMagics)
    if (head.starts_with(magic.bytes)) return {magic.format, magic.what, magic.next_step};
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 1 && head[1] <= 5)
    return {Format::kPickle, "a pickle, as PyTorch and Python write it", "give it where weights are read"};
  if (head.size() >= 262 && head.substr(257, 5) == "ustar")  // POSIX
    return {Format::kTar, "a tar archive", "unpack it; PyTorch before 0.1.10 wrote such files: load it there and save it again"};
  if (head.starts_with(kLfs)) return lfs_pointer(head);
  const std::string_view text = trimmed(head);
  for (const std::string_view start : {"<!doctype"sv, "<html"sv, "<?xml"sv})
    if (starts_with_any_case(text, start))
      return {Format::kHtml, "a web page (HTML or XML), not what its name says",
              "the download met an error page or a login: open it to see, and fetch the file again"};
  if ((text.starts_with('{') || text.starts_with('[')) && text.find('\0') == text.npos)
    return {Format::kJson, "a JSON text",
            "it may be an index or settings: give its folder, or a file of weights; or a server's answer: fetch "
            "the file again"};
  if (is_yaml(text)) return {Format::kYaml, "a YAML text", "settings are JSON; weights are safetensors or files of torch.save"};
  if (file_bytes == head.size() && is_text(text))
    return {Format::kText, formatted("a text, \"{}\"", text.substr(0, std::min<size_t>(text.find_first_of("\r\n"), 60))),
            "a download may have ended with such an answer: fetch the file again"};
  return {};
}

void require_format(std::string_view head, uint64_t file_bytes, const std::string& path, std::initializer_list<Format> taken) {
  const RecognizedFormat found = recognized(head, file_bytes);
  if (found.format == Format::kUnknown || std::find(taken.begin(), taken.end(), found.format) != taken.end()) return;
  throw Error(found.format == Format::kEmpty ? ErrorCode::kCorrupt : ErrorCode::kUnsupported,
              formatted("{} is {}", path, found.what), found.next_step);
}

}  // namespace gannet
