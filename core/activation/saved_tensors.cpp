#include "activation/saved_tensors.h"

#include <gannet/error.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <typeinfo>
#include <vector>

namespace gannet::activation {
namespace {

using torch::autograd::Engine;

using NodePtr = decltype(torch::autograd::Edge::function);  // LibTorch 2.15 has a pointer type of its own for nodes

std::vector<Keeper*>& keepers() {
  thread_local std::vector<Keeper*> stack;
  return stack;
}

// This engine only provides hooks; LibTorch's own engine runs every backward pass. Device threads
// are started once per process, for the engine that runs the first pass, and belong to that engine
// only.
class HookingEngine : public Engine {
 public:
  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots, const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<torch::autograd::GraphTask>& task,
                                                                 NodePtr root, torch::autograd::InputBuffer&& input) override {
    return get_base_engine().execute_with_graph_task(task, std::move(root), std::move(input));
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    Keeper* const keeper = keeper_here();
    return keeper ? keeper->hooks() : nullptr;
  }
};

// Never destroyed: threads of backward passes may outlive main().
Engine& hooking_engine() {
  static auto* const forever = new HookingEngine;
  return *forever;
}

}  // namespace

void install_saved_tensor_hooks() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Engine& present = Engine::get_default_engine();
  if (&present == &hooking_engine()) return;
  if (typeid(present) != typeid(Engine))
    throw Error(ErrorCode::kUnsupported,
                "another autograd engine is installed in this process, as a Python interpreter does: what operators save for "
                "backward goes to its hooks",
                "set use_reentrant in its options, train in a process without Python, or call the function without "
                "gannet::checkpointing::checkpoint");
  torch::autograd::set_default_engine_stub(&hooking_engine);
}

KeeperScope::KeeperScope(Keeper* keeper) { keepers().push_back(keeper); }
KeeperScope::~KeeperScope() { keepers().pop_back(); }

Keeper* keeper_here() {
  const auto& stack = keepers();
  return stack.empty() ? nullptr : stack.back();
}

}  // namespace gannet::activation
