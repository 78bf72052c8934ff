#include "config/parse.h"

#include <gannet/error.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/first_bytes.h"
#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/scan.h"

namespace gannet::config {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxFileBytes = 16 << 20;

// Builds the tree from the parser's events. Keys arrive in the order of the text, so the n-th key
// event belongs to the scan's n-th key.
class Builder : public json::json_sax_t {
 public:
  Builder(const Scan& scan, std::string name) : scan_(scan), name_(std::move(name)) {}

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    return value <= uint64_t(std::numeric_limits<int64_t>::max()) ? add(static_cast<int64_t>(value))
                                                                  : add(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Dict()); }
  bool start_array(size_t) override { return open(List()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    const size_t at = scan_.key_position(next_key_++);
    Container& top = open_.back();
    top.key = name;
    const std::string path = pointer(top.path, name);
    if (top.value.as_dict().find(name))
      throw Error(ErrorCode::kConfig,
                  formatted("{}: the key {} is given twice {}, first at {}", scan_.where(at), in_quotes(name), place(top.path),
                            tree_.origins.at(path).to_string()),
                  "keep one of the two");
    const Position position = scan_.position(at);
    tree_.origins[path] = {name_, position.line, position.column};
    return true;
  }

  bool parse_error(size_t byte, const std::string& token, const json::exception& error) override;

  Tree take() {
    if (!root_.is_dict())
      throw Error(ErrorCode::kConfig, formatted("{}: a config is an object {{ ... }}, found {}", name_, root_.type_name()),
                  "put the keys inside { }");
    tree_.root = std::move(root_.as_dict());
    tree_.origins[""] = {name_, 0, 0};
    return std::move(tree_);
  }

 private:
  struct Container {
    Value value;
    std::string path;  // JSON pointer
    std::string key;   // the key of the next member, in a dictionary
  };

  static std::string place(const std::string& path) {
    return path.empty() ? "at the top level" : formatted("in {}", dotted(path));
  }

  std::string next_path() const {
    if (open_.empty()) return "";
    const Container& top = open_.back();
    return pointer(top.path, top.value.is_dict() ? top.key : std::to_string(top.value.as_list().size()));
  }

  bool open(Value container) {
    if (open_.size() >= kMaxDepth)
      throw Error(ErrorCode::kConfig, formatted("{}: nested deeper than {} levels, at {}", name_, kMaxDepth, open_.front().key),
                  "no key of a config is that deep");
    std::string path = next_path();
    open_.push_back({std::move(container), std::move(path), ""});
    return true;
  }

  bool close() {
    Value done = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(done));
  }

  bool add(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (open_.back().value.is_dict())
      open_.back().value.as_dict().entries().emplace_back(open_.back().key, std::move(value));
    else
      open_.back().value.as_list().push_back(std::move(value));
    return true;
  }

  [[noreturn]] void fail(size_t at, const std::string& what, const std::string& next) const;
  void refuse_what_is_no_object(size_t offset) const;
  void refuse_foreign_words(size_t start, const std::string& word, bool is_key_wanted) const;

  const Scan& scan_;
  std::string name_;
  Tree tree_;
  Value root_;
  // The objects and lists that are not closed yet, the outermost first.
  std::vector<Container> open_;
  // The number of keys seen so far, which is the index of the next key in the scan.
  size_t next_key_ = 0;
};

