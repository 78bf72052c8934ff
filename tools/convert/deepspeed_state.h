// The contents of a DeepSpeed checkpoint, by name: each tensor as pieces of its files.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "convert/deepspeed_folder.h"
#include "files/pieces.h"

namespace gannet::convert {

struct ImportedTensor {
  std::string name;
  std::vector<int64_t> shape;
  c10::ScalarType dtype;
  files::StoredPieces pieces;                         // for a trained tensor, its fp32 (or fp64) master
  std::map<std::string, files::StoredPieces> states;  // only for a trained tensor: "exp_avg" ...
  int64_t group = -1;                                 // of a trained tensor: the index in `groups`; -1: unknown
};

struct DeepSpeedState {
  int64_t stage = 0;
  uint32_t ranks = 1;
  std::vector<ImportedTensor> trained, frozen, buffers;
  std::vector<std::pair<std::string, std::string>> aliases;  // a tied tensor's other name, and the name it is stored under
  std::vector<files::Node> groups;                           // the optimizer's param_groups
  std::vector<files::Node> scaler;                           // the object with the loss scale; empty: none
  std::set<double> steps;                                    // the step counts in all of the optimizer's states
  std::vector<std::string> notes;                            // what was left out, and why
  bool has_states = false;
  bool has_shapes = true;        // false: the trained parameters are flat, because param_shapes is missing
  bool frozen_excluded = false;  // the files have none: the save excluded them or, at stages 0 and 1, there were none
};

// Throws Error(kMismatch) if sizes disagree, kCorrupt if a name occurs twice, kNotFound if a layer's file is missing, and,
// unless `weights_only`, kUnsupported for optimizer states with sizes other than the parameters'.
DeepSpeedState sort_out(const DeepSpeedFolder& folder, bool weights_only);

// The note for users about `frozen_excluded`.
std::string frozen_note(const DeepSpeedState& state);

// The parts of sort_out: universal checkpoints (deepspeed_universal.cpp), stages 1 to 3 (deepspeed_sharded.cpp), stage 0
// (deepspeed_whole.cpp), untrained tensors (deepspeed_state.cpp).
void add_universal(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state);
void add_sharded(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state);
// `untrained`: names in the model's state_dict that are not parameters, or that are another name of
// a tied one.
void add_whole(const DeepSpeedFolder& folder, bool weights_only, const std::set<std::string>& untrained, DeepSpeedState& state);

// The same for a pipeline, whose names are "<layer>.<name>", or "tied_modules.<key>.<name>"
// (deepspeed_pipeline.cpp).
DeepSpeedState sort_out_pipeline(const DeepSpeedFolder& folder, bool weights_only);
// ZeRO off: one state for each stage (deepspeed_pipeline_whole.cpp). The optimizers number their
// parameters, so the layers of each stage are found by the number and the shapes of its states. A
// module held by several stages has its first layer's name on each of them.
std::vector<DeepSpeedState> pipeline_without_zero(const DeepSpeedFolder& folder, bool weights_only);

// ---- shared by the functions above

using NamedNode = std::pair<std::string, files::Node>;

// The stage 0 optimizer's parameters do not match these candidates in order or, if `ambiguous`,
// match in more than one way.
struct NoAssignment : Error {
  NoAssignment(const files::Node& optimizer, bool is_ambiguous);
  bool ambiguous;
};

// Finds the candidates that the optimizer of stage 0 trains, and their states. Throws NoAssignment.
void add_numbered(const files::Node& optimizer, const std::vector<NamedNode>& candidates, DeepSpeedState& state);
// Whether two pieces of files have the same values, in `dtype`.
bool have_equal_values(const files::StoredPieces& one, const files::StoredPieces& other, c10::ScalarType dtype);

// The parameter group that has this number among its params; -1 if none has.
int64_t group_with(const std::vector<files::Node>& groups, int64_t number);
// The number of elements of a shape; throws Error(kCorrupt) if they cannot fit in any memory.
int64_t numel_of(const files::Node& place, const std::vector<int64_t>& shape);
// fp64 masters and states stay fp64; all others become fp32.
c10::ScalarType master_dtype(c10::ScalarType saved);
// The stored tensor of a master; throws if it is not floating-point.
const files::StoredTensor& floating(const files::Node& tensor);

// The states of a torch.optim state_dict, by the indices that its param_groups use.
class OptimizerStates {
 public:
  OptimizerStates() = default;
  explicit OptimizerStates(const files::Node& state_dict);
  const std::vector<files::Node>& groups() const { return groups_; }
  std::vector<int64_t> indices(size_t group) const;  // the indices of the group's parameters

  // The state tensors of one parameter (or flat buffer); its step is added to `steps` instead.
  // Throws an error with the state's name if it has fewer than `least` or more than `most`
  // elements.
  std::map<std::string, files::Node> tensors(int64_t index, int64_t least, int64_t most, std::set<double>& steps) const;

 private:
  std::string path_;
  std::map<std::string, files::Node> states_;
  std::vector<files::Node> groups_;
};

}  // namespace gannet::convert
