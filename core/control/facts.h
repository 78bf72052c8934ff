// Named numbers that all ranks must have in a call of every step: learning rates, the loss scale, the place in the accumulation.
//
//   Facts facts(engine_id);
//   const size_t lr = facts.add("lr of group 0");
//   facts.set(lr, 0.01);
//   auto call = world->enter(*group, "step", 12, facts);
//   // on all ranks: "the ranks differ in step() of step 12: lr of group 0 is 0.005 on rank 1 and 0.01 on rank 0"
//
// What a call costs is one hash of the numbers. A number is written out, for rank 0 to name it in a verdict, when it has changed.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace gannet::control {

/// "bits 00f3a8...": of hashes that differ although their texts are the same.
std::string bits_text(uint64_t hash);

class Facts {
 public:
  explicit Facts(uint32_t set) : set_(set) {}
  enum class Kind { kNumber, kHash, kText };  // a hash says nothing to a reader but that it differs
  size_t add(const std::string& name, Kind kind = Kind::kNumber) {
    rows_.push_back({.name = name, .kind = kind});
    values_.push_back(0);
    return rows_.size() - 1;
  }
  void set(size_t row, double value) { values_[row] = std::bit_cast<uint64_t>(value); }
  void set_hash(size_t row, uint64_t value) { values_[row] = value; }
  /// What is compared is the hash; the text, of one line, says what it is of. `text()` is asked where the hash has changed.
  template <class Text>
  void set_text(size_t row, uint64_t hash, const Text& text) {
    if (values_[row] == hash && !rows_[row].text.empty()) return;
    values_[row] = hash;
    rows_[row].text = text();
  }

  uint32_t set_number() const { return set_; }  // of the engine, the same on every rank
  uint64_t hash() const;
  // "name=value\n" of what has changed since the last call; all of them the first time.
  std::string changes();

 private:
  struct Row {
    std::string name;
    Kind kind;
    std::string text = {};  // of kText
    bool is_sent = false;
    // The value's bits as changes() last wrote them, once is_sent.
    uint64_t sent = 0;
  };
  uint32_t set_;
  std::vector<Row> rows_;
  std::vector<uint64_t> values_;  // [rows] the bits of a double, or a hash
};

}  // namespace gannet::control