// Explains a parser error in terms that the author of a config understands.
bool Builder::parse_error(size_t byte, const std::string& token, const json::exception& error) {
  const std::string& text = scan_.text();
  size_t offset = byte == 0 ? 0 : byte - 1;
  // The parser reports a broken literal ("tru}") one character late.
  if (std::strstr(error.what(), "invalid literal") && offset > 0 && offset < text.size() &&
      std::strchr(" \t\r\n,:{}[]\"", text[offset]))
    --offset;
  refuse_what_is_no_object(offset);
  const size_t start = scan_.token_start(offset);
  size_t end = start;
  while (end < text.size() && !std::strchr(" \t\r\n,:{}[]\"", text[end])) ++end;
  const std::string word = text.substr(start, end - start);
  const bool is_key_wanted = std::strstr(error.what(), "object key") != nullptr;
  refuse_foreign_words(start, word, is_key_wanted);
  if (std::strstr(error.what(), "out_of_range"))
    fail(start, formatted("the number {} is too large", in_quotes(token)), "the largest is about 1.8e308");
  if (open_.empty() && std::strstr(error.what(), "end of input"))
    fail(start, "there is more text after the config's closing brace", "remove it");
  if (word.size() > 1 && word[0] == '0' && std::isdigit(static_cast<unsigned char>(word[1])))
    fail(start, formatted("{} is not a JSON value", in_quotes(word)), "a number has no leading zeros");
  if (std::strstr(error.what(), "; expected '}'"))
    fail(start, "a ',' or '}' is missing before this", "members of an object are separated by commas");
  if (std::strstr(error.what(), "; expected ']'"))
    fail(start, "a ',' or ']' is missing before this", "elements of a list are separated by commas");
  if (std::strstr(error.what(), "; expected ':'"))
    fail(start, "a ':' is missing between a key and its value", "write \"key\": value");
  if (is_key_wanted) fail(start, "a key in double quotes is expected here", "write \"key\": value");
  if (start < text.size() && text[start] == '"')
    fail(start, "this string is not valid JSON",
         "a backslash stands before one of \" \\ / b f n r t or u and four hexadecimal digits");
  if (!word.empty())
    fail(start, formatted("{} is not a JSON value", in_quotes(word)),
         "a value is a number, true, false, null, \"text\", [ ... ] or { ... }");
  fail(start, "a value is expected here", "a value is a number, true, false, null, \"text\", [ ... ] or { ... }");
}

void Builder::fail(size_t at, const std::string& what, const std::string& next) const {
  throw Error(ErrorCode::kConfig, formatted("{}: {}", scan_.where(at), what), next);
}

// Refuses text that has only comments, ends early or has no braces. `offset`: where the parser
// stopped.
void Builder::refuse_what_is_no_object(size_t offset) const {
  const std::string& text = scan_.text();
  if (text.find_last_not_of(" \t\r\n") == std::string::npos)
    fail(0, "there is no config in the file: it holds comments only", "write { } with the keys in it");
  const bool has_ended = offset >= text.size() || text.find_first_not_of(" \t\r\n", offset) == std::string::npos;
  if (has_ended && !open_.empty())
    fail(text.size(),
         formatted("the text ends before {} is closed",
                   open_.back().path.empty() ? "the outermost object" : dotted(open_.back().path)),
         open_.back().value.is_list() ? "a ']' is missing" : "a '}' is missing");
  if (open_.empty() && !root_.is_dict()) {  // no brace was found
    const size_t first = text.find_first_not_of(" \t\r\n");
    const std::string line = text.substr(first, text.find_first_of("\r\n", first) - first);
    fail(first, formatted("a config is an object {{ ... }}, found the text {}", in_quotes(printable(line.substr(0, 60)))),
         "put the keys inside { }; a short text may be a server's answer in place of a file: fetch the file again");
  }
}

// Refuses Python's numbers and constants, single quotes, and unquoted names.
void Builder::refuse_foreign_words(size_t start, const std::string& word, bool is_key_wanted) const {
  const std::string folded = lower(word);
  if (folded == "nan" || folded == "infinity" || folded == "-infinity" || folded == "inf" || folded == "-inf")
    fail(start, formatted("{} is not a number that a config may hold", in_quotes(word)),
         "write a finite number, or leave the key out");
  if (word == "True" || word == "False" || word == "None")
    fail(start, formatted("{} is Python's word", in_quotes(word)),
         std::string("JSON writes ") + (word == "None" ? "null" : folded));
  if (!word.empty() && (word[0] == '\'' || word.find('\'') != std::string::npos))
    fail(start, "strings stand in double quotes, found a single quote", "write \"...\"");
  if (!word.empty() && (std::isalpha(static_cast<unsigned char>(word[0])) || word[0] == '_' || word[0] == '$'))
    fail(start, formatted("{}{} needs double quotes", is_key_wanted ? "the key " : "the value ", in_quotes(word)),
         formatted("write \"{}\"", word));
}

}  // namespace

