// The key table: every key of DeepSpeed's ds_config.json and of Gannet's own blocks, as data. All
// readers of a config use this table: the strict check, the conversion of values and `gannet config
// keys`.
//
//   const Key* key = find_key("zero_optimization/stage");
//   key->default_json;   // "0"
//   key->meaning;        // "0 off, 1 optimizer states, ..."
//
// The row of a key that Gannet acts on names the Settings member that it fills (row.h).
#pragma once

#include <gannet/value.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::config {

enum class Type {
  kBool,
  kInt,
  kSize,   // elements or bytes: an integer; a fraction from a formula (0.9 h h) is rounded down and reported
  kBytes,  // an integer, or a size with its unit: "2GB", "512MiB"
  kNumber,
  kString,
  kChoice,   // one of `range`, spelled exactly; "*.csv" in it means any .csv file
  kWord,     // one of `range`, case-insensitive
  kDType,    // fp32, fp16, bf16, int8 in any of DeepSpeed's spellings
  kFile,     // a path; true becomes Gannet's own file ("true"), false becomes no file ("")
  kList,     // elements of any type
  kStrings,  // a list of strings, or a single one
  kObjects,  // a list of objects with members of any name
  kAny,
  kSection,      // an object whose members are rows of the table
  kOpenSection,  // the same, but other members are accepted: DeepSpeed passes them on
  kFree,         // an object with members of any name
};

enum class Status {
  kActive,       // Gannet acts on the key
  kAtZero,       // Gannet acts on the key at ZeRO stage 1 and above; no effect otherwise
  kAtStage3,     // Gannet acts on the key at ZeRO stage 3; no effect otherwise
  kWithNvme,     // Gannet acts on the key if tensors are offloaded to nvme; no effect otherwise
  kNoEffect,     // legal, but ignored by Gannet, which reports it once
  kNotAtStage3,  // kUnsupported at ZeRO stage 3; no effect otherwise
  kUnsupported,  // known to DeepSpeed but not to Gannet: an error unless the value is the default or switches it off
};

struct Settings;

// The Settings member that a row fills: how to find it, and its C++ type.
struct Member {
  enum class Kind {
    kNone,  // the row fills no member
    kBool,  // for a choice of two words: whether the value is the second
    kInt,
    kNumber,
    kString,
    kStrings,
    kList,
    kDict,
    kEntry,  // the Dict entry named after the key
    kOptionalInt,
    kOptionalNumber,
    kOptionalDType,
  };
  Kind kind = Kind::kNone;
  void* (*of)(Settings&) = nullptr;  // returns the member's address
};

struct Key {
  std::string_view path;  // "optimizer/type"
  Type type;
  std::string_view default_json;
  Status status;
  std::string_view range;             // "", ">=0", ">0", "0..3" (inclusive), "mean|sum"
  std::string_view meaning;           // one line
  std::string_view note = "";         // why the key has no effect, or what is not implemented
  std::string_view alias = "";        // another name of the last part of `path`
  std::string_view replaced_by = "";  // for a deprecated key: the path of the key that replaces it
  std::string_view off = "";          // JSON of a non-default value that switches the feature off
  Member member = {};

  std::string_view name() const { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0
  bool is_section() const { return type == Type::kSection || type == Type::kOpenSection; }
};

// The rows by subject. Each list is in its own file, keys_<subject>.cpp.
std::span<const Key> training_keys();  // batch, optimizer, scheduler, gradients, logging, Gannet's own blocks
std::span<const Key> precision_keys();
std::span<const Key> zero_keys();
std::span<const Key> storage_keys();  // checkpoint, nebula, aio, pipeline
std::span<const Key> activation_keys();
std::span<const Key> monitoring_keys();
std::span<const Key> parallel_keys();  // tensor and expert parallelism, compile, inference
std::span<const Key> data_keys();      // data efficiency, curriculum, compression, sparse attention
std::span<const Key> scaling_keys();   // elasticity, autotuning

// All rows, in the order above.
const std::vector<const Key*>& all_keys();
// Finds a row by its path or its alias ("zero_optimization/prefetch_bucket_size"); null if there is
// none.
const Key* find_key(std::string_view path);
// The rows directly inside a section ("" is the top level).
std::vector<const Key*> members_of(std::string_view section);
// The rows in any section with `name` as their name or alias.
std::vector<const Key*> keys_named(std::string_view name);

constexpr bool is_read(Status status) {
  return status == Status::kActive || status == Status::kAtZero || status == Status::kAtStage3 || status == Status::kWithNvme;
}
const Value& default_of(const Key& key);
// Stores a value of the key's type in its member; null leaves the member empty.
void store(const Key& key, const Value& value, Settings& settings);
const char* to_string(Type type);      // "integer"
const char* to_string(Status status);  // "active"

}  // namespace gannet::config
