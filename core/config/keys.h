// The key table, as data: every key of DeepSpeed's ds_config.json and Gannet's own blocks. Everything that reads a config asks
// this table: the strict check, the conversion of values, `gannet config keys`.
//
//   const Key* key = find_key("zero_optimization/stage");
//   key->default_json;   // "0"
//   key->meaning;        // "0 off, 1 optimizer states, ..."
//
// The row of a key that Gannet acts on names the member of Settings that it fills (row.h).
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
  kSize,   // elements or bytes: an integer; a fraction, which a formula left (0.9 h h), is rounded down and said
  kBytes,  // an integer, or a size with its unit: "2GB", "512MiB"
  kNumber,
  kString,
  kChoice,   // one of `range`, in that spelling
  kWord,     // one of `range`, in upper or lower case
  kDType,    // fp32, fp16, bf16, int8 in any of DeepSpeed's spellings
  kFile,     // a path, or true for the file that Gannet has for it ("true") and false for none ("")
  kList,     // elements of any type
  kStrings,  // a list of strings, or a single one
  kObjects,  // a list of objects with members of any name
  kAny,
  kSection,      // an object whose members are rows of the table
  kOpenSection,  // the same, and other members pass: DeepSpeed hands them on
  kFree,         // an object with members of any name
};

enum class Status {
  kActive,       // Gannet acts on it
  kAtZero,       // at ZeRO stage 1 and above; elsewhere it has no effect
  kAtStage3,     // at ZeRO stage 3; elsewhere it has no effect
  kWithNvme,     // where ZeRO offloads to nvme; elsewhere it has no effect
  kNoEffect,     // legal; has no effect here, reported once
  kNotAtStage3,  // kUnsupported at ZeRO stage 3; elsewhere it has no effect
  kUnsupported,  // known to DeepSpeed, not done by Gannet: an error unless the value is the default or switches it off
};

struct Settings;

// The member of Settings that a row fills: how to find it, and the C++ type that it has.
struct Member {
  enum class Kind {
    kNone,  // the row fills none
    kBool,  // of a choice of two: whether it is the second
    kInt,
    kNumber,
    kString,
    kStrings,
    kList,
    kDict,
    kEntry,  // the entry of a Dict that has the name of the key
    kOptionalInt,
    kOptionalNumber,
    kOptionalDType,
  };
  Kind kind = Kind::kNone;
  void* (*of)(Settings&) = nullptr;  // its address
};

struct Key {
  std::string_view path;  // "optimizer/type"
  Type type;
  std::string_view default_json;
  Status status;
  std::string_view range;             // "", ">=0", ">0", "0..3" (both ends belong to it), "mean|sum"
  std::string_view meaning;           // one line
  std::string_view note = "";         // why it has no effect, or what is not done
  std::string_view alias = "";        // another name of the last part of `path`
  std::string_view replaced_by = "";  // deprecated: the path of the key that took its place
  std::string_view off = "";          // JSON of a value besides the default that switches it off
  Member member = {};

  std::string_view name() const { return path.substr(path.rfind('/') + 1); }  // npos + 1 is 0
  bool is_section() const { return type == Type::kSection || type == Type::kOpenSection; }
};

// The rows, by subject, each list in its own file keys_<subject>.cpp.
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
// By path or by alias ("zero_optimization/prefetch_bucket_size"); null when there is none.
const Key* find_key(std::string_view path);
// The rows directly inside a section ("" is the top level).
std::vector<const Key*> members_of(std::string_view section);
// The rows anywhere whose name or alias is `name`.
std::vector<const Key*> keys_named(std::string_view name);

constexpr bool is_read(Status status) {
  return status == Status::kActive || status == Status::kAtZero || status == Status::kAtStage3 || status == Status::kWithNvme;
}
const Value& default_of(const Key& key);
// Puts a value of the key's type into its member; null leaves the member empty.
void store(const Key& key, const Value& value, Settings& settings);
const char* to_string(Type type);      // "integer"
const char* to_string(Status status);  // "active"

}  // namespace gannet::config
