// The effective value and origin of every key that Gannet acts on, and the outcome of each "auto".
#pragma once

#include <string>
#include <vector>

#include "config/document.h"
#include "config/keys.h"
#include "config/resolve.h"

namespace gannet::config {

inline constexpr const char* kTrain = "/train_batch_size";
inline constexpr const char* kMicro = "/train_micro_batch_size_per_gpu";
inline constexpr const char* kAccumulation = "/gradient_accumulation_steps";

bool is_auto(const Value& value);
// Whether the value is an "auto" that is filled in. A key with "auto" among its choices accepts it
// as an ordinary value.
bool is_filled_in(const Key& key, const Value& value);

// The document's value for a key, or the key's default if it is absent, null or filled in.
const Value& value_of(const Document& document, const Key& key);

// Returns "ds_config.json:3:5: ", the prefix of an error about the key at `path`.
std::string where(const Document& document, const std::string& path);

class EffectiveValues {
 public:
  explicit EffectiveValues(const Document& document);

  // Throws Error(kConfig) if some "auto" has no value; the error lists all such keys.
  void require_no_auto() const;
  // Whether batch sizes are among the unresolved "auto"s.
  bool lacks_batch() const { return !open_batch_sizes().empty(); }
  bool is_unresolved(const std::string& path) const;
  // Lists "/bf16/enabled = false" and the like for each "auto" that resolved to a default.
  std::string defaults_for_auto() const;

  // Records a computed value that the document does not give.
  void computed(const std::string& path, int64_t value, const std::string& how);
  std::vector<EffectiveValue> take() { return std::move(lines_); }

 private:
  void add(const Key& key);
  const EffectiveValue* line_of(const std::string& path) const;
  std::vector<std::string> open_batch_sizes() const;

  const Document& document_;
  std::vector<EffectiveValue> lines_;    // in the table's order
  std::vector<std::string> unresolved_;  // JSON pointers of the "auto"s without a value
};

}  // namespace gannet::config