namespace {

[[noreturn]] void refuse_yaml(const std::string& text, const std::string& name) {
  const bool is_of_accelerate =
      text.find("compute_environment:") != std::string::npos || text.find("deepspeed_config") != std::string::npos;
  if (is_of_accelerate)
    throw Error(
        ErrorCode::kConfig, formatted("{}: this is YAML, a file of `accelerate config`, and a config is JSON", name),
        text.find("deepspeed_config_file:") != std::string::npos
            ? "give the JSON file that its deepspeed_config_file names, and the number of processes to `gannet run "
              "--num_procs`"
            : "write its section deepspeed_config as JSON: zero_stage is zero_optimization.stage, mixed_precision is bf16 "
              "or fp16 with enabled, offload_optimizer_device is zero_optimization.offload_optimizer.device; "
              "num_processes goes to `gannet run --num_procs`");
  throw Error(ErrorCode::kConfig, formatted("{}: this is YAML, and a config is JSON", name),
              "write it as { \"key\": value, ... }: python3 -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), "
              "sys.stdout, indent=2)' < FILE");
}

// Refuses files of other formats, except those for which parse_text has a better message. The
// recognizer's next step is meant for weight files; it fits a config only if the file is a bad
// download or is compressed.
void refuse_other_formats(const RecognizedFormat& found, const std::string& path) {
  switch (found.format) {
    case Format::kUnknown:
    case Format::kEmpty:
    case Format::kJson:
    case Format::kYaml:
    case Format::kText:
      return;
    default:
      break;
  }
  const bool is_fetched_wrong = found.format == Format::kLfsPointer || found.format == Format::kHtml;
  throw Error(ErrorCode::kUnsupported, formatted("{} is {}", path, found.what),
              is_fetched_wrong || found.what.starts_with("compressed")
                  ? found.next_step
                  : "a config is JSON text in UTF-8; was another file meant?");
}

}  // namespace

Tree parse_text(const std::string& text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::kConfig, formatted("{}: the config is empty", name),
                "write { } with the keys in it, at least train_micro_batch_size_per_gpu");
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw Error(ErrorCode::kConfig, formatted("{}: the text is UTF-16", name), "save it as UTF-8");
  if (recognized(text, text.size()).format == Format::kYaml) refuse_yaml(text, name);
  const Scan scan(text, name);
  Builder builder(scan, name);
  json::sax_parse(scan.text(), &builder);
  return builder.take();
}

Tree parse_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    std::vector<std::string> siblings;
    const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      siblings.push_back(entry->path().filename().string());
    throw Error(
        ErrorCode::kNotFound,
        formatted("config file {} does not exist{}", in_quotes(path), did_you_mean(fs::path(path).filename().string(), siblings)),
        formatted("the current folder is {}", fs::current_path(error).string()));
  }
  if (fs::is_directory(status))
    throw Error(ErrorCode::kConfig, formatted("config {} is a folder, not a file", in_quotes(path)), "name the JSON file in it");
  if (fs::is_regular_file(status) && fs::file_size(path, error) > kMaxFileBytes && !error)
    throw Error(ErrorCode::kConfig, formatted("{}: larger than 16 MiB, which no config is", path), "was another file meant?");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Reads at most one buffer past the limit: a pipe or a device has no size to query.
  for (char buffer[65536]; text.size() <= kMaxFileBytes && (file.read(buffer, sizeof(buffer)) || file.gcount() > 0);)
    text.append(buffer, static_cast<size_t>(file.gcount()));
  if (!file.eof() || file.bad()) {
    if (text.size() > kMaxFileBytes)
      throw Error(ErrorCode::kConfig, formatted("{}: larger than 16 MiB, which no config is", path), "was another file meant?");
    throw Error(ErrorCode::kIo,
                formatted("config file {} cannot be read: {}", in_quotes(path), std::strerror(errno ? errno : EIO)),
                "check its permissions");
  }
  refuse_other_formats(recognized(std::string_view(text).substr(0, kHeadBytes), text.size()), path);
  return parse_text(text, path);
}

Value parse_value(std::string_view json_text) {
  Tree tree = parse_text(formatted("{{\"value\": {}}}", json_text), "key table");
  return *tree.root.find("value");
}

}  // namespace gannet::config
