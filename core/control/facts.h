// The named numbers that all ranks must agree on in a per-step call: learning rates, the loss
// scale, the position in the gradient accumulation.
//
//   Facts facts(engine_id);
//   const size_t lr = facts.add("lr of group 0");
//   facts.set(lr, 0.01);
//   auto call = world->enter(*group, "step", 12, facts);
//   // on all ranks: "the ranks differ in step() of step 12: lr of group 0 is 0.005 on rank 1 and 0.01 on rank 0"
//
// A call costs one hash of the numbers. A number is formatted only when it has changed, for rank 0
// to quote in a verdict.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace gannet::control {

/// Returns "bits 00f3a8...", which distinguishes values that print alike but have different
/// hashes.
std::string bits_text(uint64_t hash);

class Facts {
 public:
  explicit Facts(uint32_t set) : set_(set) {}
  enum class Kind { kNumber, kHash, kText };  // a hash shows only that the ranks differ, not how
  size_t add(const std::string& name, Kind kind = Kind::kNumber) {
    rows_.push_back({.name = name, .kind = kind});
    values_.push_back(0);
    return rows_.size() - 1;
  }
  void set(size_t row, double value) { values_[row] = std::bit_cast<uint64_t>(value); }
  void set_hash(size_t row, uint64_t value) { values_[row] = value; }
  /// Only the hash is compared; the one-line text describes the value in messages. Calls `text()`
  /// only if the hash has changed.
  template <class Text>
  void set_text(size_t row, uint64_t hash, const Text& text) {
    if (values_[row] == hash && !rows_[row].text.empty()) return;
    values_[row] = hash;
    rows_[row].text = text();
  }

  uint32_t set_number() const { return set_; }  // the engine's number, the same on every rank
  uint64_t hash() const;
  // Returns "name=value\n" for each value that has changed since the last call, and for all values
  // the first time.
  std::string changes();

 private:
  struct Row {
    std::string name;
    Kind kind;
    std::string text = {};  // for a kText row
    bool is_sent = false;
    // The bits of the value that changes() last returned; valid if is_sent.
    uint64_t sent = 0;
  };
  uint32_t set_;
  std::vector<Row> rows_;
  std::vector<uint64_t> values_;  // [rows] the bits of a double, or a hash
};

}  // namespace gannet::control
