// Which engine of this process trains a parameter: one at most.
//
//   Ownership mine(engine_id, [] { return false; });
//   mine.check(parameters, of_module);   // Error(kOrder) names a parameter that another engine trains beside others of its own
//   mine.claim(parameters);   // an engine whose parameters are all among them loses its module to this one
//   mine.lost();              // "" while the parameters are this engine's
//
// Two engines may share parameters that only one of them trains. An engine that lost its module says so in its next call, and
// takes nothing away from its successor when it ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

class Ownership {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  // `holds_gradients`: whether a step has begun, whose gradients would be lost.
  Ownership(uint32_t engine, std::function<bool()> holds_gradients);
  ~Ownership();
  Ownership(const Ownership&) = delete;

  // `of_module`: all of the module, frozen ones too.
  void check(const Named& parameters, const std::vector<at::Tensor>& of_module) const;
  void claim(const Named& parameters);
  // Why the parameters are this engine's no more; "" while they are.
  std::string lost() const;
  // The engine that trains this parameter, in words; "" for none.
  static std::string owner_of(const at::Tensor& parameter);

 private:
  struct Record;
  static void forget(Record& record);  // holding the table's lock
  std::shared_ptr<Record> record_;
};

}  // namespace gannet
