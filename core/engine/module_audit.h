// What the program did to the parameters since the engine left them.
//
// Before every training forward and step and at every save the engine looks at each parameter: is its storage the one that it was
// given, has something been written in place (the version counter), is the hook still ours? And at the module: does it have
// parameters that no engine knows, or that require a gradient by now? A comparison of a few words for each, no allocation.
//
//   ModuleAudit audit(context, *module, store);
//   audit.look(reducer, [&](const Named& added) { join(added); });   // takes in what can be, throws what was done otherwise
//   ... a step ...
//   audit.record();                                                  // the engine leaves the parameters as they are now
//
// What can be taken in is: values from torch::load, set_data, to() and writes in place go into the parameter in use and its
// master, on every rank its part; parameters that were thawed or added join (join.cpp). The rest is an error with the parameter's
// name. Writes through .data() advance no version: where masters are apart from the parameters some elements are compared
// (Left::sample).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grads/reducer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

class ModuleAudit {
 public:
  using Named = ParameterStore::Named;

  ModuleAudit(RankContext& context, torch::nn::Module& module, ParameterStore& store)
      : context_(context), module_(module), store_(store) {}

  /// The group of each parameter that initialize was given, trained or frozen.
  void know(const void* identity, size_t group) { given_group_.emplace(identity, group); }
  /// By the program: a new parameter is in none of the groups.
  void set_groups_are_given(bool on) { groups_are_given_ = on; }
  std::optional<size_t> group_of(const at::Tensor& parameter) const;
  /// It requires a gradient and is in no group: that was logged, and it is left alone.
  bool is_declined(const at::Tensor& parameter) const { return declined_.contains(parameter.unsafeGetTensorImpl()); }

  /// Parameters of the module that require a gradient, and that will join when the engine looks.
  Named unknown() const;

  /// Every rank calls it. `join`: takes up parameters that require a gradient and that this engine does not train.
  void look(Reducer& reducer, const std::function<void(const Named& added)>& join);
  void record();
  /// A parameter, of a group or of any, that the program has written since; "": none.
  std::string written(std::optional<size_t> group = std::nullopt) const;
  /// Before a load: what the program put in place of the store's memory goes, and its values with it.
  void reclaim();
  bool is_replaced(const TrainedParameter& parameter) const;                                // its memory
  at::Tensor as_it_was_meant(const Range& range, const TrainedParameter& parameter) const;  // in the dtype of its file
  /// Before take_in() of parameters whose memory the program replaced. Error(kArgument): it is also that of another tensor of the
  /// module. Where it is another parameter's place in the engine's buffers (two were exchanged), its values are copied out of it.
  void prepare(const std::vector<const TrainedParameter*>& replaced) const;
  void take_in(Range& range, size_t parameter, bool is_replaced);
  /// What the program put there, as real numbers. Error(kArgument): of another shape, or of a dtype that is not trained.
  at::Tensor value_given(const Range& range, size_t parameter, bool is_replaced) const;

  uint64_t written_hash() const { return written_hash_; }  // of the values that were taken in since the last step
  std::string written_names() const;  // of those parameters: "'first.bias'", of many the first three and how many more
  void end_step() { written_hash_ = 0, written_names_.clear(); }
  /// Logs it on rank 0, a sentence of this kind once.
  void say_once(const std::string& what);

  /// A parameter of the module that is not trained and that every rank has whole.
  struct Frozen {
    std::string name;
    at::Tensor tensor;
    bool is_written;  // since compared()
  };
  std::vector<Frozen> frozen() const;
  void compared(const std::vector<Frozen>& frozen);

 private:
  struct Known {
    const void* identity;
    bool is_trained;
    size_t bytes;  // of its storage: torch::load puts another one under it
    const void* storage;
    at::ScalarType dtype;
  };
  void record_module();
  bool is_module_as_recorded() const;
  struct Change {
    Range* range;
    size_t parameter;
    bool is_replaced;
  };
  std::vector<Change> changes() const;
  Named new_parameters(bool is_converted);

  RankContext& context_;
  torch::nn::Module& module_;
  ParameterStore& store_;
  std::vector<Known> known_;  // of the module, in its order, tied ones as often as they are registered
  std::unordered_map<const void*, size_t> given_group_;
  bool groups_are_given_ = false;
  std::unordered_set<const void*> declined_;
  struct Compared {
    const void* storage;
    uint32_t version;
    bool operator==(const Compared&) const = default;
    static Compared of(const at::Tensor& tensor);
  };
  std::unordered_map<const void*, Compared> compared_;  // frozen parameters, as they were
  uint64_t written_hash_ = 0;
  std::set<std::string> written_names_;
  std::set<std::string> said_;
};

}  // namespace gannet
