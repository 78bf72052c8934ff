// The files of a DeepSpeed checkpoint: finds them, checks that they belong together, and rejects
// what cannot be imported.
//
//   <dir>/latest                                                     the tag
//   <dir>/<tag>/mp_rank_00_model_states.pt                           stages 0 to 2
//   <dir>/<tag>/zero_pp_rank_<R>_mp_rank_00_model_states.pt          stage 3, one per rank
//   <dir>/<tag>/[bf16_]zero_pp_rank_<R>_mp_rank_00_optim_states.pt   stages 1 to 3, one per rank
//
// A universal checkpoint, which DeepSpeed makes of another one, has no optimizer files, and <dir>/latest_universal:
//   <dir>/<tag>/zero/<parameter>/fp32.pt, exp_avg.pt ..., zero/optimizer_state.pt
//   <dir>/<tag>/mp_rank_00_model_states.pt, or zero_pp_rank_<R>_mp_rank_00_model_states.pt
//
// A pipeline has one file of tensors per layer, numbered over the whole model, and mp_rank_<P> for
// stage P in place of mp_rank_00; layers that are functions have no file:
//   <dir>/<tag>/layer_<L>[-model_00]-model_states.pt                 one per layer
//   <dir>/<tag>/mp_rank_<P>_model_states.pt                          one per stage; its "module" is None
//   <dir>/<tag>/[bf16_]zero_pp_rank_<R>_mp_rank_<P>_optim_states.pt  ZeRO stage 1, one per rank and stage
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/node.h"

namespace gannet::convert {

struct DeepSpeedLayer {
  int64_t number;       // over the whole model
  files::Node tensors;  // by their names within the layer
};

struct DeepSpeedFolder {
  std::string path;  // <dir>/<tag>
  std::string tag;
  std::vector<files::Node> models;      // one; at stage 3 one per rank
  std::vector<files::Node> optimizers;  // by rank; none at stage 0
  std::string universal = {};           // the folder zero/ of a universal checkpoint; "": none
  // Only for a pipeline; `models` and `optimizers` are then those of its first stage.
  std::vector<DeepSpeedFolder> stages;    // each with its own models and optimizers; empty: no pipeline
  std::vector<DeepSpeedLayer> layers;     // in ascending order
  bool is_universal_of_pipeline = false;  // then `universal` has parameters of stages other than the first as well
};

// Whether `dir`, its `latest` folder or, without a valid `latest`, any folder in it has such files.
bool is_deepspeed_folder(const std::string& dir);

// Reads the files' pickles but no tensors. `tag` "": the tag in `latest`. Throws Error(kArgument)
// for an invalid tag, Error(kNotFound) if a folder or a rank's file is missing, Error(kMismatch) if
// the ranks counted in the files differ from the files present, Error(kUnsupported) for experts,
// tensor parallelism and states on a drive, and Error(kCorrupt) for
// unreadable files. `weights_only`: ignores states on a drive.
DeepSpeedFolder open_deepspeed(const std::string& dir, const std::string& tag, bool weights_only = false);

}  // namespace gannet::convert
