// Records which engine of this process trains a parameter. At most one does.
//
//   Ownership mine(engine_id, [] { return false; });
//   mine.check(parameters, of_module);   // Error(kOrder) names a parameter of an engine that trains others or has begun a step
//   mine.claim(parameters);   // an engine with all its parameters among these loses its module
//   mine.lost();              // "" while the parameters are this engine's
//
// Two engines may share parameters if only one of them trains them. An engine that lost its module
// reports this in its next call, and takes nothing from its successor when it is destroyed.
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
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

  // `holds_gradients`: whether a step has begun, so that its gradients would be lost.
  Ownership(uint32_t engine, std::function<bool()> holds_gradients);
  ~Ownership();
  Ownership(const Ownership&) = delete;

  // `of_module`: all parameters of the module, including frozen ones.
  void check(const NamedParameters& parameters, const std::vector<at::Tensor>& of_module) const;
  void claim(const NamedParameters& parameters);
  // Returns why this engine no longer has the parameters; "" while it has them.
  std::string lost() const;
  // Names the engine that trains this parameter; "" if there is none.
  static std::string owner_of(const at::Tensor& parameter);

 private:
  struct Record;
  static void forget(Record& record);  // the caller holds the table's lock
  std::shared_ptr<Record> record_;
};

}  // namespace gannet
