#include "grads/split_backward.h"

#include <gannet/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "base/format.h"

namespace gannet {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

// The nodes of a graph from which a path leads to an input.
class NodesToInputs {
 public:
  NodesToInputs(const edge_list& roots, const edge_list& inputs) {
    leads_.reserve(256);
    for (const Edge& input : inputs) leads_.emplace(input.function.get(), true);
    for (const Edge& root : roots) walk(root.function.get());
  }
  bool leads(const Edge& edge) const { return edge.function && leads_.at(edge.function.get()); }
  /// Excludes the nodes of the inputs themselves.
  const std::vector<Node*>& nodes() const { return nodes_; }

 private:
  struct VisitedNode {
    Node* node;
    uint32_t next;  // the edge to follow next
  };

  void visit(Node* node) {
    if (node && leads_.emplace(node, false).second) stack_.push_back({node, 0});
  }
  void walk(Node* root) {
    visit(root);
    while (!stack_.empty()) {
      VisitedNode& top = stack_.back();
      if (top.next < top.node->num_outputs()) {
        visit(top.node->next_edge(top.next++).function.get());
        continue;
      }
      Node* const node = top.node;
      stack_.pop_back();
      const edge_list& edges = node->next_edges();
      if (std::none_of(edges.begin(), edges.end(), [this](const Edge& edge) { return leads(edge); })) continue;
      leads_[node] = true;
      nodes_.push_back(node);
    }
  }

  std::unordered_map<const Node*, bool> leads_;
  std::vector<Node*> nodes_;
  std::vector<VisitedNode> stack_;
};

struct RecordedGradients {
  variable_list gradients;
  std::vector<uint32_t> versions;  // [gradients] their version counters on arrival
};

// Records the gradients that arrive at a node, after the hooks of its tensors.
class GradientRecorder : public torch::autograd::FunctionPreHook {
 public:
  explicit GradientRecorder(std::shared_ptr<RecordedGradients> into) : into_(std::move(into)) {}
  variable_list operator()(const variable_list& gradients) override {
    into_->gradients = gradients;
    for (const at::Tensor& gradient : gradients)
      into_->versions.push_back(gradient.defined() ? gradient.unsafeGetTensorImpl()->version_counter().current_version() : 0);
    return gradients;
  }

 private:
  const std::shared_ptr<RecordedGradients> into_;
};

// A node with edges that lead to inputs and edges that lead only to parameters.
struct Fork {
  std::shared_ptr<Node> node;
  std::shared_ptr<RecordedGradients> recorded = std::make_shared<RecordedGradients>();  // the gradients that arrived at it
};

// The second pass reuses the first one's gradients. Throws Error(kUnsupported) if one has changed.
void require_unchanged(const Fork& fork) {
  for (size_t k = 0; k < fork.recorded->gradients.size(); ++k) {
    const at::Tensor& gradient = fork.recorded->gradients[k];
    if (!gradient.defined() || gradient.unsafeGetTensorImpl()->version_counter().current_version() == fork.recorded->versions[k])
      continue;
    throw Error(ErrorCode::kUnsupported,
                formatted("the backward of {} changed the gradient that came to it in place, and a schedule with split backwards "
                          "runs it once for its inputs and once for its weights",
                          fork.node->name()),
                "let it make a new tensor, or choose a schedule with whole backwards: gpipe, 1f1b or interleaved");
  }
}

// The second pass starts at the fork, with gradients to which these hooks were already applied.
void remove_tensor_hooks(Node& node) {
  node.tensor_pre_hooks().clear();
  std::vector<size_t> retained;
  for (const auto& [output, hook] : node.retains_grad_hooks()) retained.push_back(output);
  for (const size_t output : retained) node.pop_retains_grad_hook(output);
}

}  // namespace

int64_t SplitBackward::next_number() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

void SplitBackward::add(Edge root, at::Tensor gradient) {
  roots_.push_back(std::move(root));
  gradients_.push_back(std::move(gradient));
}

void SplitBackward::weight_pass() {
  const edge_list roots = std::exchange(roots_, {});
  const variable_list gradients = std::exchange(gradients_, {});
  if (!roots.empty())
    Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                         /*accumulate_grad=*/true);
}

variable_list SplitBackward::input_pass(const edge_list& roots, const variable_list& of_roots, const edge_list& inputs) {
  const NodesToInputs to_inputs(roots, inputs);
  edge_list first;
  variable_list of_first;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!to_inputs.leads(roots[i])) {
      add(roots[i], of_roots[i]);
      continue;
    }
    first.push_back(roots[i]);
    of_first.push_back(of_roots[i]);
  }
  std::vector<Fork> forks;
  std::vector<std::shared_ptr<Node>> others;  // nodes with saved tensors unused by the second pass
  for (Node* node : to_inputs.nodes()) {
    const edge_list& edges = node->next_edges();
    if (std::all_of(edges.begin(), edges.end(), [&](const Edge& edge) { return !edge.function || to_inputs.leads(edge); })) {
      others.push_back(node->getptr());
      continue;
    }
    forks.push_back({node->getptr()});
    node->add_tensor_pre_hook(std::make_unique<GradientRecorder>(forks.back().recorded));
  }
  variable_list of_inputs(inputs.size());
  // Operators compute only the gradients that this pass requests, so none for parameters.
  if (!first.empty())
    of_inputs = Engine::get_default_engine().execute(first, of_first, /*keep_graph=*/true, /*create_graph=*/false,
                                                     /*accumulate_grad=*/false, inputs);
  for (const Fork& fork : forks) {
    require_unchanged(fork);
    remove_tensor_hooks(*fork.node);
    // Each fork is a root of the second pass. Edges from fork to fork would count gradients twice.
    for (Edge& edge : fork.node->next_edges())
      if (to_inputs.leads(edge)) edge = Edge();
    const variable_list& gradients = fork.recorded->gradients;
    for (uint32_t k = 0; k < gradients.size(); ++k)
      if (gradients[k].defined()) add(Edge(fork.node, k), gradients[k]);
  }
  // Cutting the edges frees nothing: a saved tensor holds the node that made it.
  for (const auto& node : others) node->release_variables();
  return of_inputs;
}

}  // namespace gannet
