/// Measures the cost of a model: counts the operations that run in forward and in backward, by
/// module and by operator; on the CPU it also measures their time.
///
///   gannet::ModelProfile cost = gannet::profile(model, tokens, targets);   // one forward, and its backward
///   std::cout << cost.forward().macs << '\n' << cost.to_string({.module_depth = 2});
///
/// Modules are neither changed nor wrapped: operators are intercepted, and each is assigned to the
/// module whose parameters it reads. In training the config's "flops_profiler" section does the
/// same for one step. docs/profiler.md has the rules for counting operations and for assigning
/// operators to modules.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace gannet {

/// How a profile is formatted. The fields are the keys of the same names in the config's
/// "flops_profiler" section.
struct ProfileText {
  int64_t module_depth = -1;  ///< depth of the deepest modules shown; -1: all
  int64_t top_modules = 1;    ///< how many kinds of module are named at each depth
  bool detailed = true;       ///< also shows each module, each operator, and memory where it is known
};

struct ModelProfile {
  struct Work {
    int64_t flops = 0;   ///< operations; a multiply-add counts as two
    int64_t macs = 0;    ///< multiply-adds of matrix products, convolutions and attention
    double seconds = 0;  ///< time inside operators; 0 unless `is_timed`
    Work& operator+=(const Work& other);
  };
  /// Memory in bytes. Each tensor counts once, in the module that names it first. If an engine
  /// trains the model, it is the memory on this rank.
  struct Memory {
    int64_t parameters = 0, buffers = 0;
    int64_t gradients = 0, masters = 0, states = 0;  ///< only with an engine
    int64_t activations = 0;                         ///< tensors that the module's operators made, if alive when backward begins
    int64_t total() const { return parameters + buffers + gradients + masters + states + activations; }
    Memory& operator+=(const Memory& other);
  };
  struct Module {
    std::string name;  ///< "h.0.attn"; "": the model itself
    std::string type;  ///< "Attention"
    int64_t depth = 0;
    // Totals of the module and all modules below it:
    int64_t parameters = 0;  ///< elements
    Work forward, backward;
    Memory memory;
  };
  struct Operator {
    std::string name;  ///< "aten::addmm"
    std::string kind;  ///< "matmul"
    int64_t forward_calls = 0, backward_calls = 0;
    Work forward, backward;
  };
  struct Unknown {
    std::string name;
    int64_t calls = 0;
  };

  std::vector<Module> modules;                       ///< the model first; each module is followed by those below it
  std::vector<Operator> operators;                   ///< those with the most operations first
  std::vector<Unknown> not_counted;                  ///< operators without a rule; no figure includes them
  bool is_timed = false;                             ///< false on a device whose queue runs operators later
  double forward_seconds = 0, backward_seconds = 0;  ///< from call to return; on a device with a queue, until its work is done

  const Work& forward() const { return modules.front().forward; }
  const Work& backward() const { return modules.front().backward; }
  int64_t parameters() const { return modules.front().parameters; }
  /// Throws Error(kNotFound), with the nearest name, if no module has this name.
  const Module& module(const std::string& name) const;
  std::string to_string(const ProfileText& text = {}) const;
};

struct ProfileOptions {
  int64_t warm_up = 1;   ///< number of calls before the one that is counted, since first calls are slow
  bool backward = true;  ///< counts backward too, if forward's result requires a gradient; `.grad` stays as it is
};

/// Counts one call of `forward`, and then the backward of its result with respect to the model's
/// parameters. The model stays in its mode (train or eval); random numbers are drawn and batch
/// statistics updated as by any other call.
ModelProfile profile_forward(const torch::nn::Module& model, const std::function<at::Tensor()>& forward,
                             const ProfileOptions& options = {});

/// Counts a call of the model's own forward with these inputs. If forward returns no tensor, only
/// forward is counted.
template <class Model, class... Inputs>
ModelProfile profile(const ProfileOptions& options, const std::shared_ptr<Model>& model, const Inputs&... inputs) {
  return profile_forward(
      *model,
      [&]() -> at::Tensor {
        if constexpr (std::is_convertible_v<decltype(model->forward(inputs...)), at::Tensor>)
          return model->forward(inputs...);
        else
          return static_cast<void>(model->forward(inputs...)), at::Tensor();
      },
      options);
}
template <class Model, class... Inputs>
ModelProfile profile(const std::shared_ptr<Model>& model, const Inputs&... inputs) {
  return profile(ProfileOptions(), model, inputs...);
}

}  // namespace gannet
