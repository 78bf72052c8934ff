#include "engine/ownership.h"

#include <gannet/error.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/format.h"

namespace gannet {

struct Ownership::Record {
  uint32_t engine;
  std::unordered_set<const void*> parameters;
  std::string lost;
  std::function<bool()> holds_gradients;
};

namespace {

struct OwnershipTable {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<void>> owners;  // Ownership::Records, by the parameter's TensorImpl
};

OwnershipTable& table() {
  static OwnershipTable* const forever = new OwnershipTable;  // engines in global variables are destroyed after statics
  return *forever;
}

std::string name_of(uint32_t engine) { return formatted("engine {} of this process", engine); }

}  // namespace

void Ownership::forget(Record& record) {
  for (const void* parameter : record.parameters) table().owners.erase(parameter);
  record.parameters.clear();
}

Ownership::Ownership(uint32_t engine, std::function<bool()> holds_gradients) : record_(std::make_shared<Record>()) {
  record_->engine = engine;
  record_->holds_gradients = std::move(holds_gradients);
}

Ownership::~Ownership() {
  const std::lock_guard lock(table().mutex);
  forget(*record_);
}

void Ownership::check(const NamedParameters& parameters, const std::vector<at::Tensor>& of_module) const {
  const std::lock_guard lock(table().mutex);
  std::unordered_set<const void*> mine;
  for (const auto& [name, tensor] : parameters) mine.insert(tensor.unsafeGetTensorImpl());
  for (const auto& tensor : of_module) mine.insert(tensor.unsafeGetTensorImpl());
  for (const auto& [name, tensor] : parameters) {
    const auto found = table().owners.find(tensor.unsafeGetTensorImpl());
    if (found == table().owners.end()) continue;
    const auto& other = *static_cast<Record*>(found->second.get());
    const bool takes_all = std::all_of(other.parameters.begin(), other.parameters.end(),
                                       [&](const void* parameter) { return mine.contains(parameter); });
    if (&other != record_.get() && !takes_all)
      throw Error(ErrorCode::kOrder,
                  formatted("parameter '{}' is trained by {}, which trains others as well", name, name_of(other.engine)),
                  "a parameter has one engine: call requires_grad_(false) on it for this one, or end the other engine first "
                  "(engine.reset())");
    if (&other != record_.get() && other.holds_gradients())
      throw Error(ErrorCode::kOrder,
                  formatted("parameter '{}' is trained by {}, which holds gradients of a step that has begun: they would be lost",
                            name, name_of(other.engine)),
                  "end that step (step()) or give it up (abandon_step()) before initialize()");
  }
}

void Ownership::claim(const NamedParameters& parameters) {
  const std::lock_guard lock(table().mutex);
  for (const auto& [name, tensor] : parameters) {
    const auto found = table().owners.find(tensor.unsafeGetTensorImpl());
    if (found == table().owners.end() || found->second == record_) continue;
    auto& other = *static_cast<Record*>(found->second.get());
    other.lost = formatted("its module was given to {} by a later initialize()", name_of(record_->engine));
    forget(other);  // including frozen ones: another tensor may get the same address later
  }
  for (const auto& [name, tensor] : parameters) {
    table().owners[tensor.unsafeGetTensorImpl()] = record_;
    record_->parameters.insert(tensor.unsafeGetTensorImpl());
  }
}

std::string Ownership::lost() const {
  const std::lock_guard lock(table().mutex);
  return record_->lost;
}

std::string Ownership::owner_of(const at::Tensor& parameter) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().owners.find(parameter.unsafeGetTensorImpl());
  return found == table().owners.end() ? "" : name_of(static_cast<Record*>(found->second.get())->engine);
}

}  // namespace gannet
